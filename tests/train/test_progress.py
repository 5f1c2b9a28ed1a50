"""Progress as people see it: bars on a terminal, one line in a notebook, few lines elsewhere."""

import io
import sys
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from rcad.train import progress as terminal
from rcad.train.progress import KERNEL, SILENT, Bars, Cell, Lines, Overwritten, Silent, show_progress, watched


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time that passes only when told to."""
    made = SimpleNamespace(now=100.0, monotonic=lambda: made.now)
    monkeypatch.setattr(terminal, "time", made)
    return made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(progress: Any, clock: Any, epochs: int = 100) -> None:
    """An hour of work, a second a call, with reading first and a note last."""
    for done in range(0, 101, 10):
        progress.detail("reading the data", done, 100)
    for epoch in range(epochs + 1):
        progress.overall(epoch, epochs, f"epoch {epoch}/{epochs}")
        clock.now += 1.0
    progress.note("done: seed 0")


def test_lines_are_few_and_say_what_is_left(clock, capsys):
    play(Lines(), clock)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert (err, lines[-1]) == ("", "done: seed 0")
    assert lines[:2] == ["epoch 0/100  0.0 s elapsed", "epoch 5/100  1m 35s left"]
    assert len(lines) == 22  # one every five seconds, and the note
    play(Lines(answer_first=True), clock)  # where an answer comes first they are beside it
    assert capsys.readouterr() == ("", out)


@pytest.mark.parametrize("width", [20, 80])
def test_bars(width, clock):
    stream = Terminal()
    with Bars(Console(file=stream, force_terminal=True, width=width, highlight=False, markup=False)) as bars:
        play(bars, clock, epochs=4)
        bars.overall(2, 4, "epoch 2/4")
        bars.detail("evaluating", 10, 0)
        bars._bars.refresh()
        assert [(bar.completed, bar.total) for bar in bars._bars.tasks] == [(2, 4), (10, None)]
        bars.detail("evaluating", 20, 20)
        assert len(bars._bars.tasks) == 1
        bars.overall(1, 4, "1 of 2 runs done; rcad on digits, seed 1: epoch 3/10  loss 0.31  val_accuracy 95.0%")
        bars._bars.refresh()
    text = stream.getvalue()
    assert "done: seed 0" in text
    if width >= 80:  # what does not fit beside the bar stands below it
        for part in ("left epoch 2/4", "elapsed evaluating 10", "\nrcad on digits, seed 1: epoch 3/10  loss 0.31"):
            assert part in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor comes back


def test_who_looks_decides(monkeypatch):
    def kinds(given=None):
        """What a command shows: as it is, quiet, beside JSON; and what a caller from Python sees."""
        shown = show_progress(), show_progress(quiet=True), show_progress(as_json=True), watched(given)
        with ExitStack() as stack:
            return [type(stack.enter_context(one)) for one in shown]

    assert kinds() == [Lines, Silent, Silent, Silent]  # a script has no lines
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert kinds() == [Bars, Silent, Bars, Bars]
    assert kinds(SILENT)[-1] is Silent
    monkeypatch.setenv(KERNEL, "1")
    assert kinds()[:3] == [Overwritten, Silent, Silent]
    monkeypatch.delenv(KERNEL)
    shell = type("Shell", (type("ZMQInteractiveShell", (), {}),), {})  # a hosted notebook has one of its own
    notebook = SimpleNamespace(get_ipython=shell, display=SimpleNamespace(display=print))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    assert kinds()[-1] is Cell
    monkeypatch.setenv("TERM", "dumb")
    assert kinds()[:3] == [Cell, Silent, Silent]
    monkeypatch.delitem(sys.modules, "IPython")
    assert kinds()[0] is Lines
