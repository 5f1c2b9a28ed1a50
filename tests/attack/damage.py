"""Every kind of damage on every kind of file: what the next command makes of it, and what heals it.

`matrix` tries all of them and gives what the table in docs/damage.md shows; a loop of random ones calls `attack`.
`python tests/attack/damage.py` writes the table's record anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("damage.json")


KINDS = ("half", "empty", "zeros", "zero tail", "garbage tail", "one bit", "missing", "a folder in its place")


def damaged(content: bytes, kind: str, chance: random.Random) -> bytes | None:
    """What a file holds after this damage; None where it is no longer there."""
    if kind == "half":
        return content[: len(content) // 2]
    if kind == "empty":
        return b""
    if kind == "zeros":
        return bytes(len(content))
    if kind.endswith("tail"):
        at = chance.randrange(len(content) // 3, len(content) - 1)
        return content[:at] + (bytes if kind == "zero tail" else chance.randbytes)(len(content) - at)
    if kind == "one bit":
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        return bytes(changed)
    return None


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Damage a file in this way."""
    content = damaged(path.read_bytes(), kind, chance)
    if content is not None:
        path.write_bytes(content)
        return
    path.unlink()
    if kind != "missing":
        path.mkdir()


class Said(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


def rcad(*words: object) -> Said:
    """The command in this process."""
    from rcad.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(word) for word in words])
    return Said(code, out.getvalue(), err.getvalue())


TRAIN = ("train", "--data", "digits[:120]", "--method", "erm", "--epochs", "2", "--set", "model.width=4", "--quiet")
IMAGES = ("train", "--data", "images", "--method", "erm", "--epochs", "1", "--set", "model.width=4", "--quiet")
EVALUATE = ("evaluate", "all", "--suite", "calibration", "--quiet", "--out", "report")


@dataclass(frozen=True)
class File:
    """A kind of file, and the command that meets it first.

    Args:
        path: below a workplace, as a pattern that fits one file.
        command: what is run after the damage.
        healer: what must be run then, where the command names it; None for the command that it names itself.
        heals: how it comes back, in words of the table.
    """

    path: str
    command: tuple[str, ...]
    heals: str
    healer: tuple[str, ...] | None = None


FILES: dict[str, File] = {
    "checkpoint": File(
        "stopped/*/checkpoint/last.safetensors", (*TRAIN, "--runs", "stopped"), "goes on from the one before it"
    ),
    "record": File("runs/*/record.json", TRAIN, "trained again"),
    "config": File("runs/*/config.toml", ("runs", "verify"), "written again from the record"),
    "log": File("runs/*/log.jsonl", TRAIN, "written again from the record"),
    "weights": File("runs/*/model.safetensors", TRAIN, "trained again"),
    "evaluation": File("runs/*/evaluation/calibration.json", EVALUATE, "measured again"),
    "cache": File("cache/images/*/train_x.npy", (*IMAGES, "--runs", "new"), "decoded again from the source"),
    "packed study": File(
        "packed/study.jsonl.gz",
        ("runs", "list", "--runs", "packed/study.jsonl.gz"),
        "packed again from the runs",
        ("runs", "pack", "runs", "--out", "packed/study.jsonl.gz", "--force"),
    ),
}


class Workplace:
    """A folder with one of each kind of file, made once and copied for each damage."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.whole = folder, folder / "whole"
        self.whole.mkdir(parents=True)
        with self.inside(self.whole):
            _make()

    @contextlib.contextmanager
    def inside(self, folder: Path) -> Iterator[None]:
        with contextlib.chdir(folder), patch.dict(os.environ, {"RCAD_CACHE": "cache"}):
            for name in ("RCAD_DATA", "RCAD_TRACEBACK", "COLUMNS", "FORCE_COLOR"):
                os.environ.pop(name, None)
            yield

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            place = Path(name) / "place"
            shutil.copytree(self.whole, place)
            with self.inside(place):
                yield place


def _make() -> None:
    from made import images
    from rcad.runs.store import Store
    from rcad.train import run as engine
    from rcad.train.place import Place

    images()
    assert rcad(*TRAIN).code == 0
    assert rcad(*EVALUATE).code == 0
    assert rcad("runs", "pack", "runs", "--out", "packed/study.jsonl.gz").code == 0
    saves, save = [0], engine.save_trainer

    def stop_after(trainer: Any, path: Path) -> None:
        save(trainer, path)
        saves[0] += 1
        if saves[0] == 3:
            raise KeyboardInterrupt

    (record,) = Store.open("runs").records()
    fast = patch.multiple(engine, SAVING_SHARE=1e9, save_trainer=stop_after)
    with fast, contextlib.suppress(KeyboardInterrupt):
        engine.run(record.config, Place(Store.open("stopped"), checkpoint_seconds=0.0))
    assert saves == [3]
    assert rcad(*IMAGES, "--runs", "imaged").code == 0


class Outcome(NamedTuple):
    """What became of one damage.

    Args:
        how: "healed" by the next command; "named" by it, with the command that heals; "harmless" where the file still
            says the same, as after a flipped bit in an exponent's letter.
        command: the one that heals, without the run's id.
    """

    how: str
    command: str


def attack(workplace: Workplace, file: str, kind: str, chance: random.Random) -> Outcome:
    """Damage a copy, follow what the commands say, and see that all is as it was: else an AssertionError."""
    about = FILES[file]
    with workplace.copy() as place:
        (path,) = place.glob(about.path)
        damage(path, kind, chance)
        said = rcad(*about.command)
        _one_line(said)
        words = " ".join(_plain(about.command))
        named = re.search(r"(?:to make it again|to (?:mend|repair) it): (rcad runs verify[^,\n]*)", said.err)
        if named or about.healer is not None:
            if said.code == 0 and named is None:
                how = "harmless"
            else:
                how = "named"
                healer = shlex.split(named[1])[1:] if named else list(about.healer or ())
                assert named or " ".join(["rcad", *healer[:2]]) in said.err, said
                mended = rcad(*healer)
                assert mended.code == 0, (said, mended)
                words = " ".join(_plain(healer))
                assert rcad(*about.command).code == 0
        else:
            assert said.code == 0, said
            how = "healed" if said.err or _touched(path, kind) else "harmless"
        _as_it_was(workplace.whole, place)
        return Outcome(how, f"rcad {words}")


def _plain(words: tuple[str, ...] | list[str]) -> list[str]:
    """A command as the table shows it: `rcad train`, without what belongs to this run."""
    if words[0] in ("train", "evaluate"):
        return [words[0]]
    return ["ID" if re.fullmatch("[0-9a-f]{16}", word) else word for word in words]


def _one_line(said: Said) -> None:
    assert said.code in (0, 2), said
    assert "unexpected" not in said.err, said
    assert "Traceback" not in said.err, said
    assert all(line.startswith("rcad: ") for line in said.err.splitlines()), said


def _touched(path: Path, kind: str) -> bool:
    """A file that is made again without a word, since nobody could have missed it."""
    return kind in ("missing", "a folder in its place") or "cache" in path.parts or "checkpoint" in path.parts


def _as_it_was(whole: Path, place: Path) -> None:
    """Records, weights and evaluations are those of before."""
    for record in sorted(whole.glob("runs/*/record.json")):
        run = record.parent.name
        before, after = (_read(one / "runs" / run / "record.json") for one in (whole, place))
        for key in ("metrics", "status", "splits", "data_sha256", "config", "resolved"):
            assert before[key] == after[key], key
        ours = place / "runs" / run
        assert (ours / "model.safetensors").read_bytes() == (record.parent / "model.safetensors").read_bytes()
        rows = [json.loads(line) for line in (ours / "log.jsonl").read_text().splitlines()]
        assert rows == after["epochs"]
        old, new = (_read(one / "evaluation" / "calibration.json")["numbers"] for one in (record.parent, ours))
        assert old == new
        resumed = place / "stopped" / run / "model.safetensors"
        assert not resumed.exists() or resumed.read_bytes() == (ours / "model.safetensors").read_bytes()
    for weights in place.glob("new/*/model.safetensors"):
        assert weights.read_bytes() == (whole / "imaged" / weights.parent.name / weights.name).read_bytes()


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def matrix(folder: Path, seed: int = 0) -> dict[str, Any]:
    """By kind of file and kind of damage, what became of it."""
    workplace, chance = Workplace(folder), random.Random(seed)
    found = {}
    for file, about in FILES.items():
        row = {kind: _not_harmless(workplace, file, kind, chance) for kind in KINDS}
        found[file] = {"heals": about.heals, "damages": {kind: one._asdict() for kind, one in row.items()}}
    return found


def _not_harmless(workplace: Workplace, file: str, kind: str, chance: random.Random) -> Outcome:
    while (found := attack(workplace, file, kind, chance)).how == "harmless":
        pass
    return found


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]
    with tempfile.TemporaryDirectory() as name:
        text = json.dumps(matrix(Path(name)), indent=1)
        RECORD.write_text(re.sub(r"\n {4}|\n {3}(?=})", " ", text) + "\n", encoding="utf-8")  # a line for each damage
