"""Mutants of files, given to the commands that read them, and bad commands: each ends well or in one line of ours."""

import itertools
import resource
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from attack import damage
from attack.files import PROGRAMS, workshop
from attack.mutants import NUMBERS, TEXTS, raw
from contracts.house import Result, called
from rcad.errors import InputError
from rcad.runs.config import KEYS

Event = dict[str, Any]  # what was tried, under "tried", or what went wrong, under "fault" by its name in the record
BOUNDS, OURS = "messages out of bounds", "exceptions that are not ours"
SECONDS = 60  # a command that takes longer does not come to an end
MEMORY = 12 << 30
LONGEST = 300

OPTIONS = (
    *("--data", "--method", "--target", "--task", "--size", "--drop", "--labels", "--recipe", "--model", "--set"),
    *("--config", "--batch-size", "--lr", "--seed", "--seeds", "--runs", "--device", "--at-once", "--minutes"),
    *("--suite", "--out", "--limit", "--attack-eps", "--ood-data", "--corrupted", "--coverage", "--results", "--only"),
    *("--methods", "--budget", "--metric", "--search", "--json", "--quiet", "--nonsense", "-x", "--older-than"),
)
STARTS = """
train --data my.csv --target colour --method erm --epochs 1 --runs from
train --data digits[:100] --method rcad --epochs 1 --runs from
evaluate all --suite calibration --out evaluation
predict RUN --data my.csv
data import my.csv --target colour
data import images
runs list
runs show RUN
runs prune
runs verify
runs unpack study.jsonl.gz --out unpacked
suggest-alpha --data my.csv --target colour
methods show rcad
paper status
paper run T8 --dry-run
export RUN --out x.pt2
""".strip().splitlines()
ODD = (
    *(*TEXTS, *map(str, NUMBERS)),
    *("rcad(", "rcad(alpha=-1)", "rcad(alpha=1e999)", "rcad + rcad", "erm()", "mixup + cutmix", "rcad(**{})", "[rcad]"),
    *("9" * 5000, ",", "=", "..", "/", "-", "--", "[:10]", "a=b=c"),
)


def bad_command(draw: Random, run: str) -> tuple[str, ...]:
    """A command with one to three words that are wrong, missing or too many."""
    words = [run if word == "RUN" else word for word in draw.choice(STARTS).split()]
    for _ in range(draw.choice((1, 1, 2, 3))):
        word, option, at, end = draw.choice(ODD), draw.choice(OPTIONS), draw.randrange(1, len(words) + 1), len(words)
        replaced, left_out, put_in = (at, at + 1, [word]), (at, at + 1, []), (at, at, [draw.choice((option, word))])
        added = draw.choice(((end, end, [option, word]), (end, end, ["--set", f"{draw.choice(KEYS)}={word}"])))
        start, stop, new = draw.choice((replaced, left_out, put_in, added, added))
        words[start:stop] = new
    # What is given twice counts the last time: no bad word may start hours of work.
    small = ("--epochs", "1", "--set", "train.epochs=1", "--set", "data.name=my.csv") if words[0] == "train" else ()
    small = ("--dry-run",) if words[:2] == ["paper", "run"] else small
    return tuple(word.replace("\0", "") for word in (*words, *small))


def fault(done: Result) -> str | None:
    """What is wrong with the end of a command that met a bad input; None where nothing is."""
    lines = done.err.splitlines()
    if done.code == 1 and not done.err and "diverged" in done.out:
        return None
    if done.code not in (0, 2) or "rcad: unexpected" in done.err or "Traceback" in done.err:
        return OURS
    control = any((ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160 for one in done.out + done.err)
    one_line = len(lines) == 1 and done.err.startswith("rcad: ") and done.err.endswith("\n")
    alone = not done.out or "checked," in done.out  # what a check found is its answer
    long = any(len(line) > LONGEST for line in lines)
    return BOUNDS if control or long or (done.code == 2 and not (one_line and alone)) else None


def attacks(seed: int, start: int = 0, step: int = 1) -> Iterator[list[Event]]:
    """Mutants, damages and bad commands in a folder of this process, each told by its number: how they ended.

    After each of them everything is as it was.
    """
    kinds, kept = workshop(), shutil.copytree(".", Path("../kept").absolute(), symlinks=True)
    damaged = damage.make(Path("../damaged/whole").absolute())
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for number in itertools.count(start, step):
        print("mutant", number)
        draw = Random(f"{seed}/{number}")
        what = draw.choices(("mutants", "damages", "bad commands"), (94, 3, 3))[0]
        file, resets = "my.csv", ("runs", "from", "unpacked", "evaluation")
        if what == "damages":
            on = draw.choice(tuple(damage.FILES)), draw.choice(damage.KINDS)
            work = partial(damage.attack, damaged, *on, draw)
        elif what == "bad commands":
            on = bad_command(draw, Path(kinds["record"].file).parent.name)
            work = partial(called, *on)
        else:
            name = draw.choices(list(kinds), [kind.weight for kind in kinds.values()])[0]
            file, mutate, commands, resets, _ = kinds[name]
            Path(file).write_bytes(draw.choice((mutate, mutate, mutate, raw))((kept / file).read_bytes(), draw))
            on = name, *draw.choice(commands).split()
            work = PROGRAMS.get(on[1], partial(called, *on[1:]))
        said = _end(work)
        for folder in resets:
            shutil.rmtree(folder, ignore_errors=True)
            if (kept / folder).is_dir():
                shutil.copytree(kept / folder, folder, symlinks=True)
        shutil.copy2(kept / file, file)
        wrong = {"fault": fault(said), "mutant": number, "on": on, "said": said.err[-400:], "code": said.code}
        yield [{"tried": what}, *([wrong] if wrong["fault"] else [])]


def _end(work: Callable[[], object]) -> Result:
    """How a command, a program or a damage that must have been healed ended; most of what is raised is a fault."""
    signal.alarm(SECONDS)
    try:
        said = work()
        return said if isinstance(said, Result) else Result(0, "", "")
    except InputError as error:
        return Result(2, "", f"rcad: {error}\n")
    except (Exception, KeyboardInterrupt):
        return Result(1, "", f"rcad: unexpected: {traceback.format_exc()}")
    finally:
        signal.alarm(0)
