"""Commands that are killed at random moments, share a folder with others, or find the disk full: nothing is lost.

Every round makes in the end what one undisturbed call makes: the same records, bit for bit but for times, the same
weights, and no run or epoch twice.
"""

import contextlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from safetensors.numpy import load_file

from attack.files import RESULTS
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
    """A command that is disturbed, the folder that it fills, and those that are there before it starts."""

    words: list[str]
    out: str
    given: tuple[str, ...] = ()


ROUNDS = {
    name: Round(line.split(), out, tuple(given))
    for name, out, line, *given in (
        ("train", "runs", f"train {OWN} --method rcad --epochs 12 --seeds 3 --batch-size 8"),
        ("tune", "out", f"tune {OWN} --method rcad --budget 3 --epochs 4 --out out"),
        ("compare", "out", f"compare {OWN} --methods erm,rcad --budget 2 --seeds 3 --epochs 3 --out out"),
        ("evaluate", "done", "evaluate all --suite calibration,ood --runs done --out seen", "done"),
        ("paper", "out", "paper run F7 --scale smoke --out out"),
        ("report", "out", "paper report --results records --out out", "records"),
    )
}


def plain(value: Any) -> Any:
    """Parsed JSON without what differs from one call to the next."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in TIMES}
    return [plain(item) for item in value] if isinstance(value, list) else value


def made(folder: Path) -> dict[str, Any]:
    """What a command has left, as far as it must be the same every time."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name.startswith(".") or not path.is_file() or path.name in ("lock", "owner"):
            continue
        if path.suffix == ".json":
            found[name] = plain(loads(path.read_text(), name))
        elif path.name == "log.jsonl":
            found[name] = plain(read_log(path))
        elif path.name == "model.safetensors":
            found[name] = {key: values.tobytes() for key, values in load_file(path).items()}
        else:
            found[name] = path.read_bytes() if path.suffix == ".toml" else "there"
    return found


def finished(folder: Path) -> dict[str, Any]:
    """The final records below a folder, whole."""
    records = {str(path): saved(path) for path in folder.rglob("record.json")}
    return {path: record for path, record in records.items() if record["status"] == "done"}


class Attack:
    """Rounds of disturbed commands, and what was tried; what goes wrong is printed."""

    def __init__(self, seed: int, only: tuple[str, ...] = tuple(ROUNDS)) -> None:
        self.draw, self.only = Random(seed), only
        self.kills: Counter[str] = Counter()
        self.tried: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.reference: dict[str, Any] = {}

    def prepare(self) -> None:
        """Undisturbed calls, which load all that is needed and say what must come out, and how long it takes."""
        Path("my.csv").write_text(table())
        (Path("records") / "alpha").mkdir(parents=True)
        shutil.copy(RESULTS / "alpha" / "alpha.json", "records/alpha/alpha.json")
        for method in ("erm", "rcad"):
            assert run(f"train {OWN} --epochs 1 --runs done --quiet --method {method}".split()) == 0
        for name in self.only:
            words, out, inputs = ROUNDS[name]
            with self._folder(name):
                # In this process: what it imports, its children need not.
                assert run(words) == 0, name
                shutil.rmtree(out)
                for folder in inputs:
                    shutil.copytree(f"../{folder}", folder, dirs_exist_ok=True)
                started, child = time.monotonic(), Forked(*words)
                code = child.wait()
                assert code == 0, (name, code, child.said("err"))
                self.seconds[name], self.reference[name] = time.monotonic() - started, made(Path(out))

    @contextlib.contextmanager
    def _folder(self, name: str) -> Iterator[None]:
        """Work in a new folder that holds what the command needs."""
        folder = Path(f"round-{name}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy("my.csv", folder)
        for given in ROUNDS[name].given:
            shutil.copytree(given, folder / given)
        with contextlib.chdir(folder):
            yield

    @contextlib.contextmanager
    def _round(self, name: str) -> Iterator[None]:
        """Disturb the command inside; an undisturbed call has the last word."""
        with self._folder(name):
            yield
            child = Forked(*ROUNDS[name].words)
            self._end(name, child, child.wait())

    def _fault(self, kind: str, name: str, what: str) -> None:
        print(json.dumps({"fault": kind, "command": name, "what": what[:600]}), flush=True)

    def _looked(self, name: str, before: dict[str, Any]) -> dict[str, Any]:
        """After a kill: what was done before is there as it was."""
        try:
            after = finished(Path(ROUNDS[name].out))
        except (OSError, ValueError) as error:
            self._fault("damaged", name, str(error))
            return before
        for path, record in before.items():
            if after.get(path) != record:
                self._fault("different" if path in after else "lost", name, path)
        return after

    def _end(self, name: str, child: Forked, code: int | None) -> None:
        """What an undisturbed call leaves is what it left the first time."""
        if code != 0:
            broken = "crash" if code is None or code < 0 else "refused"
            kind = "exception" if code == 1 or "unexpected" in child.said("err") else broken
            self._fault(kind, name, f"exit code {code}: {child.said('err')[-400:]}")
            return
        found, wanted = made(Path(ROUNDS[name].out)), self.reference[name]
        for path in wanted.keys() | found.keys():
            if found.get(path) != wanted.get(path):
                kind = "lost" if path not in found else "doubled" if path not in wanted else "different"
                self._fault(kind, name, path)
        left = [str(path) for path in Path(ROUNDS[name].out).rglob(".*.partial")]
        if left and name in ("train", "evaluate"):
            self._fault("left behind", name, ", ".join(left))

    def killed(self, name: str) -> None:
        """A round in which the command is killed until it is done."""
        before: dict[str, Any] = {}
        with self._round(name):
            for _ in range(MOST_KILLS):
                child = Forked(*ROUNDS[name].words)
                if child.wait(self.draw.uniform(0.0, 0.6 * self.seconds[name])) is not None:
                    break
                child.kill()
                self.kills[name] += 1
                before = self._looked(name, before)

    def shared(self, name: str = "train") -> None:
        """A round of several processes on one sweep, of which one is killed."""
        with self._round(name):
            children = [Forked(*ROUNDS[name].words) for _ in range(3)]
            time.sleep(self.draw.uniform(0.0, self.seconds[name]))
            children[0].kill()
            self.kills[name] += 1
            for child in children[1:]:
                code = child.wait()
                if code not in (0, 2) or "unexpected" in child.said("err"):
                    kind = "exception" if code == 1 else "crash"
                    self._fault(kind, name, f"beside others, {code}: {child.said('err')[-300:]}")
        self.tried["processes on one sweep"] += 3

    def full(self, name: str) -> None:
        """A round on a disk that holds no file larger than so much, then on one with room again."""
        with self._round(name):
            largest = self.draw.choice((0, 100, 300, 1000, 3000, 5000, 10_000, 30_000))
            child = Forked(*ROUNDS[name].words, largest_file=largest)
            code = child.wait()
            lines = [line for line in child.said("err").splitlines() if line.startswith("rcad: expected")]
            if code not in (0, 2) or (code == 2 and not lines):
                self._fault(
                    "exception" if code == 1 else "crash", name, f"a full disk, {code}: {child.said('err')[-400:]}"
                )
        self.tried["full disks"] += 1

    def rounds(self) -> Iterator[Callable[[], None]]:
        """Without end: mostly kills, in between several processes and full disks."""
        often = [name for name in self.only for _ in range(3 if name == "train" else 1)]
        while True:
            for name in self.draw.sample(often, len(often)):
                yield lambda name=name: self.killed(name)  # type: ignore[misc]
            yield self.shared if "train" in self.only else lambda: None
            yield lambda: self.full(self.draw.choice(self.only))


def main(
    folder: str, *, until: float, seed: int = 0, kills: int = 10**9, only: tuple[str, ...] = tuple(ROUNDS)
) -> None:
    """Attack in a new folder until this second since the epoch; a line of JSON for each fault, and one at the end."""
    Path(folder).mkdir(parents=True)
    os.chdir(folder)
    os.environ["RCAD_CACHE"] = str(Path("cache").absolute())
    # So often that most kills meet a checkpoint, or the middle of one.
    place_of = Place.of
    Place.of = staticmethod(  # type: ignore[method-assign]
        lambda runs, **options: replace(place_of(runs, **options), checkpoint_seconds=0.01)
    )
    attack = Attack(seed, only)
    attack.prepare()
    for disturb in attack.rounds():
        if time.time() >= until or attack.kills.total() >= kills:
            break
        disturb()
    print(json.dumps({"tried": {"kills": attack.kills, **attack.tried}}), flush=True)
