"""Runs that go side by side, as the command shows and keeps them."""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import rcad.train.together  # noqa: F401  (imported before a test replaces what it imports)
from cli.conftest import Cli
from rcad.cli import views
from rcad.cli.bars import Bars
from rcad.cli.crowd import Crowd
from rcad.cli.grid import Grid
from rcad.cli.views import Lines, Nothing
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.runs.plain import from_toml
from rcad.runs.store import Store
from rcad.train.loop import Trainer

ROW = {"loss": 0.5, "val_accuracy": 70.0, "val_nll": 0.7}
SEEDS = ("train", "--data", "digits[:60]", "--method", "rcad", "--epochs", "2", "--seeds", "3")


class Listening(Nothing):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def together(self, done: float, total: int, text: str) -> None:
        self.heard.append((round(done, 3), total, text))

    def note(self, text: str) -> None:
        self.heard.append(text)

    def end(self, text: str) -> None:
        self.heard.append(text)


def test_a_crowd_adds_up() -> None:
    shown = Listening()
    crowd = Crowd(shown, total=4)
    one, two = crowd.member(0), crowd.member(1)
    for member in (one, two):
        member.note("digits: 50 training examples")
        member.started(10, 5, 0)
    one.stepped(1, 5)
    one.epoch(1, ROW)
    two.stepped(1, 3)
    one.epoch(2, ROW)
    two.epoch(1, {**ROW, "val_accuracy": 60.0})
    crowd.end(0, "done: seed 0")
    two.epoch(2, ROW)
    assert shown.heard[0] == "digits: 50 training examples"
    assert shown.heard.count("digits: 50 training examples") == 1  # what all say is said once
    assert shown.heard[1][:2] == (0.1, 4)
    assert shown.heard[2] == (
        0.26,
        4,
        "2 runs at once, epoch 0 to 2 of 10  mean loss 0.5  val_accuracy 70.0%  val_nll 0.7",
    )
    assert "epoch 1 to 2 of 10  mean loss 0.5  val_accuracy 65.0%" in shown.heard[3][2]
    assert shown.heard[4] == "done: seed 0"
    assert shown.heard[5][:2] == (1.2, 4)
    assert shown.heard[5][2].startswith("1 run at once, epoch 2 of 10")


def test_lines_tell_what_is_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 100.0, 100.0, 100.0, 130.0, 130.0, 130.0])
    monkeypatch.setattr(views.time, "monotonic", lambda: next(now))
    lines = Lines()
    lines._started = 100.0
    lines._last_line = 0.0
    lines.together(0.0, 4, "4 runs at once")
    lines.together(1.0, 4, "4 runs at once")
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "  4 runs at once  - left"
    assert out[-1].startswith("  4 runs at once")


def test_a_bar_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rcad.cli.bars._EVERY_S", 0.0)
    stream = io.StringIO()
    bars = Bars(Console(file=stream, force_terminal=True, width=100, highlight=False, markup=False))
    with bars:
        bars.together(1.5, 4, "3 runs at once, epoch 5 of 10")
        bars._progress.refresh()
        assert bars._progress.tasks[0].completed == 1.5
        bars.end("done: seed 0")
        assert bars._progress.tasks[0].completed == 2
    assert "3 runs at once, epoch 5 of 10" in stream.getvalue()


def config(seed: int = 0, dropout: float | None = None) -> RunConfig:
    return RunConfig(
        data=DataConfig(name="digits"),
        model=ModelConfig(name="small_cnn", dropout=dropout),
        method=(("erm", ()),),
        optim=OptimConfig(lr=0.1),
        train=TrainConfig(epochs=1, batch_size=8),
        seed=seed,
    )


def grid(device: str, joined: int = 1) -> Grid:
    quiet: Any = (lambda folder: (), lambda record, again: "")
    return Grid(Store(Path("runs")), Nothing(), None, None, device, "auto", joined, *quiet)


def test_who_goes_side_by_side(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    several = [config(0), config(1), config(2, dropout=0.5)]
    assert grid("cpu").shared(several, None) == []
    monkeypatch.setattr("rcad.train.machine.pick_device", lambda name: torch.device("cuda"))
    assert grid("auto").shared(several, None) == several[:2]
    assert grid("auto").shared(several, 1) == []
    assert grid("auto").shared(several[:1], None) == []
    assert grid("auto").shared(several[1:], None) == []  # one that may share has nobody to share with
    assert not capsys.readouterr().err
    assert grid("auto", joined=2).shared(several[1:], None) == []
    assert capsys.readouterr().err.startswith("rcad: --join: not for dropout")
    monkeypatch.setattr("rcad.train.machine.pick_device", lambda name: torch.device("cpu"))
    assert grid("auto").shared(several, None) == []


def test_who_asks_for_company_on_the_cpu_is_told(cli: Cli) -> None:
    done = cli(*SEEDS, "--at-once", "2", "--device", "cpu", "--quiet")
    assert done.code == 0
    assert done.err == "rcad: --at-once: only for runs that share a GPU; on the CPU they go one after the other\n"
    assert cli(*SEEDS, "--at-once", "2", "--device", "cpu", "--quiet").err == ""  # nothing was left to run


def test_joining_is_for_a_gpu_as_well(cli: Cli) -> None:
    done = cli(*SEEDS, "--join", "3", "--at-once", "2", "--device", "cpu", "--quiet")
    assert done.code == 0
    assert done.err.startswith("rcad: --at-once and --join: only for runs that share a GPU")
    assert {record.resolved["engine"] for record in Store.open("runs").records()} == {"eager"}


@pytest.fixture
def _as_if_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side on the CPU, where runs take turns."""
    monkeypatch.setattr(Grid, "shared", lambda self, configs, at_once: list(configs))


@pytest.mark.usefixtures("_as_if_on_a_gpu")
def test_seeds_side_by_side_are_kept_as_if_alone(cli: Cli) -> None:
    done = cli(*SEEDS, "--at-once", "2", "--device", "cpu")
    assert (done.code, done.err) == (0, "")
    records = {record.config.seed: record for record in Store.open("runs").records()}
    assert sorted(records) == [0, 1, 2]
    assert {record.resolved["engine"] for record in records.values()} == {"eager, 2 runs at once"}
    assert done.out.count("done: rcad on digits[:60]") == 3
    alone = cli(*SEEDS[:-2], "--seed", "1", "--runs", "other", "--device", "cpu")
    assert alone.code == 0
    (single,) = Store.open("other").records()
    assert single.metrics == records[1].metrics
    again = cli(*SEEDS, "--device", "cpu")
    assert again.out.count("done already") == 3


@pytest.mark.usefixtures("_as_if_on_a_gpu")
def test_joined_seeds_are_kept_as_if_alone(cli: Cli) -> None:
    done = cli(*SEEDS, "--join", "2", "--device", "cpu")
    assert (done.code, done.err) == (0, "")
    records = {record.config.seed: record for record in Store.open("runs").records()}
    assert [records[seed].resolved["engine"] for seed in range(3)] == [
        "eager, 2 joined, 3 runs at once",
        "eager, 2 joined, 3 runs at once",
        "eager, 3 runs at once",
    ]
    assert cli(*SEEDS, "--runs", "other", "--at-once", "1", "--device", "cpu").code == 0
    for single in Store.open("other").records():
        assert records[single.config.seed].metrics == pytest.approx(single.metrics, rel=1e-3)


def test_the_papers_seeds_are_joined_where_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[Any] = []
    monkeypatch.setattr("rcad.cli.paper._run_suite", orders.append)
    assert cli("paper", "run", "T4", "--scale", "smoke", "--join", "5").code == 0
    assert cli("paper", "run", "T4", "--scale", "smoke").code == 0
    assert [order.joined for order in orders] == [5, 1]


@pytest.mark.usefixtures("_as_if_on_a_gpu")
def test_ctrl_c_stops_all_and_the_same_command_goes_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Trainer.course

    def stopping(self: Trainer, pause: Any) -> Any:
        if self.config.seed == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return course(self, pause)

    monkeypatch.setattr(Trainer, "course", stopping)
    stopped = cli(*SEEDS, "--at-once", "2", "--device", "cpu")
    assert stopped.code == 130
    store = Store.open("runs")
    assert {record.status for record in store.records()} == {"interrupted"}
    monkeypatch.setattr(Trainer, "course", course)
    assert cli(*SEEDS, "--at-once", "2", "--device", "cpu").code == 0
    assert [record.status for record in store.records()] == ["done"] * 3


@pytest.mark.usefixtures("_as_if_on_a_gpu")
def test_runs_that_were_not_begun_count_as_interrupted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*SEEDS[:-2], "--seed", "0", "--device", "cpu").code == 0
    (record,) = Store.open("runs").records()
    monkeypatch.setattr(Grid, "side_by_side", lambda self, configs, at_once, left: {record.id: record})
    assert cli(*SEEDS, "--runs", "others", "--device", "cpu").code == 130


@pytest.mark.usefixtures("_as_if_on_a_gpu")
@pytest.mark.parametrize(("status", "code"), [("done", 0), ("interrupted", 130)])
def test_what_was_made_side_by_side_is_not_made_again(
    status: Any, code: int, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(*SEEDS, "--at-once", "1", "--device", "cpu").code == 0
    first, *others = Store.open("runs").records()
    made = {record.id: record for record in (replace(first, status=status), *others)}

    def never(self: Grid, config: RunConfig) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(Grid, "side_by_side", lambda self, configs, at_once, left: made)
    monkeypatch.setattr(Grid, "one", never)
    assert cli(*SEEDS, "--runs", "others", "--device", "cpu").code == code


@pytest.mark.usefixtures("_as_if_on_a_gpu")
def test_side_by_side_too_a_seed_of_another_process_is_left_to_it(cli: Cli) -> None:
    busy = from_toml(cli(*SEEDS[:-2], "--seed", "1", "--dry-run").out)
    with Store.open("runs").lock(busy):
        done = cli(*SEEDS, "--at-once", "2", "--device", "cpu")
    assert done.code == 2
    assert done.err.startswith(f"rcad: left seed 1 to process {os.getpid()} on ")
    assert "seed 1  left to process" in done.out
    assert [record.config.seed for record in Store.open("runs").records()] == [0, 2]
    assert cli(*SEEDS, "--device", "cpu").code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--at-once", "0"), "--at-once"),
        (("--join", "0"), "--join"),
        (("--join", "3", "--at-once", "1"), "several runs at once for --join 3, but got --at-once 1"),
        (("--engine", "warp"), "--engine"),
        (("--engine", "graph", "--device", "cpu"), "expected a GPU for engine=graph"),
    ],
)
def test_bad_words(words: tuple[str, ...], says: str, cli: Cli) -> None:
    done = cli(*SEEDS, *words)
    assert done.code == 2
    assert says in done.err
    assert not Path("runs").exists()
