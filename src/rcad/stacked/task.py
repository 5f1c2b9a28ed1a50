"""What many replicas learn from, how they are measured, and what came of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.method import Method
from rcad.loss.predictions import label_scores, value_scores
from rcad.stacked.model import StackedMLP
from rcad.train.task import Problem

NUMBERS = 2**22
"""Activations per layer held at a time while evaluating."""


class Examples(NamedTuple):
    """Examples of every replica, or one set that all share.

    Attributes:
        x: features (R, n, D), or (1, n, D) shared.
        y: labels int64 or scaled targets, (R, n), or (1, n) shared.
    """

    x: Tensor
    y: Tensor

    @property
    def shared(self) -> bool:
        return len(self.x) == 1

    @property
    def length(self) -> int:
        """Examples of each replica."""
        return self.x.shape[1]

    def take(self, index: Tensor) -> Examples:
        """Those of some of the replicas."""
        return self if self.shared else Examples(self.x[index], self.y[index])

    def expanded(self, replicas: int) -> Examples:
        """With one entry per replica, without a copy."""
        return Examples(self.x.expand(replicas, -1, -1), self.y.expand(replicas, -1))

    def blocks(self, rows: int) -> Iterator[Examples]:
        """The same in pieces of at most `rows` examples a replica."""
        for x, y in zip(torch.split(self.x, rows, dim=1), torch.split(self.y, rows, dim=1), strict=True):
            yield Examples(x, y)


@dataclass(frozen=True, eq=False)
class StackedProblem:
    """What the replicas learn from. Sets may be shared, (n, D), or one per replica, (R, n, D).

    Args:
        train: training examples (x, y); floating-point features, labels int64 or scaled targets.
        val: held-out examples, or None.
        test: test examples, or None.
        classes: K; 0 for regression.
        target_scale: regression: the deviation by which the targets were divided, a number per replica (R,).
    """

    train: Examples
    classes: int
    val: Examples | None = None
    test: Examples | None = None
    target_scale: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("train", "val", "test"):
            pair = getattr(self, name)
            object.__setattr__(self, name, None if pair is None else self._examples(name, *pair))
        sets = {name: pair for name in ("train", "val", "test") if (pair := getattr(self, name)) is not None}
        if len({pair.x.shape[2] for pair in sets.values()}) > 1:
            shapes = {name: tuple(pair.x.shape) for name, pair in sets.items()}
            raise InputError(f"expected equally many features in every set, but got {shapes}")
        if self.classes == 0 and self.target_scale is None:
            object.__setattr__(self, "target_scale", self.train.x.new_ones(1, dtype=torch.float64))

    def _examples(self, name: str, x: Tensor, y: Tensor) -> Examples:
        pair = Examples(x if x.ndim == 3 else x[None], y if y.ndim == 2 else y[None])
        if pair.x.ndim != 3 or pair.y.shape != pair.x.shape[:2] or not pair.length:
            raise InputError(
                f"expected {name} features (R, n, D) with targets (R, n), but got {tuple(x.shape)} and {tuple(y.shape)}"
            )
        if not pair.x.is_floating_point() or pair.y.is_floating_point() == bool(self.classes):
            wanted = "integer labels" if self.classes else "real targets"
            raise InputError(f"expected real {name} features and {wanted}, but got {x.dtype} and {y.dtype}")
        if not (bool(pair.x.isfinite().all()) and bool(pair.y.isfinite().all())):
            raise InputError(f"expected finite {name} examples, but got NaN or inf")
        low, high = (int(value) for value in pair.y.aminmax())
        if self.classes and (low < 0 or high >= self.classes):
            raise InputError(f"expected {name} labels from 0 to {self.classes - 1}, but got {low} to {high}")
        return pair

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> StackedProblem:
        """The problems of single runs, one per replica; their sets must be equally long."""
        for problem in problems:
            if problem.train[0].ndim != 2 or problem.classes != problems[0].classes:
                raise InputError("expected tables with equally many classes to stack, but got images or another task")
        sets = {}
        for name in ("train", "val", "test"):
            pairs = [getattr(problem, name) for problem in problems]
            if len({tuple(x.shape) for x, _ in pairs}) > 1:
                shapes = sorted({tuple(x.shape) for x, _ in pairs})
                raise InputError(f"expected {name} sets of one shape to stack, but got {shapes[0]} and {shapes[-1]}")
            empty = not len(pairs[0][1])
            sets[name] = None if empty else Examples(*(torch.stack(column) for column in zip(*pairs, strict=True)))
        scales = [problem.target_scale for problem in problems if problem.target_scale is not None]
        scale = torch.tensor(scales, dtype=torch.float64, device=problems[0].device) if scales else None
        assert sets["train"] is not None
        return cls(sets["train"], problems[0].classes, sets["val"], sets["test"], scale)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of methods that set none."""
        return Categorical() if self.classes else Gaussian()

    @property
    def outputs(self) -> int:
        """Units of the last layer: K logits, or a mean and a log-variance."""
        return self.classes or 2

    def check_replicas(self, replicas: int) -> None:
        """Every set is shared or has one entry per replica."""
        scale = self.target_scale
        sizes = {name: len(pair.x) for name in ("train", "val", "test") if (pair := getattr(self, name)) is not None}
        sizes |= {} if scale is None else {"target_scale": len(scale)}
        for name, size in sizes.items():
            if size not in (1, replicas):
                raise InputError(f"expected {name} for {replicas} replicas, or one for all, but got {size}")

    def take(self, index: Tensor) -> StackedProblem:
        """The problem of some of the replicas; no copy of what is shared."""
        sets = {name: pair.take(index) for name in ("train", "val", "test") if (pair := getattr(self, name))}
        scale = self.target_scale
        return replace(self, target_scale=scale if scale is None or len(scale) == 1 else scale[index], **sets)


@torch.no_grad()
def measure_stacked(model: StackedMLP, examples: Examples, target_scale: Tensor | None) -> dict[str, Tensor]:
    """The numbers of `metrics.measure` for each replica, float64 (R,).

    Args:
        target_scale: None for classes: accuracy (percent), nll, brier. Else (R,) or (1,), the unit in which a
            regression was trained: nll and rmse in the target's own unit.
    """
    everyone = examples.expanded(model.replicas)
    widest = model.replicas * max(model.layout.sizes[1:])
    scores = label_scores if target_scale is None else value_scores
    sums: dict[str, Tensor] = {}
    for x, y in everyone.blocks(max(1, NUMBERS // widest)):
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
