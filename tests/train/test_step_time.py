"""The benchmark itself runs: every way of taking a step, on a network of a moment."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from made import png
from workers import copied

METHODS = ["erm", "rcad", "rcad reference", "rcad naive", "rcad autograd", "pgd 10", "me_ada"]
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


def test_it_measures_every_method(benchmark: Benchmark) -> None:
    words = [*TINY, "--model", "small_cnn", "--batches", "4", "--modes", "eager", "--replicas", "1", "--all"]
    text = benchmark("step_time", *words, "--steps", "4", "--rounds", "1", "--methods", ",".join(METHODS))
    record = json.loads(text)
    assert {"device", "torch", "date"} <= record.keys()
    wanted = {"model", "batch", "mode", "replicas", "joined", "ratio_to_floor"}
    assert [row["method"] for row in record["rows"]] == METHODS
    erm = record["rows"][0]["ms_per_seed_step"]
    for row in record["rows"]:  # of one round, so that the median ratio is the ratio
        assert wanted <= row.keys()
        assert row["ratio_to_erm"] == pytest.approx(row["ms_per_seed_step"] / erm, rel=0.01)
        assert row["ms_per_seed_step"] > 0
        assert row["peak_memory_gib"] is None  # not measured on a CPU


@pytest.mark.parametrize("runs", ["1x1", "2x2"])
def test_kernels_are_listed_by_their_time(runs: str, benchmark: Benchmark) -> None:
    text = benchmark("step_kernels", *TINY, "--batch", "4", "--lines", "5", "--replicas", runs)
    about, total, *lines = text.splitlines()
    assert f"small_cnn, batch 4, rcad, eager, runs {runs}" in about
    times = [float(line.split()[0]) for line in lines]
    assert len(times) == 5
    assert times == sorted(times, reverse=True)
    assert sum(times) < float(total.split()[3].rstrip(","))
    assert any("conv" in line for line in lines)


def test_own_loops_are_measured_beside_the_engine(benchmark: Benchmark) -> None:
    command = ["--models", "ours", "--model", "small_cnn", "--size", "8", "--batch", "2"]
    command += ["--classes", "3", "--steps", "1", "--rounds", "1", "--compared", "2"]
    record = json.loads(benchmark("own_loop", *command))
    loops = ["eager", "captured", "engine, eager"]
    assert [(row["method"], row["loop"]) for row in record["rows"]] == [(m, k) for m in ("rcad", "erm") for k in loops]
    assert all(row["ms"] > 0 for row in record["rows"])
    eager, captured = ([row["losses"] for row in record["rows"] if row["loop"] == loop] for loop in loops[:2])
    assert eager == captured


def test_growing_axes_share_their_point_and_errors_stay_in_their_row(benchmark: Benchmark) -> None:
    command = ["--model", "small_cnn", "--side", "8", "--batch", "4", "--classes", "3"]
    command += ["--axes", "batch,model,runs", "--batches", "2,4", "--models", "small_cnn@8,none@8", "--runs", "1,2"]
    command += ["--team", "2", "--run-batch", "2", "--seconds", "0.001", "--rounds", "1"]
    rows = json.loads(benchmark("scaling", *command))["rows"]
    more = json.loads(benchmark("scaling", *command, "--more"))
    assert [row for row in more["rows"] if "error" not in row] == [row for row in rows if "error" not in row]
    assert len(more["dates"]) == 2
    assert [row["method"] for row in rows if row["axes"] == ["batch", "model"]] == ["erm", "rcad"]
    assert [row["model"] for row in rows if "error" in row] == ["none", "none"]
    timed = [row for row in rows if "error" not in row]
    for erm, rcad in zip(timed[::2], timed[1::2], strict=True):  # one round
        assert rcad["ratio_to_erm"] == pytest.approx(rcad["us_per_example"] / erm["us_per_example"], rel=0.01)
        assert rcad["floor_us_per_example"] == pytest.approx(2 * erm["floor_us_per_example"], rel=0.01)
    several = [(row["runs"], row["engine"]) for row in timed if row["axes"] == ["runs"]]
    assert several == [(1, "eager")] * 2 + [(2, "eager, 2 joined")] * 2


def test_start_up_ends_with_the_last_teams_first_step(benchmark: Benchmark, tmp_path: Path, monkeypatch: Any) -> None:
    said = "rcad: times: {} 1.00 s, {} s after the start, of rcad, batches ({},), 5 joined"
    lines = [(10.0, said.format("search", 8, 128)), (14.0, said.format("search", 12, 128))]
    lines += [(14.5, said.format("warm-up", 12, 128)), (15.0, said.format("search", 13, 8))]
    monkeypatch.setattr("floor._train", lambda words: (20.0, lines))
    start_up = tmp_path / "start_up.json"
    record = json.loads(benchmark("floor", "--parts", "start_up,whole", "--start-up", str(start_up)))
    own = json.loads(start_up.read_text())
    assert (own["kind"], own["teams"], own["first_step_of_last_team"]) == ("rcad start-up", 2, 14.0)
    assert len(own["stages"]) == 4
    assert "error" in record["rows"][1]  # no run left a record: the part says so, and the others go on


def test_streaming_is_measured_with_its_memory(benchmark: Benchmark, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("streaming.DISTINCT", 12)
    monkeypatch.setattr("streaming.WARM", 1)
    words = ["--part", "both", "--model", "small_cnn", "--size", "16", "--batch", "4", "--steps", "2", "--rounds", "1"]
    record = json.loads(benchmark("streaming", *words, "--precision", "fp32"))
    assert record["loader"]["ratio"] > 0
    assert [row["method"] for row in record["steps"]] == ["erm", "rcad"]
    assert all(row["ms"].keys() == {"streamed", "memory"} for row in record["steps"])
    half = tmp_path / "half"
    half.mkdir()
    pixels = [{"bytes": png(seed=k)} for k in range(24)]
    for name, share in (("train-0", slice(0, 16)), ("valid-0", slice(16, 24))):
        table = pa.table({"image": pixels[share], "label": [k % 2 for k in range(len(pixels[share]))]})
        pq.write_table(table, half / f"{name}.parquet")
    once, thrice = importlib.import_module("streaming").memory(half, tmp_path / "folders", 3)
    assert (once["images"], thrice["images"]) == (16, 48)
    assert once["all_mb"] > once["training_process_mb"] - 1 > 100
