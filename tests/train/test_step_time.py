"""The benchmark itself runs: every way of taking a step, on a network of a moment."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers import copied

TINY = ("--size", "8", "--channels", "1", "--classes", "3")
Benchmark = Callable[..., Any]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Benchmark:
    """Runs a benchmark on the CPU; the text that it writes. Programs that it starts are copies of this process."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    monkeypatch.setattr("subprocess.run", copied)
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")

    def run(script: str, *words: str) -> str:
        monkeypatch.setattr("sys.argv", [script, "--device", "cpu", *words, "--out", str(tmp_path / "out")])
        importlib.import_module(script).main()
        return (tmp_path / "out").read_text()

    return run


def test_it_measures_every_method(benchmark):
    methods = ["erm", "rcad", "rcad reference", "rcad naive", "rcad autograd", "pgd 10", "me_ada"]
    words = [*TINY, "--model", "small_cnn", "--batches", "4", "--modes", "eager", "--replicas", "1", "--all"]
    record = json.loads(benchmark("step_time", *words, "--steps", "4", "--rounds", "1", "--methods", ",".join(methods)))
    assert {"device", "torch", "date"} <= record.keys()
    assert [row["method"] for row in record["rows"]] == methods
    erm = record["rows"][0]["ms_per_seed_step"]
    for row in record["rows"]:  # of one round, so that the median ratio is the ratio
        assert row["ratio_to_erm"] == pytest.approx(row["ms_per_seed_step"] / erm, rel=0.01)
        assert row["ms_per_seed_step"] > 0
        assert row["peak_memory_gib"] is None  # not measured on a CPU


def test_growing_axes_share_their_point_and_errors_stay_in_their_row(benchmark):
    command = ["--model", "small_cnn", "--side", "8", "--batch", "4", "--classes", "3"]
    command += ["--axes", "batch,model,runs", "--batches", "2,4", "--models", "small_cnn@8,none@8", "--runs", "1,2"]
    command += ["--team", "2", "--run-batch", "2", "--seconds", "0.001", "--rounds", "1"]
    rows = json.loads(benchmark("scaling", *command))["rows"]
    assert [row["method"] for row in rows if row["axes"] == ["batch", "model"]] == ["erm", "rcad"]
    assert [row["model"] for row in rows if "error" in row] == ["none", "none"]
    timed = [row for row in rows if "error" not in row]
    for erm, rcad in zip(timed[::2], timed[1::2], strict=True):  # one round
        assert rcad["ratio_to_erm"] == pytest.approx(rcad["us_per_example"] / erm["us_per_example"], rel=0.01)
    several = [(row["runs"], row["engine"]) for row in timed if row["axes"] == ["runs"]]
    assert several == [(1, "eager")] * 2 + [(2, "eager, 2 joined")] * 2
    more = json.loads(benchmark("scaling", *command, "--more"))
    assert [row for row in more["rows"] if "error" not in row] == timed
