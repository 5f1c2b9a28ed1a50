"""Progress: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from rcad.cli import views
from rcad.cli.bars import Bars
from rcad.cli.views import Lines, Nothing, View, numbers, view

ROW = {"epoch": 1.0, "loss": 0.5, "lr": 0.1, "accuracy": 80.0, "val_accuracy": 75.0, "val_nll": 0.7, "seconds": 1.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(shown: View, epochs: int = 3, steps: int = 4) -> None:
    """A grid of two runs as the engine tells it: the start is told again after a checkpoint."""
    with shown:
        for number in (1, 2):
            shown.begin(number, 2, f"rcad on digits, seed {number - 1}")
            for done in (0, 50, 100):
                shown.preparing("reading the data", done, 100)
            shown.started(epochs, steps, 0)
            for epoch in range(1, epochs + 1):
                for step in range(1, steps + 1):
                    shown.stepped(epoch, step)
                shown.epoch(epoch, ROW)
                if isinstance(shown, Bars):
                    shown._progress.refresh()  # else it is drawn ten times a second
                shown.started(epochs, steps, epoch)
            shown.note("a note")
            shown.end(f"done: seed {number - 1}")


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_bars(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rcad.cli.bars._EVERY_S", 0.0)
    stream = Terminal()
    play(Bars(Console(file=stream, force_terminal=True, width=width, highlight=False, markup=False)))
    text = stream.getvalue()
    for part in ("grid", "run", "epoch", "done: seed 1", "a note"):
        assert part in text
    if width >= 80:
        assert "epoch 3/3  loss 0.5  val_accuracy 75.0%  val_nll 0.7" in text
        assert "run 2 of 2: rcad on digits, seed 1" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor comes back


def test_bars_know_how_far_the_grid_is() -> None:
    bars = Bars(Console(file=Terminal(), force_terminal=True, width=80))
    with bars:
        bars.begin(2, 4, "x")
        bars.started(10, 5, 0)
        bars.epoch(5, ROW)
        grid, run, epoch = bars._progress.tasks
        assert grid.completed == pytest.approx(1.5)
        assert (run.completed, run.total) == (25, 50)
        assert (epoch.completed, epoch.total) == (5, 5)


def test_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_EVERY_S", 0.0)
    play(Lines())
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[0] == "[1/2] rcad on digits, seed 0"
    assert "  epoch 3/3  loss 0.5  val_accuracy 75.0%  val_nll 0.7" in lines
    assert lines[-1] == "  done: seed 1"
    assert any(line.endswith(" left") for line in lines)


def test_short_epochs_do_not_flood(capsys: pytest.CaptureFixture[str]) -> None:
    play(Lines(), epochs=500, steps=1)
    out = capsys.readouterr().out
    assert out.count("epoch") <= 8
    assert out.count("epoch 500/500") == 2


def test_the_view_suits_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(view(quiet=False, as_json=False)) is Lines
    assert type(view(quiet=False, as_json=True)) is Nothing
    assert type(view(quiet=True, as_json=False)) is Nothing
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert type(view(quiet=False, as_json=True)) is Bars
    assert type(view(quiet=True, as_json=False)) is Nothing
    monkeypatch.setenv("TERM", "dumb")
    assert type(view(quiet=False, as_json=False)) is Lines


def test_numbers_of_a_regression() -> None:
    assert numbers({"loss": 1.25, "lr": 0.1, "val_rmse": 3.5, "val_nll": 2.0}) == "loss 1.25  val_rmse 3.5  val_nll 2"
    assert numbers({"loss": 1.25, "accuracy": 50.0}) == "loss 1.25  accuracy 50.0%"
