"""What a run will do, before and while it does it; and the network that it takes by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rcad.data.dataset import Dataset, Split
from rcad.loss.method_rows import parse_method
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.record import RunRecord, utc_now
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.plan import plan_of
from rcad.train.progress import Silent
from rcad.train.run import run
from rcad.train.task import FEW_IMAGES, as_built, model_of, prepare


def config(method: str = "rcad", data: str = "digits[:60]") -> RunConfig:
    return configure(data, parse_method(method), epochs=2)


class Notes(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def test_a_run_says_its_network_its_numbers_its_device_and_its_steps(tmp_path: Path) -> None:
    place, notes = Place(Store.open(tmp_path), device="cpu"), Notes()
    record = run(config(), place, notes)
    (said,) = [line for line in notes.lines if "parameters" in line]
    alpha = record.resolved["method"].partition("alpha=")[2].partition(",")[0]
    assert said.startswith(f"SmallCNN, 89,933 parameters; rcad(alpha={alpha}, lam=0.1); CPU, ")
    assert said.endswith("; 2 epochs of 2 steps")
    planned = plan_of(config(), place)
    assert planned is not None
    assert planned.startswith(f"{said}, about ")
    assert "rcad(alpha=0.5, lam=0.02)" in str(plan_of(config("rcad(alpha=0.5, lam=0.02)"), place))
    assert plan_of(config(data="nowhere.csv"), place) is None


@pytest.mark.parametrize(
    ("side", "count", "network"),
    [(28, 40, "SmallCNN"), (32, FEW_IMAGES, "SmallCNN"), (33, 40, "ResNet"), (28, FEW_IMAGES + 1, "ResNet")],
)
def test_few_small_images_get_the_small_network(side: int, count: int, network: str) -> None:
    asked = configure("d", parse_method("erm"), settings=["train.selection=last", "data.validation=0"])
    x = np.zeros((1, 1, side, side), np.uint8)
    y = np.arange(count) % 2
    images = Split(np.broadcast_to(x, (count, 1, side, side)), y)
    data = Dataset("d", "classification", images, test=Split(images.x[:4], y[:4]), classes=("a", "b"))
    assert type(model_of(asked, prepare(asked, data, torch.device("cpu")))).__name__ == network


def test_a_finished_run_keeps_the_network_it_was_made_with() -> None:
    record = RunRecord(
        config=config(), status="running", started=utc_now(), resolved={"model": "ResNet, 11 parameters"}
    )
    assert as_built(record).model.name == "resnet18"
    assert as_built(replace(record, resolved={})).model.name == "auto"
    named = replace(config(), model=replace(config().model, name="mlp"))
    assert as_built(RunRecord(config=named, status="running", started=utc_now())).model.name == "mlp"
