"""`--tensorboard`: the numbers of each epoch as TensorBoard scalars, beside the run's record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcad.errors import MissingExtraError
from rcad.train.progress import Row


class TensorBoard:
    """A Tracker that writes event files to a folder. The folder is made with the first numbers, not before."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", "bench") from None
        self._make: Any = SummaryWriter
        self._folder = folder
        self._writer: Any = None

    def log(self, epoch: int, row: Row) -> None:
        """One point per number; an epoch that is trained again after a resume takes the place of the old one."""
        if self._writer is None:
            self._writer = self._make(str(self._folder), purge_step=epoch)
        for name, value in row.items():
            self._writer.add_scalar(name, value, epoch)

    def close(self) -> None:
        """Put the file on disk."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
