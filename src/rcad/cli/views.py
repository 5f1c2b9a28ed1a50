"""How the progress of a grid of runs is shown. A view is the engine's Reporter, told besides where the grid stands."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from typing import Protocol, Self

from rcad.cli.screen import is_terminal
from rcad.runs.words import duration, metric
from rcad.train.reporting import Reporter, Row, Silent

_EVERY_S, _TOGETHER_S = 1.0, 5.0
_SHOWN = (("loss",), ("val_accuracy", "accuracy", "val_rmse"), ("val_nll",))


class View(Reporter, Protocol):
    """A Reporter for many runs; a context so that a terminal is left as it was found."""

    def begin(self, number: int, total: int, title: str) -> None:
        """Run `number` (from 1) of `total` begins."""

    def end(self, text: str) -> None:
        """It ended, as the text says."""

    def together(self, done: float, total: int, text: str) -> None:
        """Of `total` runs that go side by side, so many are done, parts of runs counted."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def view(*, quiet: bool, as_json: bool) -> View:
    """Bars on stderr where that is a terminal, else lines on stdout; nothing for `--quiet`, no lines for `--json`."""
    if quiet:
        return Nothing()
    if is_terminal(sys.stderr):
        from rcad.cli.bars import Bars

        return Bars()
    return Nothing() if as_json else Lines()


def numbers(row: Row) -> str:
    """The telling numbers of an epoch: "loss 0.412  val_accuracy 91.3%"."""
    shown = [next((name for name in names if name in row), None) for names in _SHOWN]
    return "  ".join(f"{name} {metric(name, row[name])}" for name in shown if name is not None)


class Nothing(Silent):
    """Shows nothing."""

    def begin(self, number: int, total: int, title: str) -> None:
        pass

    def end(self, text: str) -> None:
        pass

    def together(self, done: float, total: int, text: str) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Lines(Nothing):
    """Plain lines, at most one a second: a log of 200 short epochs should stay readable."""

    def __init__(self) -> None:
        self._epochs = 0
        self._first = 0
        self._started = 0.0
        self._last_line = float("-inf")

    def begin(self, number: int, total: int, title: str) -> None:
        self._epochs = 0
        self._say(f"[{number}/{total}] {title}")

    def end(self, text: str) -> None:
        self._say(f"  {text}")

    def together(self, done: float, total: int, text: str) -> None:
        self._started = self._started or time.monotonic()
        if time.monotonic() - self._last_line >= _TOGETHER_S:
            left = (time.monotonic() - self._started) * (total - done) / done if done else math.inf
            self._say(f"  {text}  {duration(left)} left")

    def note(self, text: str) -> None:
        self._say(f"  {text}")

    def preparing(self, what: str, done: int, total: int) -> None:
        if self._is_due() or done == total:
            self._say(f"  {what} {done:,}" + (f"/{total:,}" if total else ""))

    def started(self, epochs: int, steps: int, finished: int) -> None:
        if not self._epochs:  # the engine says it again after each checkpoint
            self._epochs, self._first, self._started = epochs, finished, time.monotonic()
            self._last_line = float("-inf")

    def epoch(self, epoch: int, row: Row) -> None:
        if self._is_due() or epoch == self._epochs:
            a_epoch = (time.monotonic() - self._started) / max(epoch - self._first, 1)
            left = duration(a_epoch * (self._epochs - epoch)) + " left" if epoch < self._epochs else ""
            self._say(f"  epoch {epoch}/{self._epochs}  {numbers(row)}  {left}".rstrip())

    def _is_due(self) -> bool:
        return time.monotonic() - self._last_line >= _EVERY_S

    def _say(self, text: str) -> None:
        self._last_line = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # `| head` has seen enough; hours of training must not end with it
            print(text, flush=True)
