"""`make attack MINUTES=20`: kills, full disks, several processes, damages, mutants and bad commands.

Writes one record of what was tried and what held, for the README's table. It fails where anything was lost, doubled or
different, or where a command ended otherwise than in words of ours.
"""

import argparse
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attack import kills, readers
from attack.readers import BOUNDS, OURS, Event
from rcad.runs.record import versions

RECORD = Path(__file__).parents[2] / "results" / "attack" / "attack.json"
WORKERS = 2  # of each kind: kills wait, and mutants compute
HELD = ("lost", "doubled", "different", OURS, "crashes", BOUNDS, "left behind")


def attack(folder: Path, *workers: Iterator[list[Event]], until: float = math.inf) -> dict[str, Any]:
    """What came of the workers, which go on until then, each in a folder and a copy of this process."""
    copies = {}
    for number, worker in enumerate(workers):
        place = folder / str(number)
        copies[place] = multiprocessing.get_context("fork").Process(target=_work, args=(place, worker, until))
        copies[place].start()
    events: list[Event] = []
    for place, process in copies.items():
        process.join()
        log = (place / "log").read_text()
        events += [json.loads(line) for line in log.splitlines() if line.startswith('{"')]
        if process.exitcode != 0:
            events += [{"fault": "crashes", "code": process.exitcode, "log": log[-2000:]}]
    tried, killed, found = (Counter(one[key] for one in events if key in one) for key in ("tried", "killed", "fault"))
    return {
        "tried": {"kills": killed.total(), **dict(sorted(tried.items()))},
        "kills by command": dict(sorted(killed.items())),
        "held": {name: found[name] for name in HELD},
        "faults": [one for one in events if "fault" in one][:50],
    }


def _work(folder: Path, worker: Iterator[list[Event]], until: float) -> None:
    warnings.simplefilter("ignore")
    (folder / "work").mkdir(parents=True)
    os.chdir(folder / "work")
    sys.stdout = sys.stderr = (folder / "log").open("w", 1)  # whose end says where it died
    for events in worker:
        for event in events:
            print(json.dumps(event))
            if "fault" in event:
                print(json.dumps(event)[:400], file=sys.__stderr__)
        if time.time() >= until:
            break


def main() -> int:
    parser = argparse.ArgumentParser(prog="attack")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="rcad-attack-") as folder:
        workers = [kills.attacks(given.seed + number) for number in range(WORKERS)]
        workers += [readers.attacks(given.seed + number, number, WORKERS) for number in range(WORKERS)]
        found = attack(Path(folder), *workers, until=begun + 60 * given.minutes)
    about = {"kind": "rcad attack", "schema": 1, "date": datetime.now(UTC).date().isoformat()}
    about |= {"minutes": round((time.time() - begun) / 60, 1), "seed": given.seed, "cores": os.cpu_count()}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({**about, "versions": versions(), **found}, indent=1) + "\n")
    print(json.dumps(found, indent=1), given.out, sep="\n")
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
