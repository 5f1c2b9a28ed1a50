"""Every kind of file that rcad reads, whole and small, with the commands that read it."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from PIL import Image

from attack import mutants
from attack.damage import stopped
from attack.mutants import Mutate
from contracts.house import RESULTS, called
from made import images, png, table, tar
from rcad.integrations.sklearn import RCADClassifier
from rcad.study.compare import Comparison
from rcad.study.tune import Tuning

TARGET = "--data my.csv --target colour"
FEW = f"train {TARGET} --quiet --epochs 2 --method erm"
FROM = f"{FEW} --runs from"
BEGUN = f"train {TARGET} --quiet --epochs 4 --method rcad(alpha=0.5) --runs begun --set train.batch_size=8"
IMPORT = "data import images"
PACK = "runs pack runs --out"
COMPARE = f"compare {TARGET} --epochs 1 --quiet --budget 2 --methods erm,rcad --no-controls --seeds 3 --out comparison"
TUNE = f"tune {TARGET} --epochs 1 --quiet --budget 2 --method rcad --out search"


class Kind(NamedTuple):
    """A kind of file, how its mutants are made, and the commands of which a mutant meets one.

    `resets` are put back after each mutant; `weight` says how often it has its turn, relative to the others.
    """

    file: str | Path
    mutate: Mutate
    commands: tuple[str, ...]
    resets: tuple[str, ...] = ()
    weight: float = 10


def workshop() -> dict[str, Kind]:
    """Make the files in the current folder; the kinds by name."""
    os.environ |= {"RCAD_CACHE": str(Path("cache").absolute()), "RCAD_DATA": str(Path("data").absolute())}
    Path("my.csv").write_text(table())
    images()
    stopped(BEGUN, 12)
    evaluate = "evaluate all --suite calibration --out evaluation"
    for words in (FEW, evaluate, f"{PACK} study.jsonl.gz", IMPORT, COMPARE, TUNE):
        done = called(*words.split())
        assert done.code == 0, (words, done)
    return {**_runs(), **_own_data(), **_studies(), **_others()}


def _runs() -> dict[str, Kind]:
    (folder,), (begun,) = Path("runs").glob("*/"), Path("begun").glob("*/")
    show, evaluate = f"runs show {folder.name}", f"evaluate {folder.name} --suite calibration"
    predict, again = f"predict {folder.name} --data my.csv --out p.csv", f"{PACK} again.jsonl.gz --force"
    listed = ("runs list", show, "runs list --json", f"{show} --json", "runs export all.csv --force")
    packed = ("runs list --runs study.jsonl.gz", "runs unpack study.jsonl.gz --out unpacked")
    warm = f"{FROM} --set model.weights={folder}/model.safetensors"
    weighed = (predict, f"{evaluate} --again --out evaluation", warm)
    evaluated = (f"{evaluate} --out evaluation", again)
    config = f"train --config {folder}/config.toml"
    small = f"{config} --runs from --epochs 1 --method erm --data my.csv --quiet"
    asked = (f"{config} --dry-run", f"{config} --dry-run --json", small)
    read, both, go_on = (*listed, FEW, evaluate, again, predict), ("runs", "evaluation"), ((BEGUN,), ("begun",))
    return {
        "record": Kind(folder / "record.json", mutants.as_json, read, ("runs",), 20),
        "log": Kind(folder / "log.jsonl", mutants.as_lines, (show, FEW), ("runs",), 4),
        "config of a run": Kind(folder / "config.toml", mutants.as_toml, read[:2], ("runs",), 4),
        "weights": Kind(folder / "model.safetensors", mutants.as_tensors, weighed, ("runs", "from"), 8),
        "evaluation": Kind(folder / "evaluation/calibration.json", mutants.as_json, evaluated, both, 4),
        "evaluation report": Kind("evaluation/evaluation.json", mutants.as_json, evaluated[:1], both[1:], 1),
        "pack": Kind("study.jsonl.gz", mutants.as_pack, packed, ("unpacked",)),
        "config": Kind(folder / "config.toml", mutants.as_toml, asked, ("runs", "from"), 15),
        "checkpoint": Kind(begun / "checkpoint/last.safetensors", mutants.as_tensors, *go_on, 5),
        "log of a run under way": Kind(begun / "log.jsonl", mutants.as_lines, *go_on, 4),
        "record of a run under way": Kind(begun / "record.json", mutants.as_json, *go_on, 4),
    }


def _own_data() -> dict[str, Kind]:
    pq.write_table(pa.csv.read_csv("my.csv"), "my.parquet")
    pq.write_table(pa.table({"img": [{"bytes": png(seed=i)} for i in range(8)], "label": [0, 1] * 4}), "photos.parquet")
    numbers = np.random.default_rng(0).normal(size=(60, 2))
    np.save("my.npy", np.column_stack([numbers, numbers.sum(1) > 0]))
    np.savez("my.npz", x=numbers.astype(np.float32), y=(numbers.sum(1) > 0).astype(np.int64))
    np.savez_compressed("pixels.npz", x_train=np.zeros((6, 5, 5), np.uint8) + 9, y_train=np.array(list("ababab")))
    tar("a.tar.gz", {f"a/{c}/{i}.png": png(seed=i) for c in "xy" for i in range(2)})
    shutil.make_archive("b", "zip", "images")
    shutil.copytree("images/class0", "flat")
    Path("flat/labels.csv").write_text("file,label\n" + "".join(f"{i}.png,{'ab'[i % 2]}\n" for i in range(8)))
    torch.save({"head.weight": torch.zeros(3), "x": torch.ones(2, 2)}, "w.pt")

    def imported(file: str, mutate: Mutate, more: str = "", weight: float = 10) -> Kind:
        words = f"data import {file.removesuffix('/labels.csv')} {more}"
        return Kind(file, mutate, (words, f"{words} --json"), ("cache",), weight)

    words = "data import my.csv --target colour"
    tables = (words, f"{words} --json", FROM, f"suggest-alpha {TARGET}")
    kinds = {
        "CSV": Kind("my.csv", mutants.as_text, tables, ("from",), 20),
        "Parquet": imported("my.parquet", mutants.raw, "--target colour"),
        "Parquet images": imported("photos.parquet", mutants.raw),
        "npy": imported("my.npy", mutants.as_array, "--target 2"),
        "npz": imported("my.npz", mutants.as_zip),
        "npz images": imported("pixels.npz", mutants.as_zip, "", 8),
        "tar": imported("a.tar.gz", mutants.as_tar),
        "zip": imported("b.zip", mutants.as_zip, "", 8),
        "labels": imported("flat/labels.csv", mutants.as_text, "", 6),
        "PyTorch weights": Kind("w.pt", mutants.as_zip, (f"{FROM} --set model.weights=w.pt",), ("from",), 6),
    }
    for suffix in ("png", "bmp", "jpg", "gif", "tif", "webp", "ppm"):
        file = f"images/class0/0.{suffix}"
        Image.open(io.BytesIO(png(seed=7))).save(file)
        kinds[f"image {suffix}"] = Kind(file, mutants.raw, (IMPORT, f"{IMPORT} --skip-bad"), ("images", "cache"), 3)
    return kinds


def _studies() -> dict[str, Kind]:
    """Records of the paper's studies, as committed, and of an evaluation, one to a folder of results."""
    kinds = {}
    names = "T1/T1 F1/F1 alpha/alpha moons/moons moons/boundaries uci/uci T4/T4-tuned-small_cnn"
    committed = [*names.split(), "benchmarks/step_time_cpu", "benchmarks/scaling_h200"]
    for source in (*(RESULTS / f"{name}.json" for name in committed), Path("evaluation/evaluation.json")):
        file = Path(f"study-{source.stem}", source.parent.name, source.name)
        file.parent.mkdir(parents=True)
        shutil.copy(source, file)
        status, report = f"paper status --out {file.parts[0]}", f"paper report --out shown --results {file.parts[0]}"
        kinds[f"study {source.stem}"] = Kind(file, mutants.as_json, (status, status, status, report), ("shown",), 1.3)
    return kinds


def _others() -> dict[str, Kind]:
    """The cache, what `compare` and `tune` leave, an estimator, and a set of UCI's with one of its splits."""
    numbers = np.random.default_rng(0).normal(size=(40, 3))
    made = RCADClassifier(hidden_layer_sizes=(4,), max_iter=2).fit(numbers, np.where(numbers[:, 0] > 0, "a", "b"))
    made.save("estimator.safetensors")
    uci = Path("data/uci/yacht")
    uci.mkdir(parents=True)
    np.savetxt(uci / "data.txt", numbers[:30])
    for name, rows in {"features": (0, 1), "target": (2,), "train_0": range(3, 30), "test_0": range(3)}.items():
        np.savetxt(uci / f"index_{name}.txt", np.array(rows), fmt="%d")
    (uci / "n_splits.txt").write_text("1\n")
    train = "train --data yacht --method erm --epochs 1 --quiet --runs from"
    (cached,), cache = Path("cache/images").glob("folders-*"), ((IMPORT, "data verify"), ("cache",))
    compare, tune = (COMPARE, *["comparison"] * 3), (TUNE, *["search"] * 3)
    kinds = {
        "cache manifest": Kind(cached / "manifest.json", mutants.as_manifest, *cache),
        "cached images": Kind(cached / "train_x.npy", mutants.as_array, *cache),
        "comparison": Kind("comparison/compare.json", mutants.as_json, compare, ("comparison",), 3),
        "search": Kind("search/rcad.json", mutants.as_json, tune, ("search",), 3),
        "scikit-learn state": Kind("estimator.safetensors", mutants.as_tensors, ("estimator",)),
    }
    for name in ("data", "index_train_0", "n_splits"):
        read = (train, f"{train} --set data.split=0")
        kinds[f"UCI {name}"] = Kind(uci / f"{name}.txt", mutants.as_text, read, ("from",), 2)
    return kinds


PROGRAMS: dict[str, Callable[[], object]] = {  # what programs do with files of ours
    "estimator": lambda: RCADClassifier.load("estimator.safetensors").predict_proba(np.zeros((2, 3))),
    "comparison": lambda: str(Comparison.read("comparison/compare.json")),
    "search": lambda: str(Tuning.read("search/rcad.json")),
}
