"""What a stacked run gives: the numbers and the weights of every replica, and which of them diverged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rcad.loss.likelihoods import Gaussian
from rcad.loss.method import Method
from rcad.stacked.model import StackedMLP


@dataclass(eq=False)
class StackedResult:
    """Filled while the replicas train.

    Attributes:
        epochs: the epochs that were reported, from 1.
        model: the weights of the selected epoch; of a diverged replica, those it ended with.
        curves: by name (loss, accuracy, val_nll, ...), float64 (R, E); NaN where a replica had stopped or had not
            computed it.
        metrics: of the selected weights on the test set, by name, float64 (R,).
        diverged_at: the epoch after which a replica stopped because its loss was no longer finite, (R,); 0 for none.
        best_epoch: the selected epoch, (R,); 0 where none was selected.
        snapshots: the weights after the epochs that were asked for; NaN where a replica had stopped.
    """

    epochs: tuple[int, ...]
    model: StackedMLP
    diverged_at: Tensor
    best_epoch: Tensor
    curves: dict[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, Tensor] = field(default_factory=dict)
    snapshots: dict[int, StackedMLP] = field(default_factory=dict)

    @classmethod
    def empty(cls, model: StackedMLP, epochs: Sequence[int], snapshots: Sequence[int]) -> StackedResult:
        """Before the first epoch; the model is the one to begin with."""
        nothing = torch.zeros(model.replicas, dtype=torch.int64, device=model.flat.device)
        kept = {epoch: StackedMLP(model.layout, torch.full_like(model.flat, float("nan"))) for epoch in snapshots}
        return cls(tuple(epochs), model.copy(), nothing, nothing.clone(), snapshots=kept)

    @property
    def diverged(self) -> Tensor:
        """Which replicas stopped before the end, bool (R,)."""
        return self.diverged_at > 0

    def mark(self, replicas: Tensor, epoch: int) -> None:
        """These replicas (indices, or a mask) diverged in this epoch."""
        self.diverged_at[replicas] = torch.where(self.diverged_at[replicas] > 0, self.diverged_at[replicas], epoch)

    def note(self, replicas: Tensor, epoch: int, row: dict[str, Tensor]) -> None:
        """Writes the numbers of an epoch."""
        if epoch not in self.epochs:
            return
        for name, values in row.items():
            table = self._table(self.curves, name, (self.model.replicas, len(self.epochs)), values.device)
            table[replicas, self.epochs.index(epoch)] = values

    def note_metrics(self, replicas: Tensor, values: dict[str, Tensor]) -> None:
        """Writes the numbers of the test set."""
        for name, column in values.items():
            self._table(self.metrics, name, (self.model.replicas,), column.device)[replicas] = column

    def rows(self, replica: int) -> list[dict[str, float]]:
        """The reported epochs as the single run's rows, up to the one in which it diverged; finite numbers only."""
        last = int(self.diverged_at[replica]) or max(self.epochs, default=0)
        table = {name: values[replica].tolist() for name, values in self.curves.items()}
        return [
            {"epoch": float(epoch), **{name: column[k] for name, column in table.items() if math.isfinite(column[k])}}
            for k, epoch in enumerate(self.epochs)
            if epoch <= last
        ]

    def reason(self, replica: int, method: Method) -> str | None:
        """Why a replica stopped, in one sentence; None if it did not."""
        epoch = int(self.diverged_at[replica])
        if not epoch:
            return None
        text = f"the loss of replica {replica} was no longer finite in epoch {epoch}"
        uncapped = isinstance(method.likelihood, Gaussian) and method.likelihood.cap is None
        rewards = any(term.measure == "negative_entropy" and term.weight > 0 for term in method.terms)
        if uncapped and rewards:
            return f"{text}: an entropy without a cap has no maximum; use gaussian(cap=0.0) for standardised targets"
        return f"{text}: lower the learning rate or clip the gradient"

    @staticmethod
    def _table(tables: dict[str, Tensor], name: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
        if name not in tables:
            tables[name] = torch.full(shape, float("nan"), dtype=torch.float64, device=device)
        return tables[name]
