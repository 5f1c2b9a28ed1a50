"""What a run tells while it goes: to people by a Reporter, to experiment trackers by a Tracker. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Row = Mapping[str, float]


class Reporter(Protocol):
    """Shows progress. Every call is cheap: none of them makes a GPU wait."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Work before or between epochs, e.g. ("decoding images", 300, 60000)."""

    def started(self, epochs: int, steps: int, finished: int) -> None:
        """Training begins: so many epochs of so many steps, of which `finished` epochs are already done."""

    def stepped(self, epoch: int, step: int) -> None:
        """Step number `step` (from 1) of epoch number `epoch` (from 1) was launched."""

    def epoch(self, epoch: int, row: Row) -> None:
        """An epoch (from 1) is over; the row holds its numbers, e.g. loss, accuracy, val_accuracy, lr."""

    def note(self, text: str) -> None:
        """One line that the user should see, e.g. that a run goes on from its checkpoint."""


class Silent:
    """A Reporter that says nothing."""

    def preparing(self, what: str, done: int, total: int) -> None:
        pass

    def started(self, epochs: int, steps: int, finished: int) -> None:
        pass

    def stepped(self, epoch: int, step: int) -> None:
        pass

    def epoch(self, epoch: int, row: Row) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class Tracker(Protocol):
    """Receives the numbers of each epoch, e.g. for TensorBoard."""

    def log(self, epoch: int, row: Row) -> None:
        """The numbers of one epoch (from 1)."""

    def close(self) -> None:
        """The run is over."""
