"""T5 end to end: class folders of images, streamed to a small ResNet that starts from weights of our own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from made import images
from paper_records import make, order
from rcad.loss.method_rows import as_recorded
from rcad.loss.methods import method_defaults
from rcad.paper import benchmarks
from rcad.paper.tables import SUITES
from rcad.runs.config import ModelConfig, RunConfig
from rcad.runs.recipes import RECIPES
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.run import run

RECIPE = replace(
    RECIPES["paper-imagenet"],
    model=ModelConfig(name="resnet18", width=4),
    train=replace(RECIPES["paper-imagenet"].train, epochs=1, batch_size=8),
    data={"validation": 0.0, "size": 16},
    beside=(("data_augmentation", (("padding", 2),)),),
)


@pytest.mark.usefixtures("undrawn")
def test_finetuning_from_weights_on_class_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split in ("train", "val"):
        images(str(tmp_path / "data/imagenet" / split), classes=6, each=3)
    monkeypatch.setitem(benchmarks.RECIPES, "paper-imagenet", RECIPE)  # type: ignore[index]
    monkeypatch.setattr("rcad.data.streams.memory", lambda: 10)  # so that images stream by themselves
    where: dict[str, Any] = {"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache", "device": "cpu"}
    place = Place(Store.open(tmp_path / "before"), **where)
    before = run(RECIPE.config("imagenet", [("erm", ())]), place)
    weights = str(place.store.folder(before.id) / "model.safetensors")
    wanted = order("T5", tmp_path / "out", scale="full", seeds=(0,), weights=weights, **where)
    record = json.loads(make(wanted).files[0].read_text())
    cells = {(cell["row"], cell["column"]): cell["runs"] for cell in record["cells"]}
    assert set(cells) == {(row, top) for row in record["rows"] for top in ("top-1", "top-5")}
    # The weights are measured as they came, and are where the others start.
    (pretrained,) = cells["pretrained", "top-1"]
    assert pretrained["metrics"]["accuracy"] == pytest.approx(before.metrics["test_accuracy"])
    assert pretrained["metrics"]["top5"] == pytest.approx(before.metrics["test_top5"])
    assert {claim["statement"] for claim in record["claims"]} >= {
        "RCAD has more top-1 accuracy than ERM",
        "RCAD has more top-5 accuracy than ERM",
    }
    assert all(claim["verdict"] != "a trial" for claim in record["claims"])
    trained = [one for one in Store.open(wanted.store).records() if one.config.train.epochs]
    assert len(trained) == 4
    assert all(one.data_sha256.startswith("files:") for one in trained)


def planned(scale: Any, weights: str | None = None) -> dict[str, RunConfig]:
    return {run.row: run.config for run in SUITES["T5"].runs(scale, [0], "one view", ["top-1"], weights=weights)}


def test_the_protocol_is_cutmix_s_and_the_pretrained_row_needs_weights() -> None:
    full = planned("full")
    erm = full["ERM"]
    assert (erm.data.name, erm.data.size, erm.data.validation) == ("imagenet", 224, 0.0)
    assert (erm.model.name, erm.model.weights) == ("timm:resnet50", "pretrained")
    assert (erm.optim.lr, erm.optim.weight_decay, erm.optim.milestones) == (0.1, 1e-4, (75, 150, 225))
    assert (erm.train.epochs, erm.train.batch_size, erm.train.selection) == (300, 256, "last")
    rcad = method_defaults()["rcad"] | dict(dict(as_recorded(full["RCAD"].method))["rcad"])
    assert (rcad["alpha"], rcad["lam"]) == (0.5, 0.02)
    assert full["pretrained"].train.epochs == 0
    assert "pretrained" not in planned("smoke")
    given = planned("smoke", "mine.safetensors")
    assert {config.model.weights for config in given.values()} == {"mine.safetensors"}
    assert given["pretrained"].train.epochs == 0
