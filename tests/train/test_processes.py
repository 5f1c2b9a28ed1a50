"""Worker processes: each run once, errors in one line, and a signal at any moment costs no finished run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rcad.cli import main
from rcad.errors import InputError
from rcad.paper.tables import SUITES
from rcad.runs.config import RunConfig
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.train.processes import Processes
from rcad.train.run import Place

pytest.importorskip("sklearn")


class Watch:
    def __init__(self) -> None:
        self.seen: dict[int, RunRecord] = {}

    def moved(self, index: int, share: float) -> None:
        pass

    def ended(self, index: int, record: RunRecord) -> None:
        assert index not in self.seen
        self.seen[index] = record


def some(count: int) -> list[RunConfig]:
    return [one.config for one in SUITES["T4"].runs("smoke", [0], "one view", ["n=500"])][:count]


def test_processes_equal_this_process(tmp_path: Path) -> None:
    from rcad.train.run import run

    configs, watch = some(3), Watch()
    before = dict(os.environ)
    place = Place(Store.open(tmp_path / "runs"), device="cpu")
    assert Processes(2)(configs, place, watch) is True
    assert os.environ == before
    assert [watch.seen[index].config for index in range(3)] == configs
    assert {record.device for record in watch.seen.values()} == {"CPU, 1 thread"}
    alone = run(configs[0], Store.open(tmp_path / "alone"), device="cpu")
    assert watch.seen[0].metrics == alone.metrics


def test_what_a_worker_refuses_is_one_line_and_what_is_done_stays(tmp_path: Path) -> None:
    good, bad = some(2)
    bad = replace(bad, data=replace(bad.data, name="nothing-of-this-name"))
    place, watch = Place(Store.open(tmp_path / "runs"), device="cpu"), Watch()
    with pytest.raises(InputError, match="nothing-of-this-name"):
        Processes(1)([good, bad, good], place, watch)
    assert list(watch.seen) == [0]
    assert place.store.status(good) == "done"


def test_a_number_of_processes() -> None:
    with pytest.raises(InputError, match="the number of processes"):
        Processes(0)


def finished(runs: Path) -> dict[str, str]:
    """When each finished run was, by id."""
    found = {}
    for path in runs.glob("*/record.json"):
        record = json.loads(path.read_text())
        if record["status"] in ("done", "diverged"):
            found[path.parent.name] = record["finished"]
    return found


def test_a_signal_to_the_command_and_the_same_command_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paper", "run", "T4", "--scale", "smoke", "--seeds", "2", "--only", "n=500", "--device", "cpu"]
    command = [sys.executable, "-m", "rcad.cli", *words, "--workers", "2"]
    runs = tmp_path / "results" / "T4" / "runs"
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(finished(runs)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    first = finished(runs)
    assert 2 <= len(first) < 14, err
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "rcad: stopped; every finished run is kept, and the same command goes on from here"
    assert not (tmp_path / "results" / "T4" / "T4.json").exists()
    monkeypatch.chdir(tmp_path)
    assert main.run([*words, "--workers", "1"]) == 0, capsys.readouterr().err
    last = finished(runs)
    assert len(last) == 14
    assert {run: last[run] for run in first} == first
