"""What long work tells while it goes: to people by a Progress, to experiment trackers by a Tracker. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Row = Mapping[str, float]


class Progress(Protocol):
    """Shows how far something is. Every call is cheap: none of them makes a GPU wait."""

    def overall(self, done: float, total: float, text: str) -> None:
        """So much of all that was asked for is behind; the text says what is going on."""

    def detail(self, what: str, done: int, total: int, unit: str = "") -> None:
        """A piece of work inside it, e.g. ("decoding images", 300, 60000); a new one takes the last one's place.

        Args:
            total: 0 where nobody knows. The piece is over when all of it is done.
            unit: "B" for bytes.
        """

    def note(self, text: str) -> None:
        """One line that the user should see, e.g. how a run ended."""


class Silent:
    """A Progress that says nothing."""

    def overall(self, done: float, total: float, text: str) -> None:
        pass

    def detail(self, what: str, done: int, total: int, unit: str = "") -> None:
        pass

    def note(self, text: str) -> None:
        pass


SILENT = Silent()


class Portion:
    """The Progress of one part of a larger whole, e.g. of one method in a comparison.

    Args:
        before: what is behind when this part begins, in any unit.
        size: of this part, in the same unit.
        total: of all parts.
        name: said before each text.
    """

    def __init__(self, progress: Progress, before: float, size: float, total: float, name: str = "") -> None:
        self._progress, self._before, self._size, self._total, self._name = progress, before, size, total, name
        self.detail, self.note = progress.detail, progress.note

    def overall(self, done: float, total: float, text: str) -> None:
        share = done / total if total else 0.0
        words = ": ".join(part for part in (self._name, text) if part)
        self._progress.overall(self._before + share * self._size, self._total, words)


class Tracker(Protocol):
    """Receives the numbers of each epoch, e.g. for TensorBoard."""

    def log(self, epoch: int, row: Row) -> None:
        """The numbers of one epoch (from 1)."""

    def close(self) -> None:
        """The run is over."""
