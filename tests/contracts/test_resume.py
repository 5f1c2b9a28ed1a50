"""A run that was stopped and gone on with is the run made in one go, bit for bit: by the command alone."""

import shlex
from pathlib import Path
from typing import Any

from contracts.house import rcad, workplace
from forked import interrupted

# Batches, crops, mixing and random directions draw at every step; the average of weights has a state of its own.
TRAIN = (
    "train --data digits[:60] --method 'data_augmentation(padding=1) + mixup + rcad_random' --epochs 20 --batch-size 8 "
    "--set train.ema=0.9 --set train.selection=last --seed 3 --json"
)
CLOCK = ("finished", "folder", "peak_memory_bytes", "started", "timings")


def test_stopped_and_gone_on_is_the_same_run(tmp_path: Path) -> None:
    with workplace(tmp_path):
        logs = Path("stopped").glob
        words = shlex.split(f"{TRAIN} --runs stopped")
        first = interrupted(*words, when=lambda: any(log.read_text().count("\n") > 1 for log in logs("*/log.jsonl")))
        assert (first.code, first.json()[0]["status"]) == (130, "interrupted")
        for store in ("stopped", "whole"):
            assert rcad(f"{TRAIN} --runs {store}").code == 0
        run = first.json()[0]["id"]
        (mended, found), (whole, wanted) = left("stopped", run), left("whole", run)
    assert len(wanted["epochs"]) == 20
    assert found == wanted
    assert mended == whole != {}


def left(store: str, run: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of weights of a run, and what it says of itself without what the clock does."""
    record = rcad(f"runs show {run} --runs {store} --json").json()
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in record["epochs"]]
    plain = {key: value for key, value in record.items() if key not in CLOCK} | {"epochs": rows}
    return {path.name: path.read_bytes() for path in Path(store, run).rglob("*.safetensors")}, plain
