"""The whole attack: kills, full disks, several processes, damages, mutants and bad commands, for some minutes.

    make attack MINUTES=20

Writes one record of what was tried and what held, from which `make pages` makes the README's table. It fails where
anything was lost, doubled or different, or where a command ended otherwise than in words of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcad.runs.record import versions

RECORD = Path(__file__).parents[2] / "results" / "attack" / "attack.json"
WORKERS = 2
"""Of each kind: kills wait, and mutants compute."""
HELD = (
    "lost",
    "doubled",
    "different",
    "exceptions that are not ours",
    "crashes",
    "messages out of bounds",
    "left behind",
)
_NAMES = {
    "crash": "crashes",
    "damaged": "lost",
    **dict.fromkeys(("an exception that is not ours", "exception", "refused"), "exceptions that are not ours"),
    **dict.fromkeys(("a control character", "not one line", "a long message", "output beside an error"), HELD[5]),
}
"""What the workers call a fault, as the record counts it."""


class Attack:
    """What all workers have tried and found."""

    def __init__(self, seed: int, until: float, folder: Path) -> None:
        self.seed, self.until, self.folder = seed, until, folder
        self.tried: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.faults: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def readers(self, worker: int) -> None:
        """Mutants, damages and bad commands; a process that dies is a crash, and the next goes on after it."""
        start, lives = worker, 0
        while time.time() < self.until:
            last = self._follow("readers", f"{worker}-{lives}", "--start", str(start), "--step", str(WORKERS))
            if last is None:
                return
            with self._lock:
                self.faults.append({"fault": "crash", "mutant": last})
            start, lives = last + WORKERS, lives + 1

    def kill(self, worker: int) -> None:
        """Kills, full disks and several processes on one sweep."""
        if self._follow("kills", str(worker)) is not None:
            with self._lock:
                self.faults.append({"fault": "crash", "what": "the attack itself"})

    def _follow(self, module: str, name: str, *more: str) -> int | None:
        """Runs a worker and takes down what it says; where it died, the number of the mutant it was at."""
        command = [sys.executable, "-W", "ignore", "-m", f"attack.{module}", "--until", str(self.until), *more]
        command += ["--seed", str(self.seed + int(name[0])), "--folder", str(self.folder / f"{module}-{name}")]
        log = (self.folder / f"{module}-{name}.log").open("w")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        at, whole = -1, False
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            message = json.loads(line)
            with self._lock:
                if "at" in message:
                    at = message["at"]
                elif "fault" in message:
                    self.faults.append(message)
                    print(json.dumps(message)[:400], flush=True)
                else:
                    whole = True
                    self.kills.update(message["tried"].pop("kills", {}))
                    self.tried.update(message["tried"])
        process.wait()
        return None if whole else at

    def record(self, minutes: float) -> dict[str, Any]:
        found = Counter(_NAMES.get(one["fault"], one["fault"]) for one in self.faults)
        tried = {"kills": self.kills.total(), **dict(sorted(self.tried.items()))}
        return {
            "kind": "rcad attack",
            "schema": 1,
            "date": datetime.now(UTC).date().isoformat(),
            "minutes": round(minutes, 1),
            "seed": self.seed,
            "cores": os.cpu_count(),
            "versions": versions(),
            "tried": tried,
            "kills by command": dict(sorted(self.kills.items())),
            "held": {name: found[name] for name in dict.fromkeys((*HELD, *found))},
            "faults": self.faults[:50],
        }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="attack")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args(arguments)
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="rcad-attack-") as folder:
        attack = Attack(given.seed, begun + 60 * given.minutes, Path(folder))
        workers = [
            threading.Thread(target=work, args=(k,)) for work in (attack.readers, attack.kill) for k in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive():
                worker.join(30)
                left = max(0, round(attack.until - time.time()))
                print(f"{left} s left, {len(attack.faults)} faults so far", file=sys.stderr, flush=True)
        if attack.faults:
            for log in Path(folder).glob("*.log"):
                print(log.name, log.read_text()[-2000:], file=sys.stderr)
    record = attack.record((time.time() - begun) / 60)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({"tried": record["tried"], "held": record["held"]}, indent=1))
    print(given.out)
    return 1 if attack.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
