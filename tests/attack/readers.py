"""Mutants of every kind of file, given to the commands that read them: each ends well or in one line of ours."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from attack import damage
from attack.commands import bad_command
from attack.damage import FILES, KINDS, Said, Workplace, rcad
from attack.files import PROGRAMS, program, workshop

LONGEST = 300
SECONDS = 60
MEMORY = 12 << 30


def fault(done: Said) -> str | None:
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

    def attack(self, number: int) -> tuple[str, str, Said]:
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
        said = _end(lambda: program(words[0]) if words[0] in PROGRAMS else rcad(*words))
        for folder in resets:
            shutil.rmtree(folder, ignore_errors=True)
            if (self.kept / folder).is_dir():
                shutil.copytree(self.kept / folder, folder, symlinks=True)
        shutil.copy2(self.kept / file, file)
        return what, on, said


def _end(work: Callable[[], object]) -> Said:
    """How a command ended, or a damage that must have been healed; whatever is raised is a fault."""
    try:
        said = work()
        return said if isinstance(said, Said) else Said(0, "", "")
    except Slow:
        return Said(1, "", "rcad: unexpected: it took too long")
    except Exception:
        return Said(1, "", f"rcad: unexpected: {traceback.format_exc()}")


def _too_slow(number: int, frame: object) -> None:
    raise Slow


def main(arguments: list[str]) -> None:
    """Attack with the mutants from `--start` on; a line of JSON for each fault, and one at the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds since the epoch")
    parser.add_argument("--folder", type=Path, required=True, help="a new one, to work in")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True)
    os.chdir(given.folder)
    reading = Reading(given.seed, given.folder.absolute())
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    tried: dict[str, int] = {}
    times: dict[str, float] = {}
    number = given.start
    while number < given.start + given.count * given.step and time.time() < given.until:
        print(json.dumps({"at": number}), flush=True)
        signal.alarm(SECONDS)
        begun = time.perf_counter()
        what, on, said = reading.attack(number)
        signal.alarm(0)
        by = on.partition(":")[0] if what == "mutants" else what
        times[by] = times.get(by, 0.0) + time.perf_counter() - begun
        tried[what] = tried.get(what, 0) + 1
        if (wrong := fault(said)) is not None:
            found: dict[str, Any] = {"fault": wrong, "mutant": number, "what": what, "on": on[:300]}
            print(json.dumps(found | {"said": said.err[-400:], "code": said.code}), flush=True)
        number += given.step
    print(json.dumps({"tried": tried, "seconds": {name: round(spent, 1) for name, spent in times.items()}}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
