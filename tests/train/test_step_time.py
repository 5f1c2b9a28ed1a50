"""The benchmark itself runs: every way of taking a step, on a network of a moment."""

import importlib
import json
from pathlib import Path

import pytest

from workers import copied


def test_it_measures_every_method(monkeypatch, tmp_path):
    """Programs that it starts are copies of this process."""
    methods = ["erm", "rcad", "rcad reference", "rcad naive", "rcad autograd", "pgd 10", "me_ada"]
    words = "--device cpu --size 8 --channels 1 --classes 3 --model small_cnn --batches 4 --modes eager --replicas 1"
    words = ["step_time", *f"{words} --all --steps 4 --rounds 1 --methods".split(), ",".join(methods)]
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    monkeypatch.setattr("subprocess.run", copied)
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    monkeypatch.setattr("sys.argv", [*words, "--out", str(tmp_path / "out")])
    importlib.import_module("step_time").main()
    record = json.loads((tmp_path / "out").read_text())
    assert {"device", "torch", "date"} <= record.keys()
    assert [row["method"] for row in record["rows"]] == methods
    erm = record["rows"][0]["ms_per_seed_step"]
    for row in record["rows"]:  # of one round, so that the median ratio is the ratio
        assert row["ratio_to_erm"] == pytest.approx(row["ms_per_seed_step"] / erm, rel=0.01)
        assert row["ms_per_seed_step"] > 0
        assert row["peak_memory_gib"] is None  # not measured on a CPU
