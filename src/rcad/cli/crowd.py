"""Runs that go side by side, shown as one: a line for all of them, and each one's end."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from rcad.cli.views import View, numbers
from rcad.runs.words import plural
from rcad.train.reporting import Reporter, Row


class Crowd:
    """What the reporters of many runs add up to.

    Args:
        view: where it is shown.
        total: how many runs there are, those that wait included.
    """

    def __init__(self, view: View, total: int) -> None:
        self._view, self._total = view, total
        self._members: dict[int, Member] = {}
        self._notes: set[str] = set()
        self._ended = 0

    def member(self, index: int) -> Reporter:
        """The reporter of one run."""
        self._members[index] = Member(self._show, self._note, self._view.preparing)
        return self._members[index]

    def end(self, index: int, text: str) -> None:
        """A run is over."""
        self._members.pop(index, None)
        self._ended += 1
        self._view.end(text)

    def _note(self, text: str) -> None:
        """What ten runs say, once."""
        if text not in self._notes:
            self._notes.add(text)
            self._view.note(text)

    def _show(self) -> None:
        running = [one for one in self._members.values() if one.steps]
        if not running:
            return
        done = sum(one.share for one in running) + self._ended
        finished = sorted(one.finished for one in running)
        span = f"{finished[0]}" if finished[0] == finished[-1] else f"{finished[0]} to {finished[-1]}"
        rows = [one.row for one in running if one.row]
        text = f"{plural(len(running), 'run')} at once, epoch {span} of {max(one.epochs for one in running)}"
        if rows:
            common = set.intersection(*(set(row) for row in rows))
            text += "  mean " + numbers({name: statistics.fmean(row[name] for row in rows) for name in common})
        self._view.together(done, self._total, text)


class Member:
    """The reporter of one run in a crowd."""

    def __init__(
        self, changed: Callable[[], None], note: Callable[[str], None], preparing: Callable[[str, int, int], None]
    ) -> None:
        self.note, self.preparing, self._changed = note, preparing, changed
        self.epochs = self.steps = self.finished = 0
        self.share = 0.0
        self.row: Row = {}

    def started(self, epochs: int, steps: int, finished: int) -> None:
        self.epochs, self.steps, self.finished = epochs, steps, finished

    def stepped(self, epoch: int, step: int) -> None:
        self.share = (epoch - 1 + step / max(self.steps, 1)) / self.epochs

    def epoch(self, epoch: int, row: Row) -> None:
        self.finished, self.row, self.share = epoch, row, epoch / self.epochs
        self._changed()
