"""Commands that are killed at random moments, share a folder with others, or find the disk full: nothing is lost.

In the end there is what one undisturbed call makes, bit for bit but for times, and no run or epoch twice.
"""

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from attack.readers import OURS, Event
from contracts.house import RESULTS
from forked import Forked
from made import saved, table
from rcad.cli.main import run
from rcad.runs.files import loads, read_log
from rcad.train.place import Place

TIMES = frozenset(
    {"started", "finished", "timings", "seconds", "versions", "commit", "peak_memory_bytes", "sha256", "checksum"}
    | {"train_seconds", "test_seconds", "device", "cost", "cpu_seconds"}
)
"""Keys of records whose values differ from one call to the next."""
OWN = "--data my.csv --target colour"
MOST_KILLS = 12  # of one round; then the command is left alone


def plain(value: Any) -> Any:
    """Parsed JSON without what differs from one call to the next."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in TIMES}
    return [plain(item) for item in value] if isinstance(value, list) else value


def content(path: Path) -> Any:
    """What a file holds, as far as it must be the same every time."""
    if path.suffix == ".json":
        return plain(loads(path.read_text(), path.name))
    if path.name == "log.jsonl":
        return plain(read_log(path))
    return path.read_bytes() if path.suffix == ".toml" or path.name == "model.safetensors" else "there"


def made(folder: Path) -> dict[str, Any]:
    paths = [path for path in folder.rglob("[!.]*") if path.is_file() and path.name not in ("lock", "owner")]
    return {str(path.relative_to(folder)): content(path) for path in paths}


@dataclass
class Round:
    """A command that is disturbed, the folder that it fills, and one that must be there before it starts.

    It works in a folder of its own, which is new every time; an undisturbed call has the last word.
    """

    name: str
    command: str
    out: str = "out"
    given: str = ""
    events: list[Event] = field(default_factory=list)

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        folder = Path(f"round-{self.name}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.given or "empty", folder / self.given)
        shutil.copy("my.csv", folder)
        with contextlib.chdir(folder):
            yield Path(self.out)

    def prepare(self) -> None:
        """Undisturbed calls, which load all that is needed and say what must come out, and how long it takes."""
        with self.folder():
            assert run(self.command.split()) == 0  # in this process: what it imports, its children need not
        with self.folder() as out:
            started = time.monotonic()
            self.ended(self.start())
            self.seconds, self.reference = time.monotonic() - started, made(out)
            assert self.events == []

    def disturbed(self, disturb: Callable[[Random], None], draw: Random) -> list[Event]:
        """What was tried, and what an undisturbed call then leaves otherwise than the first time."""
        self.events = []
        with self.folder() as out:
            disturb(draw)
            if self.ended(self.start()) == 0:
                found = made(out)
                self.kept(self.reference, found)
                self.fault("doubled", *(found.keys() - self.reference.keys()))
                left = out.rglob(".*.partial") if self.name in ("train", "evaluate") else ()
                self.fault("left behind", *left)
        return self.events

    def start(self, **options: Any) -> Forked:
        return Forked(*self.command.split(), **options)

    def fault(self, kind: str, *what: object) -> None:
        self.events += [{"fault": kind, "command": self.name, "what": str(one)[-600:]} for one in what]

    def ended(self, child: Forked, *, may_refuse: bool = False) -> int | None:
        """The exit code of a command; any but 0 is a fault, but where it may refuse in words of ours."""
        code, said = child.wait(), child.said("err")
        refused = may_refuse and code == 2 and "rcad: " in said and "unexpected" not in said
        if code != 0 and not refused:
            self.fault("crashes" if code is None or code < 0 else OURS, f"exit code {code}: {said}")
        return code

    def kept(self, wanted: dict[str, Any], found: dict[str, Any]) -> None:
        self.fault("lost", *(wanted.keys() - found.keys()))
        self.fault("different", *(path for path in wanted.keys() & found.keys() if found[path] != wanted[path]))

    def killed(self, draw: Random) -> None:
        before: dict[str, Any] = {}
        for _ in range(MOST_KILLS):
            child = self.start()
            if child.wait(draw.uniform(0.0, 0.6 * self.seconds)) is not None:
                break
            child.kill()
            self.events.append({"killed": self.name})
            records = {str(path): saved(path) for path in Path(self.out).rglob("record.json")}
            self.kept(before, records)
            before = {path: record for path, record in records.items() if record["status"] == "done"}

    def shared(self, draw: Random) -> None:
        """Several processes make one sweep, of which one is killed."""
        first, *others = (self.start() for _ in range(3))
        time.sleep(draw.uniform(0.0, self.seconds))
        first.kill()
        self.events += [{"killed": self.name}, *[{"tried": "processes on one sweep"}] * 3]
        for child in others:
            self.ended(child, may_refuse=True)

    def full(self, draw: Random) -> None:
        """The disk holds no file larger than so much; afterwards it has room again."""
        largest = draw.choice((0, 100, 300, 1000, 3000, 5000, 10_000, 30_000))
        self.events.append({"tried": "full disks"})
        self.ended(self.start(largest_file=largest), may_refuse=True)


ROUNDS = (
    Round("train", f"train {OWN} --method rcad --epochs 12 --seeds 3 --batch-size 8", "runs"),
    Round("tune", f"tune {OWN} --method rcad --budget 3 --epochs 4 --out out"),
    Round("compare", f"compare {OWN} --methods erm,rcad --budget 2 --seeds 3 --epochs 3 --out out"),
    Round("evaluate", "evaluate all --suite calibration,ood --runs done --out seen", "done", "done"),
    Round("paper", "paper run F7 --scale smoke --out out"),
    Round("report", "paper report --results records --out out", "out", "records"),
)


def attacks(seed: int, rounds: Sequence[Round] = ROUNDS) -> Iterator[list[Event]]:
    """What each round tried and found, in a folder of this process: mostly kills, three times as many of the first."""
    os.environ["RCAD_CACHE"] = str(Path("cache").absolute())
    # So often that most kills meet a checkpoint, or the middle of one.
    Place.of = functools.partial(Place.of, checkpoint_seconds=0.01)  # type: ignore[method-assign]
    Path("my.csv").write_text(table())
    for folder in ("records/alpha", "empty"):
        Path(folder).mkdir(parents=True)
    shutil.copy(RESULTS / "alpha/alpha.json", "records/alpha")
    for method in ("erm", "rcad"):
        assert run(f"train {OWN} --epochs 1 --runs done --quiet --method {method}".split()) == 0
    for one in rounds:
        one.prepare()
    draw, often = Random(seed), (*rounds, *rounds[:1] * 2)
    while True:
        for one in draw.sample(often, len(often)):
            yield one.disturbed(one.killed, draw)
        yield rounds[0].disturbed(rounds[0].shared, draw)
        one = draw.choice(rounds)
        yield one.disturbed(one.full, draw)
