"""Nested progress bars on a terminal: the grid, the run, the epoch."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from rcad.cli.views import numbers
from rcad.train.reporting import Row

_EVERY_S = 0.05
_NARROW = 70


class Bars:
    """Three bars that go when the grid is over; what a run says stands above them."""

    def __init__(self, stream: Console | None = None) -> None:
        self.console = stream or Console(file=sys.stderr, highlight=False, emoji=False, markup=False)
        narrow = self.console.width < _NARROW
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=5)),
            BarColumn(bar_width=4 if narrow else 24),
            TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
            console=self.console,
            transient=True,
            expand=False,
        )
        self._grid: TaskID | None = None
        self._run: TaskID | None = None
        self._epoch: TaskID | None = None
        self._work: TaskID | None = None
        self._before, self._epochs, self._steps, self._drawn = 0, 0, 0, 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, number: int, total: int, title: str) -> None:
        if total > 1 and self._grid is None:
            self._grid = self._progress.add_task("grid", total=total, text="")
        self._before = number - 1
        if self._grid is not None:
            self._progress.update(self._grid, completed=self._before, text=f"run {number} of {total}: {title}")
        elif total == 1:
            self._say(title, "bold")

    def end(self, text: str) -> None:
        self._clear()
        self._say(text)
        if self._grid is not None:
            self._progress.update(self._grid, completed=self._before + 1)

    def together(self, done: float, total: int, text: str) -> None:
        if self._grid is None:
            self._grid = self._progress.add_task("all", total=total, text="")
        self._before = int(done)
        if self._is_due():
            self._progress.update(self._grid, completed=done, text=text)

    def note(self, text: str) -> None:
        self._say(text, "dim")

    def preparing(self, what: str, done: int, total: int) -> None:
        if self._work is None:
            self._work = self._progress.add_task(what, total=None, text="")
        over = total > 0 and done >= total
        if over or self._is_due():
            text = f"{done:,}/{total:,}" if total else f"{done:,}"
            self._progress.update(self._work, description=what, completed=done, total=total or None, text=text)
        if over:
            self._progress.remove_task(self._work)
            self._work = None

    def started(self, epochs: int, steps: int, finished: int) -> None:
        if self._run is not None:  # the engine says it again after each checkpoint
            return
        self._clear()
        self._epochs, self._steps = epochs, max(steps, 1)
        whole = epochs * self._steps
        self._run = self._progress.add_task("run", total=whole, completed=finished * self._steps, text="")
        self._epoch = self._progress.add_task("epoch", total=self._steps, text="")
        self._progress.update(self._run, text=f"epoch {min(finished + 1, epochs)}/{epochs}")

    def stepped(self, epoch: int, step: int) -> None:
        if self._is_due():
            self._draw(epoch, step)

    def epoch(self, epoch: int, row: Row) -> None:
        if self._run is not None:
            self._progress.update(self._run, text=f"epoch {epoch}/{self._epochs}  {numbers(row)}")
            self._draw(epoch, self._steps)

    def _draw(self, epoch: int, step: int) -> None:
        if self._run is None or self._epoch is None:
            return
        done = (epoch - 1) * self._steps + step
        self._progress.update(self._run, completed=done)
        self._progress.update(self._epoch, completed=step, text=f"step {step}/{self._steps}")
        if self._grid is not None:
            self._progress.update(self._grid, completed=self._before + done / (self._epochs * self._steps))

    def _say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style), soft_wrap=True)  # a style for print() would colour the bars too

    def _clear(self) -> None:
        for task in (self._run, self._epoch, self._work):
            if task is not None:
                self._progress.remove_task(task)
        self._run = self._epoch = self._work = None

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._drawn < _EVERY_S:
            return False
        self._drawn = now
        return True
