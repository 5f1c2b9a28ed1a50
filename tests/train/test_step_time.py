"""The benchmark itself runs: every way of taking a step, on a network of a moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

METHODS = ["erm", "rcad", "rcad reference", "rcad naive", "rcad autograd", "pgd 10", "me_ada"]
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "step_time.py"


def test_it_measures_every_method(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--size", "8", "--channels", "1", "--classes", "3"]
    command += ["--model", "small_cnn", "--batches", "4", "--modes", "eager", "--replicas", "1", "--all"]
    command += ["--steps", "4", "--rounds", "1", "--methods", ",".join(METHODS), "--out", str(tmp_path / "a.json")]
    subprocess.run(command, check=True, capture_output=True)
    record = json.loads((tmp_path / "a.json").read_text())
    assert {"device", "torch", "date"} <= record.keys()
    wanted = {"model", "batch", "method", "mode", "replicas", "joined", "ms_per_seed_step", "ratio_to_erm"}
    assert all(wanted | {"ratio_to_floor", "peak_memory_gib"} <= row.keys() for row in record["rows"])
    assert [row["method"] for row in record["rows"]] == METHODS
    erm = record["rows"][0]["ms_per_seed_step"]
    for row in record["rows"]:  # of one round, so that the median ratio is the ratio
        assert row["ratio_to_erm"] == pytest.approx(row["ms_per_seed_step"] / erm, rel=0.01)
        assert row["ms_per_seed_step"] > 0
    assert all(row["peak_memory_gib"] is None for row in record["rows"])  # not measured on a CPU


def test_kernels_are_listed_by_their_time(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT.with_name("step_kernels.py")), "--device", "cpu", "--size", "8"]
    command += ["--channels", "1", "--classes", "3", "--batch", "4", "--lines", "5", "--out", str(tmp_path / "a.txt")]
    subprocess.run(command, check=True, capture_output=True)
    about, total, *lines = (tmp_path / "a.txt").read_text().splitlines()
    assert "small_cnn, batch 4, rcad, eager, runs 1x1" in about
    times = [float(line.split()[0]) for line in lines]
    assert len(times) == 5
    assert times == sorted(times, reverse=True)
    assert sum(times) < float(total.split()[3].rstrip(","))
    assert any("conv" in line for line in lines)
