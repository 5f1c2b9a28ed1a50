"""`make attack MINUTES=20`: kills, full disks, several processes, damages, mutants and bad commands.

Writes one record of what was tried and what held, for the README's table. It fails where anything was lost, doubled or
different, or where a command ended otherwise than in words of ours.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcad.runs.record import versions

TESTS = Path(__file__).parents[1]
RECORD = TESTS.parent / "results" / "attack" / "attack.json"
WORKERS = 2
"""Of each kind: kills wait, and mutants compute."""
BOUNDS = "messages out of bounds"
OURS = "exceptions that are not ours"
HELD = ("lost", "doubled", "different", OURS, "crashes", BOUNDS, "left behind")
_NAMES = {
    "crash": "crashes",
    "damaged": "lost",
    **dict.fromkeys(("an exception that is not ours", "exception", "refused"), OURS),
    **dict.fromkeys(("a control character", "not one line", "a long message", "output beside an error"), BOUNDS),
}
"""What the workers call a fault, as the record counts it."""


def worker(module: str, folder: Path, stderr: Any = None, **options: Any) -> subprocess.Popen[str]:
    """One of the attack's modules in a process of its own, which prints lines of JSON."""
    paths = [str(TESTS.parent / "src"), str(TESTS), str(TESTS / "support")]
    code = f"from attack.{module} import main; main({str(folder)!r}, **{options!r})"
    command = [sys.executable, "-W", "ignore", "-c", code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)


class Attack:
    """What all workers have tried and found."""

    def __init__(self, seed: int, until: float, folder: Path) -> None:
        self.seed, self.until, self.folder = seed, until, folder
        self.tried: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.faults: list[dict[str, Any]] = []

    def readers(self, number: int) -> None:
        """Mutants, damages and bad commands; a process that dies is a crash, and the next goes on after it."""
        start, lives = number, 0
        while time.time() < self.until:
            last = self._follow("readers", number, f"{number}-{lives}", start=start, step=WORKERS)
            if last is None:
                return
            self.faults.append({"fault": "crash", "mutant": last})
            start, lives = last + WORKERS, lives + 1

    def killers(self, number: int) -> None:
        """Kills, full disks and several processes on one sweep."""
        if self._follow("kills", number, str(number)) is not None:
            self.faults.append({"fault": "crash", "what": "the attack itself"})

    def _follow(self, module: str, number: int, name: str, **options: int) -> int | None:
        """Runs a worker and takes down what it says; where it died, the number of the mutant it was at."""
        folder = self.folder / f"{module}-{name}"
        at, whole = -1, False
        with folder.with_suffix(".log").open("w") as log:
            process = worker(module, folder, log, until=self.until, seed=self.seed + number, **options)
            for message in map(json.loads, filter(lambda line: line.startswith("{"), process.stdout or ())):
                if "fault" in message:
                    self.faults.append(message)
                    print(json.dumps(message)[:400], flush=True)
                elif "tried" in message:
                    whole = True
                    self.kills.update(message["tried"].pop("kills", {}))
                    self.tried.update(message["tried"])
                else:
                    at = message["at"]
            process.wait()
        return None if whole else at

    def record(self, minutes: float) -> dict[str, Any]:
        found = Counter(_NAMES.get(one["fault"], one["fault"]) for one in self.faults)
        return {
            "kind": "rcad attack",
            "schema": 1,
            "date": datetime.now(UTC).date().isoformat(),
            "minutes": round(minutes, 1),
            "seed": self.seed,
            "cores": os.cpu_count(),
            "versions": versions(),
            "tried": {"kills": self.kills.total(), **dict(sorted(self.tried.items()))},
            "kills by command": dict(sorted(self.kills.items())),
            "held": {name: found[name] for name in dict.fromkeys((*HELD, *found))},
            "faults": self.faults[:50],
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="attack")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="rcad-attack-") as folder, ThreadPoolExecutor(2 * WORKERS) as pool:
        attack = Attack(given.seed, begun + 60 * given.minutes, Path(folder))
        left = {pool.submit(work, number) for work in (attack.readers, attack.killers) for number in range(WORKERS)}
        while left:
            done, left = wait(left, timeout=30)
            for worked in done:
                worked.result()
            seconds = max(0, round(attack.until - time.time()))
            print(f"{seconds} s left, {len(attack.faults)} faults so far", file=sys.stderr, flush=True)
        for log in Path(folder).glob("*.log") if attack.faults else ():
            print(log.name, log.read_text()[-2000:], file=sys.stderr)
    record = attack.record((time.time() - begun) / 60)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({"tried": record["tried"], "held": record["held"]}, indent=1), given.out, sep="\n")
    return 1 if attack.faults else 0


if __name__ == "__main__":
    sys.exit(main())
