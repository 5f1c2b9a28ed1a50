"""A run that was stopped and gone on with is the run made in one go, bit for bit: by the command alone.

That killed runs, every method, several seeds side by side and CUDA graphs resume as exactly, tests of training say.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from contracts.house import epochs_done, rcad, weights, workplace
from forked import interrupted

# Batches, crops, mixing and random directions draw at every step; the average of weights has a state of its own.
TRAIN = (
    "train --data digits[:60] --method 'data_augmentation(padding=1) + mixup + rcad_random' --epochs 20 --batch-size 8 "
    "--set train.ema=0.9 --set train.selection=last --seed 3 --json"
)
CLOCK = ("finished", "folder", "peak_memory_bytes", "started", "timings")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> Iterator[None]:
    with workplace(tmp_path):
        yield


def test_stopped_and_gone_on_is_the_same_run() -> None:
    stopped = shlex.split(f"{TRAIN} --runs stopped")
    first = interrupted(*stopped, when=lambda: epochs_done(Path("stopped")) >= 2)
    assert first.code == 130
    assert [one["status"] for one in first.json()] == ["interrupted"]
    for folder in ("stopped", "whole"):
        assert rcad(f"{TRAIN} --runs {folder}").code == 0
    run = first.json()[0]["id"]
    assert record("stopped", run) == record("whole", run)
    mended, whole = weights(Path("stopped"), run), weights(Path("whole"), run)
    assert mended.keys() == whole.keys()
    assert whole
    for name, tensors in whole.items():
        assert mended[name].keys() == tensors.keys()
        assert all(torch.equal(mended[name][key], value) for key, value in tensors.items()), name


def record(store: str, run: str) -> dict[str, Any]:
    """What a run left, without what the clock says."""
    found = rcad(f"runs show {run} --runs {store} --json").json()
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in found["epochs"]]
    assert len(rows) == 20
    return {key: value for key, value in found.items() if key not in CLOCK} | {"epochs": rows}
