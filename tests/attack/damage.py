"""Every kind of damage on every kind of file: what the next command makes of it, and what heals it.

`matrix` tries all of them and gives what the table in docs/damage.md shows; a loop of random ones calls `attack`.
`PYTHONPATH=src:tests:tests/support python -m attack.damage` writes the table's record anew.
"""

import contextlib
import json
import random
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from contracts.house import called, workplace
from made import images, saved
from rcad.runs.store import Store
from rcad.train import run as engine
from rcad.train.place import Place

RECORD = Path(__file__).with_name("damage.json")


def tail(content: bytes, chance: random.Random, filled: Callable[[int], bytes]) -> bytes:
    at = chance.randrange(len(content) // 3, len(content) - 1)
    return content[:at] + filled(len(content) - at)


def one_bit(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(changed)


KINDS: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "half": lambda content, chance: content[: len(content) // 2],
    "empty": lambda content, chance: b"",
    "zeros": lambda content, chance: bytes(len(content)),
    "zero tail": lambda content, chance: tail(content, chance, bytes),
    "garbage tail": lambda content, chance: tail(content, chance, chance.randbytes),
    "one bit": one_bit,
    "missing": lambda content, chance: None,
    "a folder in its place": lambda content, chance: None,
}
"""What a file holds after a damage; None where it is no longer there."""


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Damage a file in this way."""
    content = KINDS[kind](path.read_bytes(), chance)
    if content is not None:
        path.write_bytes(content)
        return
    path.unlink()
    if kind != "missing":
        path.mkdir()


TRAIN = ("train", "--data", "digits[:120]", "--method", "erm", "--epochs", "2", "--set", "model.width=4", "--quiet")
IMAGES = ("train", "--data", "images", "--method", "erm", "--epochs", "1", "--set", "model.width=4", "--quiet")
EVALUATE = ("evaluate", "all", "--suite", "calibration", "--quiet", "--out", "report")


@dataclass(frozen=True)
class File:
    """A kind of file, as a pattern that fits one; the command that meets it first; how it comes back, in words.

    `healer` must be run then, where the command names it; None for the command that it names itself.
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
        with workplace(self.whole):
            _make()

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            place = shutil.copytree(self.whole, Path(name) / "place")
            with workplace(place):
                yield place


def _make() -> None:
    images()
    for words in (TRAIN, EVALUATE, ("runs", "pack", "runs", "--out", "packed/study.jsonl.gz")):
        assert called(*words).code == 0
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
    assert called(*IMAGES, "--runs", "imaged").code == 0


class Outcome(NamedTuple):
    """What became of one damage: "healed" by the next command, or "named" by it with the command that heals.

    It is "harmless" where the file still says the same, as after a flipped bit in an exponent's letter.
    """

    how: str
    command: str


def attack(whole: Workplace, file: str, kind: str, chance: random.Random) -> Outcome:
    """Damage a copy, follow what the commands say, and see that all is as it was: else an AssertionError."""
    about = FILES[file]
    with whole.copy() as place:
        (path,) = place.glob(about.path)
        damage(path, kind, chance)
        said = called(*about.command)
        assert said.code in (0, 2), said
        assert all(line.startswith("rcad: ") for line in said.err.splitlines()), said
        assert "unexpected" not in said.err, said
        words = " ".join(_plain(about.command))
        named = re.search(r"(?:to make it again|to (?:mend|repair) it): (rcad runs verify[^,\n]*)", said.err)
        if named or said.code:
            how = "named"
            healer = shlex.split(named[1])[1:] if named else list(about.healer or ())
            assert named or (healer and " ".join(["rcad", *healer[:2]]) in said.err), said
            mended = called(*healer)
            assert mended.code == 0, (said, mended)
            words = " ".join(_plain(healer))
            assert called(*about.command).code == 0
        else:
            # What nobody could have missed is made again without a word.
            silent = kind in ("missing", "a folder in its place") or {"cache", "checkpoint"} & set(path.parts)
            how = "healed" if about.healer is None and (said.err or silent) else "harmless"
        _as_it_was(whole.whole, place)
        return Outcome(how, f"rcad {words}")


def _plain(words: Sequence[str]) -> list[str]:
    """A command as the table shows it: `rcad train`, without what belongs to this run."""
    if words[0] in ("train", "evaluate"):
        return [words[0]]
    return ["ID" if re.fullmatch("[0-9a-f]{16}", word) else word for word in words]


def _as_it_was(whole: Path, place: Path) -> None:
    """Records, weights and evaluations are those of before."""
    for theirs in whole.glob("runs/*"):
        ours = place / "runs" / theirs.name
        before, after = (saved(one / "record.json") for one in (theirs, ours))
        for key in ("metrics", "status", "splits", "data_sha256", "config", "resolved"):
            assert before[key] == after[key], key
        weights = (theirs / "model.safetensors").read_bytes()
        assert (ours / "model.safetensors").read_bytes() == weights
        rows = [json.loads(line) for line in (ours / "log.jsonl").read_text().splitlines()]
        assert rows == after["epochs"]
        old, new = (saved(one / "evaluation/calibration.json")["numbers"] for one in (theirs, ours))
        assert old == new
        resumed = place / "stopped" / theirs.name / "model.safetensors"
        assert not resumed.exists() or resumed.read_bytes() == weights
    for made in place.glob("new/*/model.safetensors"):
        assert made.read_bytes() == (whole / "imaged" / made.parent.name / made.name).read_bytes()


def matrix(folder: Path, seed: int = 0) -> dict[str, Any]:
    """By kind of file and kind of damage, what became of it."""
    whole, chance = Workplace(folder), random.Random(seed)
    found: dict[str, Any] = {}
    for file, about in FILES.items():
        row = found[file] = {"heals": about.heals, "damages": {}}
        for kind in KINDS:
            while (one := attack(whole, file, kind, chance)).how == "harmless":
                pass
            row["damages"][kind] = one._asdict()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        text = json.dumps(matrix(Path(name)), indent=1)
        RECORD.write_text(re.sub(r"\n {4}|\n {3}(?=})", " ", text) + "\n", encoding="utf-8")  # a line for each damage
