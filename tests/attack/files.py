"""Every kind of file that rcad reads, whole and small, with the commands that read it."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attack import mutants
from attack.damage import stopped
from attack.mutants import Mutate
from contracts.house import RESULTS, called
from made import images, png, table, tar
from rcad.study.compare import Comparison
from rcad.study.tune import Tuning

TRAIN = "train --data my.csv --target colour --quiet"
FEW = f"{TRAIN} --epochs 2 --method erm"
BEGUN = f"{TRAIN} --epochs 4 --method rcad(alpha=0.5) --runs begun --set train.batch_size=8"
IMPORT = "data import images"
PACK = "runs pack runs --out"


class Kind(NamedTuple):
    """A kind of file, how its mutants are made, and the commands of which a mutant meets one.

    `resets` are put back after each mutant; `weight` says how often it has its turn, relative to the others.
    """

    file: str | Path
    mutate: Mutate
    commands: tuple[str, ...]
    resets: tuple[str, ...] = ()
    weight: float = 10


def _made(words: str) -> None:
    done = called(*words.split())
    assert done.code == 0, (words, done)


def workshop() -> dict[str, Kind]:
    """Make the files in the current folder; the kinds by name."""
    os.environ |= {"RCAD_CACHE": str(Path("cache").absolute()), "RCAD_DATA": str(Path("data").absolute())}
    Path("my.csv").write_text(table())
    images()
    stopped(BEGUN, 12)
    for words in (FEW, "evaluate all --suite calibration --out evaluation", f"{PACK} study.jsonl.gz", IMPORT):
        _made(words)
    return {**_runs(), **_begun(), **_own_data(), **_cached(), **_compared(), **_uci(), **_studies(), **_estimator()}


def _runs() -> dict[str, Kind]:
    (folder,) = Path("runs").glob("*/")
    run, from_weights = folder.name, f"{FEW} --set model.weights={folder}/model.safetensors --runs from"
    predict, again = f"predict {run} --data my.csv --out p.csv", f"{PACK} again.jsonl.gz --force"
    show, evaluate = f"runs show {run}", f"evaluate {run} --suite calibration"
    listed = ("runs list", show, "runs list --json", f"{show} --json", "runs export all.csv --force")
    read = (*listed, FEW, evaluate, again, predict)
    packed = ("runs list --runs study.jsonl.gz", "runs unpack study.jsonl.gz --out unpacked")
    weighed = (predict, f"{evaluate} --again --out evaluation", from_weights)
    evaluated = (f"{evaluate} --out evaluation", again)
    config = f"train --config {folder}/config.toml"
    asked = (f"{config} --dry-run", f"{config} --dry-run --json")
    asked += (f"{config} --runs from --epochs 1 --method erm --data my.csv --quiet",)
    measured, both = folder / "evaluation/calibration.json", ("runs", "evaluation")
    return {
        "record": Kind(folder / "record.json", mutants.as_json, read, ("runs",), 20),
        "log": Kind(folder / "log.jsonl", mutants.as_lines, (show, FEW), ("runs",), 4),
        "config of a run": Kind(folder / "config.toml", mutants.as_toml, read[:2], ("runs",), 4),
        "weights": Kind(folder / "model.safetensors", mutants.as_tensors, weighed, ("runs", "from"), 8),
        "evaluation": Kind(measured, mutants.as_json, evaluated, both, 4),
        "evaluation report": Kind("evaluation/evaluation.json", mutants.as_json, evaluated[:1], both[1:], 1),
        "pack": Kind("study.jsonl.gz", mutants.as_pack, packed, ("unpacked",), 10),
        "config": Kind(folder / "config.toml", mutants.as_toml, asked, ("runs", "from"), 15),
    }


def _begun() -> dict[str, Kind]:
    """Of a run that was stopped after a few steps."""
    (folder,) = Path("begun").glob("*/")
    return {
        "checkpoint": Kind(folder / "checkpoint/last.safetensors", mutants.as_tensors, (BEGUN,), ("begun",), 5),
        "log of a run under way": Kind(folder / "log.jsonl", mutants.as_lines, (BEGUN,), ("begun",), 4),
        "record of a run under way": Kind(folder / "record.json", mutants.as_json, (BEGUN,), ("begun",), 4),
    }


def _cached() -> dict[str, Kind]:
    (folder,) = Path("cache/images").glob("folders-*")
    read = (IMPORT, "data verify")
    return {
        "cache manifest": Kind(folder / "manifest.json", mutants.as_manifest, read, ("cache",)),
        "cached images": Kind(folder / "train_x.npy", mutants.as_array, read, ("cache",)),
    }


def _own_data() -> dict[str, Kind]:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq
    import torch
    from PIL import Image

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

    target = "--target colour"
    tables = (f"data import my.csv {target}", f"{FEW} --runs from", f"suggest-alpha --data my.csv {target}")
    kinds = {
        "CSV": Kind("my.csv", mutants.as_text, (*tables, f"{tables[0]} --json"), ("from",), 20),
        "Parquet": imported("my.parquet", mutants.raw, target),
        "Parquet images": imported("photos.parquet", mutants.raw),
        "npy": imported("my.npy", mutants.as_array, "--target 2"),
        "npz": imported("my.npz", mutants.as_zip),
        "npz images": imported("pixels.npz", mutants.as_zip, "", 8),
        "tar": imported("a.tar.gz", mutants.as_tar),
        "zip": imported("b.zip", mutants.as_zip, "", 8),
        "labels": imported("flat/labels.csv", mutants.as_text, "", 6),
        "PyTorch weights": Kind("w.pt", mutants.as_zip, (f"{FEW} --set model.weights=w.pt --runs from",), ("from",), 6),
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
        status, report = (
            f"paper {words} {file.parts[0]}" for words in ("status --out", "report --out shown --results")
        )
        kinds[f"study {source.stem}"] = Kind(file, mutants.as_json, (status, status, status, report), ("shown",), 1.3)
    return kinds


def _compared() -> dict[str, Kind]:
    """What `compare` and `tune` leave: the same command reads it, and a program."""
    few = "--data my.csv --target colour --epochs 1 --quiet --budget 2 --out"
    compare = f"compare --methods erm,rcad --no-controls --seeds 3 {few} comparison"
    tune = f"tune --method rcad {few} search"
    kinds = {}
    for words, name, file in ((compare, "comparison", "compare"), (tune, "search", "rcad")):
        _made(words)
        kinds[name] = Kind(f"{name}/{file}.json", mutants.as_json, (words, name, name, name), (name,), 3)
    return kinds


def _uci() -> dict[str, Kind]:
    """A set of UCI's with one of its splits."""
    folder = Path("data/uci/yacht")
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", np.random.default_rng(0).normal(size=(30, 3)))
    for name, numbers in {"features": (0, 1), "target": (2,), "train_0": range(3, 30), "test_0": range(3)}.items():
        np.savetxt(folder / f"index_{name}.txt", np.array(numbers), fmt="%d")
    (folder / "n_splits.txt").write_text("1\n")
    train = "train --data yacht --method erm --epochs 1 --quiet --runs from"
    names = ("data", "index_train_0", "n_splits")
    read = (train, f"{train} --set data.split=0")
    return {f"UCI {name}": Kind(folder / f"{name}.txt", mutants.as_text, read, ("from",), 2) for name in names}


def _estimator() -> dict[str, Kind]:
    from rcad.integrations.sklearn import RCADClassifier

    numbers = np.random.default_rng(0).normal(size=(40, 3))
    made = RCADClassifier(hidden_layer_sizes=(4,), max_iter=2).fit(numbers, np.where(numbers[:, 0] > 0, "a", "b"))
    made.save("estimator.safetensors")
    return {"scikit-learn state": Kind("estimator.safetensors", mutants.as_tensors, ("estimator",))}


def _predict() -> None:
    from rcad.integrations.sklearn import RCADClassifier

    RCADClassifier.load("estimator.safetensors").predict_proba(np.zeros((2, 3)))


PROGRAMS: dict[str, Callable[[], object]] = {
    "estimator": _predict,
    "comparison": lambda: str(Comparison.read("comparison/compare.json")),
    "search": lambda: str(Tuning.read("search/rcad.json")),
}
"""What programs do with files of ours."""
