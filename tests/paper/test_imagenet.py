"""T5 end to end: Tiny ImageNet as class folders, streamed to a small ResNet that starts from weights of our own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rcad.loss.method_rows import as_recorded
from rcad.paper import benchmarks
from rcad.paper.run import Order, make_suite
from rcad.runs.config import ModelConfig
from rcad.runs.recipes import RECIPES
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.progress import SILENT
from rcad.train.run import run

SHARDS = next(
    (p / "shared" / "data" / "tiny-imagenet" for p in Path(__file__).parents if (p / "shared").is_dir()), None
)
CLASSES = 25
RECIPE = replace(
    RECIPES["paper-imagenet"],
    model=ModelConfig(name="resnet18", width=4),
    train=replace(RECIPES["paper-imagenet"].train, epochs=1, batch_size=100),
    optim=replace(RECIPES["paper-imagenet"].optim, lr=0.05),
    data={"validation": 0.0, "size": 16},
    beside=(("data_augmentation", (("padding", 2),)),),
)


def pictures() -> Iterator[tuple[str, int, bytes]]:
    """(train or val, class, JPEG) of the first classes."""
    import pyarrow.parquet as pq

    for split, name in (("train", "train"), ("val", "valid")):
        for file in sorted(SHARDS.glob(f"{name}-*.parquet")):
            table = pq.read_table(file).to_pydict()
            for image, label in zip(table["image"], table["label"], strict=True):
                if label < CLASSES:
                    yield split, label, image["bytes"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if SHARDS is None or not SHARDS.is_dir():
        pytest.skip("needs the part of Tiny ImageNet")
    root = tmp_path_factory.mktemp("data")
    for k, (split, label, jpeg) in enumerate(pictures()):
        folder = root / "imagenet" / split / f"n{label:08}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{k}.JPEG").write_bytes(jpeg)
    return root


def test_finetuning_from_weights_on_class_folders(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(benchmarks.RECIPES, "paper-imagenet", RECIPE)  # type: ignore[index]
    place = Place(Store.open(tmp_path / "before"), data, tmp_path / "cache", "cpu", stream=True)
    before = run(replace(RECIPE, train=replace(RECIPE.train, epochs=3)).config("imagenet", [("erm", ())]), place)
    weights = place.store.folder(before.id) / "model.safetensors"
    monkeypatch.setattr("rcad.data.streams.memory", lambda: 10_000)  # so that the table streams by itself
    where: Any = {"data_dir": data, "cache_dir": tmp_path / "cache", "device": "cpu", "workers": 1}
    order = Order("T5", "full", "one view", (0,), tmp_path / "out", weights=str(weights), **where)
    made: Any = make_suite(order, SILENT, pytest.fail)
    record = json.loads(made.files[0].read_text())
    cells = {(cell["row"], cell["column"]): cell["runs"] for cell in record["cells"]}
    assert set(cells) == {(row, top) for row in record["rows"] for top in ("top-1", "top-5")}
    # The weights are measured as they came, and are where the others start.
    for pretrained in cells["pretrained", "top-1"]:
        assert pretrained["metrics"]["accuracy"] == pytest.approx(before.metrics["test_accuracy"])
        assert pretrained["metrics"]["top5"] == pytest.approx(before.metrics["test_top5"])
    for row in ("ERM", "RCAD"):
        for top in cells[row, "top-5"]:
            assert top["metrics"]["top5"] > top["metrics"]["accuracy"] > 100 / CLASSES
    assert {claim["statement"] for claim in record["claims"]} >= {
        "RCAD has more top-1 accuracy than ERM",
        "RCAD has more top-5 accuracy than ERM",
    }
    assert all(claim["verdict"] != "a trial" for claim in record["claims"])
    runs = [one for one in Store.open(order.store).records() if one.config.train.epochs]
    assert len(runs) == 4
    assert all(one.data_sha256.startswith("files:") for one in runs)
    assert all(one.splits["train"].size == 20 * CLASSES for one in runs)


def test_the_protocol_is_cutmix_s_and_the_pretrained_row_needs_weights() -> None:
    full = {one.row: one.config for one in benchmarks_runs("full")}
    erm = full["ERM"]
    assert (erm.data.name, erm.data.size, erm.data.validation) == ("imagenet", 224, 0.0)
    assert (erm.model.name, erm.model.weights) == ("timm:resnet50", "pretrained")
    assert (erm.optim.lr, erm.optim.weight_decay, erm.optim.milestones) == (0.1, 1e-4, (75, 150, 225))
    assert (erm.train.epochs, erm.train.batch_size, erm.train.selection) == (300, 256, "last")
    assert ("rcad", (("alpha", 0.5), ("lam", 0.02))) in [(n, tuple(p)[:2]) for n, p in written_out(full["RCAD"])]
    assert full["pretrained"].train.epochs == 0
    assert "pretrained" not in {one.row for one in benchmarks_runs("smoke")}
    given = {one.row: one.config for one in benchmarks_runs("smoke", "mine.safetensors")}
    assert {config.model.weights for config in given.values()} == {"mine.safetensors"}
    assert given["pretrained"].train.epochs == 0


def benchmarks_runs(scale: Any, weights: str | None = None) -> Any:
    from rcad.paper.tables import SUITES

    return SUITES["T5"].runs(scale, [0], "one view", ["top-1"], weights)


def written_out(config: Any) -> list[tuple[str, tuple[tuple[str, Any], ...]]]:
    """A run's method with the defaults that its id leaves out."""
    from rcad.loss.methods import method_defaults

    known = method_defaults()
    return [
        (name, tuple((key, {**known[name], **dict(values)}[key]) for key in known[name]))
        for name, values in as_recorded(config.method)
    ]
