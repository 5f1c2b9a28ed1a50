"""The benchmark itself runs: every way of taking a step, on a network of a moment."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

METHODS = ["erm", "rcad", "rcad reference", "rcad naive", "rcad autograd", "pgd 10", "me_ada"]


def run(script: str, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    importlib.import_module(script).main(
        ["--device", "cpu", "--size", "8", "--channels", "1", "--classes", "3", *command]
    )


def test_it_measures_every_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["--model", "small_cnn", "--batches", "4", "--modes", "eager", "--replicas", "1", "--all"]
    command += ["--steps", "4", "--rounds", "1", "--methods", ",".join(METHODS), "--out", str(tmp_path / "a.json")]
    run("step_time", command, monkeypatch)
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


@pytest.mark.parametrize("runs", ["1x1", "2x2"])
def test_kernels_are_listed_by_their_time(runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["--batch", "4", "--lines", "5", "--replicas", runs, "--out", str(tmp_path / "a.txt")]
    run("step_kernels", command, monkeypatch)
    about, total, *lines = (tmp_path / "a.txt").read_text().splitlines()
    assert f"small_cnn, batch 4, rcad, eager, runs {runs}" in about
    times = [float(line.split()[0]) for line in lines]
    assert len(times) == 5
    assert times == sorted(times, reverse=True)
    assert sum(times) < float(total.split()[3].rstrip(","))
    assert any("conv" in line for line in lines)


def test_own_loops_are_measured_beside_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    command = ["--device", "cpu", "--models", "ours", "--model", "small_cnn", "--size", "8", "--batch", "2"]
    command += ["--classes", "3", "--steps", "1", "--rounds", "1", "--compared", "2", "--out", str(tmp_path / "a.json")]
    importlib.import_module("own_loop").main(command)
    record = json.loads((tmp_path / "a.json").read_text())
    loops = ["eager", "captured", "engine, eager"]
    assert [(row["method"], row["loop"]) for row in record["rows"]] == [(m, k) for m in ("rcad", "erm") for k in loops]
    assert all(row["ms"] > 0 for row in record["rows"])
    eager, captured = ([row["losses"] for row in record["rows"] if row["loop"] == loop] for loop in loops[:2])
    assert eager == captured


def test_growing_axes_share_their_point_and_errors_stay_in_their_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    command = ["--device", "cpu", "--model", "small_cnn", "--side", "8", "--batch", "4", "--classes", "3"]
    command += ["--axes", "batch,model,runs", "--batches", "2,4", "--models", "small_cnn@8,none@8", "--runs", "1,2"]
    command += ["--team", "2", "--run-batch", "2", "--seconds", "0.001", "--rounds", "1", "--out"]
    importlib.import_module("scaling").main([*command, str(tmp_path / "a.json")])
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    more = importlib.import_module("scaling").main([*command, str(tmp_path / "a.json"), "--more"])
    assert [row for row in more["rows"] if "error" not in row] == [row for row in rows if "error" not in row]
    assert len(more["dates"]) == 2
    assert [(row["axes"], row["method"]) for row in rows[:2]] == [
        (["batch", "model"], "erm"),
        (["batch", "model"], "rcad"),
    ]
    assert [row["model"] for row in rows if "error" in row] == ["none", "none"]
    timed = [row for row in rows if "error" not in row]
    for erm, rcad in zip(timed[::2], timed[1::2], strict=True):  # one round
        assert rcad["ratio_to_erm"] == pytest.approx(rcad["us_per_example"] / erm["us_per_example"], rel=0.01)
        assert rcad["floor_us_per_example"] == pytest.approx(2 * erm["floor_us_per_example"], rel=0.01)
    assert [(row["runs"], row["engine"]) for row in timed if row["axes"] == ["runs"]] == [
        *[(1, "eager")] * 2,
        *[(2, "eager, 2 joined")] * 2,
    ]


def test_start_up_is_counted_from_the_command_to_the_last_teams_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    floor = importlib.import_module("floor")
    said = "rcad: times: {} 1.00 s, {} s after the start, of rcad, batches ({},), 5 joined"
    lines = [(10.0, said.format("search", 8, 128)), (14.0, said.format("search", 12, 128))]
    lines += [(14.5, said.format("warm-up", 12, 128)), (15.0, said.format("search", 13, 8))]
    monkeypatch.setattr(floor, "_train", lambda words: (20.0, lines))
    command = ["--device", "cpu", "--parts", "start_up,whole", "--start-up", str(tmp_path / "a.json")]
    record = floor.main(command)
    kept = json.loads((tmp_path / "a.json").read_text())
    assert (kept["kind"], kept["teams"], kept["first_step_of_last_team"]) == ("rcad start-up", 2, 14.0)
    assert len(kept["stages"]) == 4
    assert "error" in record["rows"][1]  # no run left a record: the part says so, and the others go on


def test_streaming_measures_every_method_and_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    streaming = importlib.import_module("streaming")
    monkeypatch.setattr(streaming, "DISTINCT", 12)
    monkeypatch.setattr(streaming, "WARM", 1)
    words = ["--part", "both", "--model", "small_cnn", "--size", "16", "--batch", "4", "--steps", "2", "--rounds", "1"]
    words += ["--precision", "fp32", "--device", "cpu", "--out", str(tmp_path / "a.json")]
    monkeypatch.setattr("sys.argv", ["streaming.py", *words])
    streaming.main()
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["loader"]["ratio"] > 0
    assert [row["method"] for row in record["steps"]] == ["erm", "rcad"]
    assert all(row["ms"].keys() == {"streamed", "memory"} for row in record["steps"])
    half = tmp_path / "half"
    half.mkdir()
    pixels = [{"bytes": file.read_bytes()} for file in _jpegs(tmp_path, 24)]
    for name, share in (("train-0", slice(0, 16)), ("valid-0", slice(16, 24))):
        table = pa.table({"image": pixels[share], "label": [k % 2 for k in range(len(pixels[share]))]})
        pq.write_table(table, half / f"{name}.parquet")
    once, thrice = streaming.memory(half, tmp_path / "folders", 3)
    assert (once["images"], thrice["images"]) == (16, 48)
    assert once["all_mb"] > once["training_process_mb"] - 1 > 100


def _jpegs(folder: Path, count: int) -> list[Path]:
    draw = np.random.default_rng(0)
    for k in range(count):
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).save(folder / f"{k}.jpg")
    return sorted(folder.glob("*.jpg"))
