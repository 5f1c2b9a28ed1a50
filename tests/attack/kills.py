"""Commands that are killed at random moments, share a folder with others, or find the disk full: nothing is lost.

Every round makes in the end what one undisturbed call makes: the same records, bit for bit but for times, the same
weights, and no run or epoch twice.
"""

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from safetensors.numpy import load_file

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
MOST_KILLS = 12
"""Of one round; then the command is left alone."""


class Round(NamedTuple):
    """A command that is disturbed, the folder that it fills, and one that must be there before it starts."""

    command: str
    out: str = "out"
    given: str = ""

    def start(self, **options: Any) -> Forked:
        return Forked(*self.command.split(), **options)


ROUNDS = {
    "train": Round(f"train {OWN} --method rcad --epochs 12 --seeds 3 --batch-size 8", "runs"),
    "tune": Round(f"tune {OWN} --method rcad --budget 3 --epochs 4 --out out"),
    "compare": Round(f"compare {OWN} --methods erm,rcad --budget 2 --seeds 3 --epochs 3 --out out"),
    "evaluate": Round("evaluate all --suite calibration,ood --runs done --out seen", "done", "done"),
    "paper": Round("paper run F7 --scale smoke --out out"),
    "report": Round("paper report --results records --out out", "out", "records"),
}


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
    if path.name == "model.safetensors":
        return {key: values.tobytes() for key, values in load_file(path).items()}
    return path.read_bytes() if path.suffix == ".toml" else "there"


def made(folder: Path) -> dict[str, Any]:
    """What a command has left."""
    paths = [path for path in folder.rglob("[!.]*") if path.is_file() and path.name not in ("lock", "owner")]
    return {str(path.relative_to(folder)): content(path) for path in paths}


def finished(folder: Path) -> dict[str, Any]:
    """The final records below a folder, whole."""
    records = {str(path): saved(path) for path in folder.rglob("record.json")}
    return {path: record for path, record in records.items() if record["status"] == "done"}


class Attack:
    """Rounds of disturbed commands; `events` are those of the present one."""

    def __init__(self, seed: int, only: tuple[str, ...]) -> None:
        """Undisturbed calls, which load all that is needed and say what must come out, and how long it takes."""
        self.draw, self.only, self.events = Random(seed), only, list[Event]()
        self.seconds: dict[str, float] = {}
        self.reference: dict[str, Any] = {}
        Path("my.csv").write_text(table())
        Path("records/alpha").mkdir(parents=True)
        shutil.copy(RESULTS / "alpha/alpha.json", "records/alpha")
        for method in ("erm", "rcad"):
            assert run(f"train {OWN} --epochs 1 --runs done --quiet --method {method}".split()) == 0
        for name in only:
            with self._folder(name):
                # In this process: what it imports, its children need not.
                assert run(ROUNDS[name].command.split()) == 0, name
            with self._folder(name) as out:
                started = time.monotonic()
                assert self._ended(name) == 0, self.events
                self.seconds[name], self.reference[name] = time.monotonic() - started, made(out)

    @contextlib.contextmanager
    def _folder(self, name: str) -> Iterator[Path]:
        """Work in a new folder that holds what the command needs; gives the one that it fills."""
        folder, given = Path(f"round-{name}"), ROUNDS[name].given
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy("my.csv", folder)
        if given:
            shutil.copytree(given, folder / given)
        with contextlib.chdir(folder):
            yield Path(ROUNDS[name].out)

    def _fault(self, kind: str, name: str, what: str) -> None:
        self.events.append({"fault": kind, "command": name, "what": what[:600]})

    def _ended(self, name: str, child: Forked | None = None, *, may_refuse: bool = False) -> int | None:
        """The exit code of a command; any but 0 is a fault, but where it may refuse in words of ours."""
        child = child or ROUNDS[name].start()
        code, said = child.wait(), child.said("err")
        refused = may_refuse and code == 2 and "rcad: " in said and "unexpected" not in said
        if code != 0 and not refused:
            self._fault("crashes" if code is None or code < 0 else OURS, name, f"exit code {code}: {said[-400:]}")
        return code

    def _kept(self, name: str, wanted: dict[str, Any], found: dict[str, Any]) -> None:
        """What was there is there as it was."""
        for path, value in wanted.items():
            if found.get(path) != value:
                self._fault("different" if path in found else "lost", name, path)

    def killed(self, name: str) -> None:
        """The command is killed until it is done."""
        before: dict[str, Any] = {}
        for _ in range(MOST_KILLS):
            child = ROUNDS[name].start()
            if child.wait(self.draw.uniform(0.0, 0.6 * self.seconds[name])) is not None:
                break
            child.kill()
            self.events.append({"killed": name})
            try:
                after = finished(Path(ROUNDS[name].out))
            except (OSError, ValueError) as error:
                self._fault("lost", name, str(error))
            else:
                self._kept(name, before, after)
                before = after

    def shared(self, name: str) -> None:
        """Several processes make one sweep, of which one is killed."""
        children = [ROUNDS[name].start() for _ in range(3)]
        time.sleep(self.draw.uniform(0.0, self.seconds[name]))
        children[0].kill()
        self.events += [{"killed": name}, *[{"tried": "processes on one sweep"}] * 3]
        for child in children[1:]:
            self._ended(name, child, may_refuse=True)

    def full(self, name: str) -> None:
        """The disk holds no file larger than so much; afterwards it has room again."""
        largest = self.draw.choice((0, 100, 300, 1000, 3000, 5000, 10_000, 30_000))
        self._ended(name, ROUNDS[name].start(largest_file=largest), may_refuse=True)
        self.events.append({"tried": "full disks"})

    def rounds(self) -> Iterator[list[Event]]:
        """Without end: mostly kills, in between several processes and full disks. An undisturbed call is the last."""
        often = [name for name in self.only for _ in range(3 if name == "train" else 1)]
        while True:
            kills = [(self.killed, name) for name in self.draw.sample(often, len(often))]
            for disturb, name in (*kills, (self.shared, self.only[0]), (self.full, self.draw.choice(self.only))):
                self.events = []
                with self._folder(name) as out:
                    disturb(name)
                    if self._ended(name) == 0:
                        self._looked(name, out)
                yield self.events

    def _looked(self, name: str, out: Path) -> None:
        """What an undisturbed call leaves is what it left the first time."""
        found, wanted = made(out), self.reference[name]
        self._kept(name, wanted, found)
        left = [str(path) for path in out.rglob(".*.partial") if name in ("train", "evaluate")]
        for kind, paths in (("doubled", found.keys() - wanted.keys()), ("left behind", left)):
            if paths:
                self._fault(kind, name, ", ".join(paths))


def attacks(seed: int, only: tuple[str, ...] = tuple(ROUNDS)) -> Iterator[list[Event]]:
    """What each round tried and found, in a folder of this process."""
    os.environ["RCAD_CACHE"] = str(Path("cache").absolute())
    # So often that most kills meet a checkpoint, or the middle of one.
    Place.of = functools.partial(Place.of, checkpoint_seconds=0.01)  # type: ignore[method-assign]
    yield from Attack(seed, only).rounds()
