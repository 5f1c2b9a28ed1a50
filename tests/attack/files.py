"""Every kind of file that rcad reads, whole and small, with the commands that read it."""

import contextlib
import io
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from attack import mutants
from attack.mutants import Mutate
from contracts.house import Result, called
from made import images, png, table, tar
from rcad.errors import InputError
from rcad.study.compare import Comparison
from rcad.study.tune import Tuning
from rcad.train.stop import Stop

RESULTS = Path(__file__).parents[2] / "results"
TRAIN = "train --data my.csv --target colour --quiet"
FEW = f"{TRAIN} --epochs 2 --method erm"
BEGUN = f"{TRAIN} --epochs 4 --method rcad(alpha=0.5) --runs begun --set train.batch_size=8"
IMPORT = "data import images"


class Kind(NamedTuple):
    """A kind of file, how its mutants are made, and the commands of which a mutant meets one.

    `resets` are put back after each mutant; `weight` says how often it has its turn, relative to the others.
    """

    file: str
    mutate: Mutate
    commands: tuple[str, ...]
    resets: tuple[str, ...] = ()
    weight: float = 10


def _made(words: str) -> None:
    done = called(*words.split())
    assert done.code == 0, (words, done)


def workshop() -> dict[str, Kind]:
    """Make the files in the current folder; the kinds by name."""
    os.environ["RCAD_CACHE"] = str(Path("cache").absolute())
    os.environ["RCAD_DATA"] = str(Path("data").absolute())
    Path("my.csv").write_text(table())
    _made(FEW)
    finished = next(path.parent.name for path in Path("runs").glob("*/record.json"))
    _made(f"evaluate {finished} --suite calibration --out evaluation")
    _made("runs pack runs --out study.jsonl.gz")
    begun, go_on = f"begun/{_begun()}", ((BEGUN,), ("begun",))
    images()
    _made(IMPORT)
    cached = next(Path("cache/images").glob("folders-*"))
    return {
        **_runs(f"runs/{finished}", finished),
        "checkpoint": Kind(f"{begun}/checkpoint/last.safetensors", mutants.as_tensors, *go_on, 5),
        "log of a run under way": Kind(f"{begun}/log.jsonl", mutants.as_lines, *go_on, 4),
        "record of a run under way": Kind(f"{begun}/record.json", mutants.as_json, *go_on, 4),
        **_own_data(),
        "cache manifest": Kind(f"{cached}/manifest.json", mutants.as_manifest, (IMPORT, "data verify"), ("cache",)),
        "cached images": Kind(f"{cached}/train_x.npy", mutants.as_array, (IMPORT, "data verify"), ("cache",)),
        **_compared(),
        **_uci(),
        **_studies(),
        **_estimator(),
    }


def _begun() -> str:
    """A run that was stopped after a few steps, with a checkpoint."""
    looks = itertools.count()
    soon = mock.patch.object(Stop, "is_set", side_effect=lambda: next(looks) > 10)
    with soon, mock.patch("rcad.train.scheduler.stopping", return_value=contextlib.nullcontext(Stop())):
        called(*BEGUN.split())
    return next(path.parent.parent.name for path in Path("begun").glob("*/checkpoint/last.safetensors"))


def _runs(folder: str, run: str) -> dict[str, Kind]:
    predict, again = f"predict {run} --data my.csv --out p.csv", "runs pack runs --out again.jsonl.gz --force"
    show, evaluate = f"runs show {run}", f"evaluate {run} --suite calibration"
    listed = ("runs list", show, "runs list --json", f"{show} --json", "runs export all.csv --force")
    read = (*listed, FEW, evaluate, again, predict)
    packed = ("runs list --runs study.jsonl.gz", "runs unpack study.jsonl.gz --out unpacked")
    from_weights = f"{FEW} --set model.weights={folder}/model.safetensors --runs from"
    weighed = (predict, f"{evaluate} --again --out evaluation", from_weights)
    evaluated = (f"{evaluate} --out evaluation", again)
    config = f"train --config {folder}/config.toml"
    asked = (f"{config} --dry-run", f"{config} --dry-run --json")
    asked += (f"{config} --runs from --epochs 1 --method erm --data my.csv --quiet",)
    report, measured = "evaluation/evaluation.json", f"{folder}/evaluation/calibration.json"
    return {
        "record": Kind(f"{folder}/record.json", mutants.as_json, read, ("runs",), 20),
        "log": Kind(f"{folder}/log.jsonl", mutants.as_lines, (show, FEW), ("runs",), 4),
        "config of a run": Kind(f"{folder}/config.toml", mutants.as_toml, read[:2], ("runs",), 4),
        "weights": Kind(f"{folder}/model.safetensors", mutants.as_tensors, weighed, ("runs", "from"), 8),
        "evaluation": Kind(measured, mutants.as_json, evaluated, ("runs", "evaluation"), 4),
        "evaluation report": Kind(report, mutants.as_json, evaluated[:1], ("evaluation",), 1),
        "pack": Kind("study.jsonl.gz", mutants.as_pack, packed, ("unpacked",), 10),
        "config": Kind(f"{folder}/config.toml", mutants.as_toml, asked, ("runs", "from"), 15),
    }


def _own_data() -> dict[str, Kind]:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq
    import torch
    from PIL import Image

    rows = pa.csv.read_csv("my.csv")
    pq.write_table(rows, "my.parquet")
    pq.write_table(pa.table({"img": [{"bytes": png(seed=i)} for i in range(8)], "label": [0, 1] * 4}), "photos.parquet")
    numbers = np.random.default_rng(0).normal(size=(60, 2))
    np.save("my.npy", np.column_stack([numbers, numbers.sum(1) > 0]))
    np.savez("my.npz", x=numbers.astype(np.float32), y=(numbers.sum(1) > 0).astype(np.int64))
    np.savez_compressed("pixels.npz", x_train=np.zeros((6, 5, 5), np.uint8) + 9, y_train=np.array(list("ababab")))
    tar("a.tar.gz", {f"a/{c}/{i}.png": png(seed=i) for c in "xy" for i in range(2)})
    shutil.make_archive("b", "zip", "images")
    for suffix in ("bmp", "jpg", "gif", "tif", "webp", "ppm"):
        Image.open(io.BytesIO(png(seed=7))).save(f"images/class0/0.{suffix}")
    labels = [f"{i}.png,{'ab'[i % 2]}" for i in range(4)]
    Path("flat").mkdir(exist_ok=True)
    for i in range(4):
        Path(f"flat/{i}.png").write_bytes(png(seed=i))
    Path("flat/labels.csv").write_text("\n".join(["file,label", *labels]) + "\n")
    torch.save({"head.weight": torch.zeros(3), "x": torch.ones(2, 2)}, "w.pt")

    def imported(file: str, more: str = "") -> tuple[str, str]:
        return f"data import {file} {more}", f"data import {file} {more} --json"

    target = "--target colour"
    tables = (*imported("my.csv", target), f"{FEW} --runs from", f"suggest-alpha --data my.csv {target}")
    kinds = {
        "CSV": Kind("my.csv", mutants.as_text, tables, ("from",), 20),
        "Parquet": Kind("my.parquet", mutants.raw, imported("my.parquet", target), (), 10),
        "Parquet images": Kind("photos.parquet", mutants.raw, imported("photos.parquet"), ("cache",), 10),
        "npy": Kind("my.npy", mutants.as_array, imported("my.npy", "--target 2"), (), 10),
        "npz": Kind("my.npz", mutants.as_zip, imported("my.npz"), (), 10),
        "npz images": Kind("pixels.npz", mutants.as_zip, imported("pixels.npz"), (), 8),
        "tar": Kind("a.tar.gz", mutants.as_tar, imported("a.tar.gz"), ("cache",), 10),
        "zip": Kind("b.zip", mutants.as_zip, imported("b.zip"), ("cache",), 8),
        "labels": Kind("flat/labels.csv", mutants.as_text, imported("flat"), ("cache",), 6),
        "PyTorch weights": Kind("w.pt", mutants.as_zip, (f"{FEW} --set model.weights=w.pt --runs from",), ("from",), 6),
    }
    for suffix in ("png", "bmp", "jpg", "gif", "tif", "webp", "ppm"):
        read = (IMPORT, f"{IMPORT} --skip-bad")
        kinds[f"image {suffix}"] = Kind(f"images/class0/0.{suffix}", mutants.raw, read, ("images", "cache"), 3)
    return kinds


def _studies() -> dict[str, Kind]:
    """Records of the paper's studies, as committed, and of an evaluation, one to a folder of results."""
    kinds = {}
    names = "T1/T1 F1/F1 alpha/alpha moons/moons moons/boundaries uci/uci T4/T4-tuned-small_cnn"
    for path in [*names.split(), "benchmarks/step_time_cpu", "benchmarks/scaling_h200", "./evaluation"]:
        folder, name = path.split("/")
        file = Path(f"study-{name}/{folder}/{name}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("evaluation/evaluation.json" if folder == "." else RESULTS / folder / f"{name}.json", file)
        out = f"study-{name}"
        kinds[f"study {name}, listed"] = Kind(str(file), mutants.as_json, (f"paper status --out {out}",), (), 1)
        kinds[f"study {name}, shown"] = Kind(
            str(file), mutants.as_json, (f"paper report --results {out} --out report-{name}",), (), 0.3
        )
    return kinds


def _compared() -> dict[str, Kind]:
    """What `compare` and `tune` leave: the same command reads it, and a program."""
    few = "--data my.csv --target colour --epochs 1 --quiet --budget 2"
    compare = f"compare {few} --methods erm,rcad --no-controls --seeds 3"
    tune = f"tune {few} --method rcad"
    kinds = {}
    for words, name, file in ((compare, "comparison", "compare"), (tune, "search", "rcad")):
        _made(f"{words} --out {name}")
        commands = (f"{words} --out {name}", name, name, name)
        kinds[name] = Kind(f"{name}/{file}.json", mutants.as_json, commands, (name,), 3)
    return kinds


def _uci() -> dict[str, Kind]:
    """A set of UCI's with one of its splits."""
    folder = Path("data/uci/yacht")
    folder.mkdir(parents=True)
    rows = np.random.default_rng(0).normal(size=(30, 3))
    np.savetxt(folder / "data.txt", rows)
    parts = {"features": (0, 1), "target": (2,), "train_0": range(3, 30), "test_0": range(3)}
    for name, numbers in parts.items():
        np.savetxt(folder / f"index_{name}.txt", np.array(numbers), fmt="%d")
    (folder / "n_splits.txt").write_text("1\n")
    train = "train --data yacht --method erm --epochs 1 --quiet --runs from"
    commands = (train, f"{train} --set data.split=0")
    return {
        f"UCI {name}": Kind(f"{folder}/{name}.txt", mutants.as_text, commands, ("from",), 2)
        for name in ("data", "index_train_0", "n_splits")
    }


def _estimator() -> dict[str, Kind]:
    from rcad.integrations.sklearn import RCADClassifier

    numbers = np.random.default_rng(0).normal(size=(40, 3))
    made = RCADClassifier(hidden_layer_sizes=(4,), max_iter=2).fit(numbers, np.where(numbers[:, 0] > 0, "a", "b"))
    made.save("estimator.safetensors")
    return {"scikit-learn state": Kind("estimator.safetensors", mutants.as_tensors, ("estimator",), (), 10)}


def _predict() -> None:
    from rcad.integrations.sklearn import RCADClassifier

    RCADClassifier.load("estimator.safetensors").predict_proba(np.zeros((2, 3)))


PROGRAMS: dict[str, Callable[[], object]] = {
    "estimator": _predict,
    "comparison": lambda: str(Comparison.read("comparison/compare.json")),
    "search": lambda: str(Tuning.read("search/rcad.json")),
}
"""What programs do with files of ours."""


def program(name: str) -> Result:
    try:
        PROGRAMS[name]()
    except InputError as error:
        return Result(2, "", f"rcad: {error}\n")
    return Result(0, "", "")
