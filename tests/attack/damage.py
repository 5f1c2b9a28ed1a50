"""Every kind of damage on every kind of file: what the next command makes of it, and what heals it.

`matrix` tries all of them and gives what the table in docs/damage.md shows; a loop of random ones calls `attack`.
`PYTHONPATH=src:tests:tests/support python -m attack.damage` writes the table's record anew.
"""

import contextlib
import functools
import itertools
import json
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from contracts.house import called, workplace
from made import images, saved
from rcad.train import run as engine
from rcad.train.place import Place

RECORD = Path(__file__).with_name("damage.json")
KINDS = ("half", "empty", "zeros", "zero tail", "garbage tail", "one bit", "missing", "a folder in its place")
TRAIN = "train --data digits[:120] --method erm --epochs 2 --set model.width=4 --quiet"
IMAGES = "train --data images --method erm --epochs 1 --set model.width=4 --quiet"
EVALUATE = "evaluate all --suite calibration --quiet --out report"
STOPPED = f"{TRAIN} --runs stopped"
PACKED = "packed/study.jsonl.gz"
PACK = f"runs pack runs --out {PACKED}"


class File(NamedTuple):
    """A kind of file, as a pattern that fits one; the command that meets it first; how it comes back, in words.

    `healer` must be run then, where the command names it; empty for the command that it names itself.
    """

    path: str
    command: str
    heals: str
    healer: str = ""


FILES = {
    "checkpoint": File("stopped/*/checkpoint/last.safetensors", STOPPED, "goes on from the one before it"),
    "record": File("runs/*/record.json", TRAIN, "trained again"),
    "config": File("runs/*/config.toml", "runs verify", "written again from the record"),
    "log": File("runs/*/log.jsonl", TRAIN, "written again from the record"),
    "weights": File("runs/*/model.safetensors", TRAIN, "trained again"),
    "evaluation": File("runs/*/evaluation/calibration.json", EVALUATE, "measured again"),
    "cache": File("cache/images/*/train_x.npy", f"{IMAGES} --runs new", "decoded again from the source"),
    "packed study": File(PACKED, f"runs list --runs {PACKED}", "packed again from the runs", f"{PACK} --force"),
}


def damage(path: Path, kind: str, chance: Random) -> None:
    content = path.read_bytes()
    size = len(content)
    at, bit = chance.randrange(size // 3, size - 1), chance.randrange(8 * size)
    contents = {
        "half": content[: size // 2],
        "empty": b"",
        "zeros": bytes(size),
        "zero tail": content[:at] + bytes(size - at),
        "garbage tail": content[:at] + chance.randbytes(size - at),
        "one bit": (int.from_bytes(content, "little") ^ 1 << bit).to_bytes(size, "little"),
    }
    path.unlink()
    if kind in contents:
        path.write_bytes(contents[kind])
    elif kind != "missing":
        path.mkdir()


def stopped(words: str, most: int = 3) -> None:
    """Train until so many checkpoints are written."""
    save, saves = engine.save_trainer, itertools.count(1)

    def saving(trainer: Any, path: Path) -> None:
        save(trainer, path)
        if next(saves) == most:
            raise KeyboardInterrupt

    often = patch.object(Place, "of", functools.partial(Place.of, checkpoint_seconds=0.0))
    with often, patch.multiple(engine, SAVING_SHARE=1e9, save_trainer=saving), contextlib.suppress(KeyboardInterrupt):
        called(*words.split())
    assert next(saves) == most + 1


def make(whole: Path) -> Path:
    """A folder with one of each kind of file, which is copied for each damage."""
    with workplace(whole):
        images()
        for words in (TRAIN, EVALUATE, PACK, f"{IMAGES} --runs imaged"):
            assert called(*words.split()).code == 0
        stopped(STOPPED)
    return whole


def attack(whole: Path, file: str, kind: str, chance: Random) -> dict[str, str]:
    """Damage a copy, follow what the commands say, and see that all is as it was: else an AssertionError.

    The next command heals it, or names the command that does; it is harmless where the file still says the same.
    """
    about = FILES[file]
    words = about.command.split()
    with tempfile.TemporaryDirectory(dir=whole.parent) as name, workplace(Path(name) / "place") as place:
        shutil.copytree(whole, place, dirs_exist_ok=True)
        (path,) = place.glob(about.path)
        damage(path, kind, chance)
        said = called(*words)
        assert said.code in (0, 2), said
        assert all(line.startswith("rcad: ") for line in said.err.splitlines()), said
        assert "unexpected" not in said.err, said
        # What nobody could have missed is made again without a word.
        silent = kind in KINDS[-2:] or {"cache", "checkpoint"} & set(path.parts)
        how = "healed" if not about.healer and (said.err or silent) else "harmless"
        named = re.search(r"(?:to make it again|to (?:mend|repair) it): (rcad runs verify[^,\n]*)", said.err)
        if named or said.code:
            how, words = "named", shlex.split(named[1])[1:] if named else about.healer.split()
            assert words, said
            assert " ".join(["rcad", *words[:2]]) in said.err, said
            for healing in (words, about.command.split()):
                assert (mended := called(*healing)).code == 0, (said, mended)
        _as_it_was(whole, place)
    # As the table shows it: without what belongs to this run.
    words = words[:1] if words[0] in ("train", "evaluate") else words
    return {"how": how, "command": " ".join(["rcad", *(re.sub("^[0-9a-f]{16}$", "ID", word) for word in words)])}


def _as_it_was(whole: Path, place: Path) -> None:
    """Records, weights and evaluations are those of before."""
    for theirs in whole.glob("runs/*"):
        ours, weights = place / "runs" / theirs.name, (theirs / "model.safetensors").read_bytes()
        before, after = (saved(one / "record.json") for one in (theirs, ours))
        for key in ("metrics", "status", "splits", "data_sha256", "config", "resolved"):
            assert before[key] == after[key], key
        assert [json.loads(line) for line in (ours / "log.jsonl").read_text().splitlines()] == after["epochs"]
        old, new = (saved(one / "evaluation/calibration.json")["numbers"] for one in (theirs, ours))
        assert old == new
        assert {path.read_bytes() for path in place.glob(f"*/{theirs.name}/model.safetensors")} == {weights}
    for made in place.glob("new/*/model.safetensors"):
        assert made.read_bytes() == (whole / "imaged" / made.parent.name / made.name).read_bytes()


def matrix(folder: Path, seed: int = 0) -> dict[str, Any]:
    """By kind of file and kind of damage, what became of it."""
    whole, chance = make(folder / "whole"), Random(seed)
    found: dict[str, Any] = {file: {"heals": about.heals, "damages": {}} for file, about in FILES.items()}
    for file, kind in itertools.product(FILES, KINDS):
        while (one := attack(whole, file, kind, chance))["how"] == "harmless":
            pass
        found[file]["damages"][kind] = one
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        text = json.dumps(matrix(Path(name)), indent=1)
        RECORD.write_text(re.sub(r"\n {4}|\n {3}(?=})", " ", text) + "\n", encoding="utf-8")  # a line for each damage
