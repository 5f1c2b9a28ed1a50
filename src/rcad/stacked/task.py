"""The data of many replicas, their metrics, and the results of their training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.predictions import label_scores, value_scores
from rcad.stacked.model import StackedMLP
from rcad.train.task import Problem

NUMBERS = 2**22
"""Activations per layer held at a time while evaluating."""


class Examples(NamedTuple):
    """Examples of every replica, or one set that all share."""

    x: Tensor  # features (R, n, D), or (1, n, D) shared
    y: Tensor  # labels int64 or scaled targets, (R, n), or (1, n) shared; (R, n, T) of several targets each

    @property
    def shared(self) -> bool:
        return len(self.x) == 1

    @property
    def length(self) -> int:
        """Examples of each replica."""
        return self.x.shape[1]

    def stacked(self) -> Examples:
        """With a dimension for the replicas, where all share one set."""
        return self if self.x.ndim == 3 else Examples(self.x[None], self.y[None])

    def take(self, index: Tensor) -> Examples:
        """Those of some of the replicas."""
        return self if self.shared else Examples(self.x[index], self.y[index])

    def expanded(self, replicas: int) -> Examples:
        """With one entry per replica, without a copy."""
        return Examples(self.x.expand(replicas, -1, -1), self.y.expand(replicas, -1))


@dataclass(frozen=True, eq=False)
class StackedProblem:
    """What the replicas learn from. Sets may be shared, (n, D), or one per replica, (R, n, D)."""

    train: Examples
    classes: int  # K; 0 for regression
    val: Examples | None = None
    target_scale: Tensor | None = None  # the deviation by which regression targets were divided, per replica (R,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "train", self.train.stacked())
        if self.val is not None:
            object.__setattr__(self, "val", self.val.stacked())
        if self.classes == 0 and self.target_scale is None:
            object.__setattr__(self, "target_scale", self.train.x.new_ones(1, dtype=torch.float64))

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> StackedProblem:
        """The problems of single runs, one per replica; their sets must be equally long."""
        sets = {}
        for name in ("train", "val"):
            pairs = [getattr(problem, name) for problem in problems]
            empty = not len(pairs[0][1])
            sets[name] = None if empty else Examples(*(torch.stack(column) for column in zip(*pairs, strict=True)))
        scales = [problem.target_scale for problem in problems if problem.target_scale is not None]
        scale = torch.tensor(scales, dtype=torch.float64, device=problems[0].device) if scales else None
        assert sets["train"] is not None
        return cls(sets["train"], problems[0].classes, sets["val"], scale)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of methods that set none."""
        return Categorical() if self.classes else Gaussian()

    @property
    def outputs(self) -> int:
        """Units of the last layer: K logits, or a mean and a log-variance."""
        return self.classes or 2

    def take(self, index: Tensor) -> StackedProblem:
        """The problem of some of the replicas; no copy of what is shared."""
        scale, val = self.target_scale, None if self.val is None else self.val.take(index)
        scale = scale if scale is None or len(scale) == 1 else scale[index]
        return replace(self, train=self.train.take(index), val=val, target_scale=scale)


@torch.no_grad()
def measure_stacked(model: StackedMLP, examples: Examples, target_scale: Tensor | None) -> dict[str, Tensor]:
    """The numbers of `measure` for each replica, float64 (R,).

    Args:
        target_scale: None for classes: accuracy (percent), nll, brier. Else (R,) or (1,), the unit in which a
            regression was trained: nll and rmse in the target's own unit.
    """
    everyone = examples.expanded(model.replicas)
    size = max(1, NUMBERS // (model.replicas * max(model.layout.sizes[1:])))
    scores = label_scores if target_scale is None else value_scores
    sums: dict[str, Tensor] = {}
    for x, y in zip(*(torch.split(values, size, dim=1) for values in everyone), strict=True):
        output = model(x).flatten(0, 1)
        for name, rows in scores(output, y.reshape(-1)).items():
            part = rows.view(model.replicas, -1).sum(1)
            sums[name] = part if name not in sums else sums[name] + part
    means = {name: total / examples.length for name, total in sums.items()}
    if target_scale is None:
        return {"accuracy": 100 * means["hit"], "nll": means["nll"], "brier": means["brier"]}
    # The density of y in its own unit is that of the scaled target divided by the scale.
    return {"nll": means["nll"] + target_scale.log(), "rmse": means["square"].sqrt() * target_scale}


@dataclass(eq=False)
class StackedResult:
    """Filled while the replicas train.

    Curves, by name (loss, accuracy, val_nll, ...), are float64 (R, E); they and the snapshots of the epochs given to
    `train_stacked` are NaN where a replica had stopped.
    """

    epochs: int  # how many are reported, from the first; 0 for none
    model: StackedMLP  # the weights of the selected epoch; of a diverged replica, those it ended with
    diverged_at: Tensor  # the epoch after which a replica's loss was no longer finite, (R,); 0 for none
    best_epoch: Tensor  # the selected epoch, (R,); 0 where none was selected
    curves: dict[str, Tensor] = field(default_factory=dict)
    snapshots: dict[int, StackedMLP] = field(default_factory=dict)

    @classmethod
    def empty(cls, model: StackedMLP, epochs: int, snapshots: Sequence[int] = ()) -> StackedResult:
        """Before the first epoch; the model is the one to begin with."""
        nothing = torch.zeros(model.replicas, dtype=torch.int64, device=model.flat.device)
        blanks = {epoch: StackedMLP(model.layout, torch.full_like(model.flat, float("nan"))) for epoch in snapshots}
        first = StackedMLP(model.layout, model.flat.clone())
        return cls(epochs, first, nothing, nothing.clone(), snapshots=blanks)

    @property
    def diverged(self) -> Tensor:
        """Which replicas stopped before the end, bool (R,)."""
        return self.diverged_at > 0
