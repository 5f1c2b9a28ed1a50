"""Mutants of files, given to the commands that read them, and bad commands: each ends well or in one line of ours."""

import json
import os
import resource
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from attack import damage
from attack.damage import FILES, KINDS, Workplace
from attack.files import PROGRAMS, program, workshop
from attack.mutants import NUMBERS, TEXTS
from contracts.house import Result, called
from rcad.runs.config import KEYS

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
METHODS = (
    *("rcad(", "rcad(alpha=-1)", "rcad(alpha=1e999)", "rcad + rcad", "erm()", "mixup + cutmix", "rcad(**{})", "[rcad]"),
)


def bad_command(draw: Random, run: str) -> tuple[str, ...]:
    """A command with one to three words that are wrong, missing or too many."""
    words = [run if word == "RUN" else word for word in draw.choice(STARTS).split()]
    for _ in range(draw.choice((1, 1, 2, 3))):
        change = draw.randrange(5)
        at = draw.randrange(1, len(words) + 1)
        if change == 0 and at < len(words):
            words[at] = _word(draw)
        elif change == 1 and at < len(words):
            del words[at]
        elif change == 2:
            words += [draw.choice(OPTIONS), _word(draw)]
        elif change == 3:
            words += ["--set", f"{draw.choice(KEYS)}={_word(draw)}"]
        else:
            words.insert(at, draw.choice((*OPTIONS, _word(draw))))
    # What is given twice counts the last time: no bad word may start hours of work.
    small = ("--epochs", "1", "--set", "train.epochs=1", "--set", "data.name=my.csv") if words[0] == "train" else ()
    small = ("--dry-run",) if words[:2] == ["paper", "run"] else small
    return tuple(word.replace("\0", "") for word in (*words, *small))


def _word(draw: Random) -> str:
    kinds = (TEXTS, tuple(map(str, NUMBERS)), METHODS, ("9" * 5000, ",", "=", "..", "/", "-", "--", "[:10]", "a=b=c"))
    return str(draw.choice(draw.choice(kinds)))


LONGEST = 300
SECONDS = 60
MEMORY = 12 << 30


def fault(done: Result) -> str | None:
    """What is wrong with the end of a command that met a bad input; None where nothing is."""
    if done.code == 1 and not done.err and "diverged" in done.out:
        return None
    if done.code not in (0, 2) or "rcad: unexpected" in done.err or "Traceback" in done.err:
        return "an exception that is not ours"
    for text in (done.out, done.err):
        if any((ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160 for one in text):
            return "a control character"
    errors = [line for line in done.err.splitlines() if line.startswith("rcad: ")]
    if done.code == 2 and (len(errors) != 1 or done.err != f"{errors[0]}\n"):
        return "not one line"
    if any(len(line) > LONGEST for line in done.err.splitlines()):
        return "a long message"
    if done.code == 2 and done.out and "checked," not in done.out:  # what a check found is its answer
        return "output beside an error"
    return None


class Slow(Exception):
    """A command that does not come to an end."""


class Reading:
    """The workshop, and what is tried on it: mutants, damages and bad commands, each told by its number."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.kinds = workshop()
        self.kept = folder.absolute().with_name(f"{folder.name}.kept")
        shutil.copytree(".", self.kept, symlinks=True)
        self.damaged = Workplace(folder.absolute().with_name(f"{folder.name}.damaged"))
        self.run = self.kinds["record"].file.split("/")[1]

    def attack(self, number: int) -> tuple[str, str, Result]:
        """What it was, on what and with which command, and how that ended; then everything is as it was."""
        draw = Random(f"{self.seed}/{number}")
        what = draw.choices(("mutants", "damages", "bad commands"), (94, 3, 3))[0]
        if what == "damages":
            damaged, way = draw.choice(tuple(FILES)), draw.choice(tuple(KINDS))
            return what, f"{damaged}, {way}", _end(lambda: damage.attack(self.damaged, damaged, way, draw))
        if what == "bad commands":
            words = bad_command(draw, self.run)
            on, file, resets = " ".join(words), "my.csv", ("runs", "from", "unpacked", "evaluation")
        else:
            name = draw.choices(list(self.kinds), [kind.weight for kind in self.kinds.values()])[0]
            file, mutate, commands, resets, _ = self.kinds[name]
            Path(file).write_bytes(mutate((self.kept / file).read_bytes(), draw))
            words = tuple(draw.choice(commands).split())
            on = f"{name}: {' '.join(words)}"
        said = _end(lambda: program(words[0]) if words[0] in PROGRAMS else called(*words))
        for folder in resets:
            shutil.rmtree(folder, ignore_errors=True)
            if (self.kept / folder).is_dir():
                shutil.copytree(self.kept / folder, folder, symlinks=True)
        shutil.copy2(self.kept / file, file)
        return what, on, said


def _end(work: Callable[[], object]) -> Result:
    """How a command ended, or a damage that must have been healed; whatever is raised is a fault."""
    try:
        said = work()
        return said if isinstance(said, Result) else Result(0, "", "")
    except Slow:
        return Result(1, "", "rcad: unexpected: it took too long")
    except Exception:
        return Result(1, "", f"rcad: unexpected: {traceback.format_exc()}")


def _too_slow(number: int, frame: object) -> None:
    raise Slow


def main(folder: str, *, seed: int = 0, start: int = 0, count: int = 10**9, step: int = 1, until: float = 1e99) -> None:
    """Attack in a new folder with the mutants from `start` on, until this second since the epoch.

    Prints a line of JSON for each mutant that it begins, for each fault, and one at the end.
    """
    Path(folder).mkdir(parents=True)
    os.chdir(folder)
    reading = Reading(seed, Path(folder))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    tried: Counter[str] = Counter()
    for number in range(start, start + count * step, step):
        if time.time() >= until:
            break
        print(json.dumps({"at": number}), flush=True)
        signal.alarm(SECONDS)
        what, on, said = reading.attack(number)
        signal.alarm(0)
        tried[what] += 1
        if (wrong := fault(said)) is not None:
            found = {"fault": wrong, "mutant": number, "what": what, "on": on[:300]}
            print(json.dumps(found | {"said": said.err[-400:], "code": said.code}), flush=True)
    print(json.dumps({"tried": tried}), flush=True)
