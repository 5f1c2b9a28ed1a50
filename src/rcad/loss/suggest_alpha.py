"""How far to step: alpha measured on the data, and looked at on a model.

Below a window set by the distance between classes RCAD hurts, far above it does nothing. Half the median distance from
an example to its nearest one of another class was within a factor of two of the best alpha on digits, moons and, by
accuracy, CIFAR-100; among much noise, and by likelihood there, it is up to ten times too large (`results/alpha`).
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rcad.errors import InputError, whole
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import LABELS_OR_NUMBERS, Bernoulli, Categorical, Gaussian, Likelihood
from rcad.loss.model_calls import Forward, Inputs, Model, View
from rcad.loss.objective import Loss, full_scale
from rcad.loss.perturbations import GradientStep, Move, OfInputs, RandomStep, input_gradient, masked
from rcad.loss.terms import Term

SAMPLE, BLOCK = 2_000, 512


def nearest_other_class(
    x: Tensor,
    y: Tensor,
    *,
    sample: int | None = SAMPLE,
    generator: torch.Generator | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The L2 distance from examples to their nearest one of another class, in the units of x.

    Args:
        x: all examples (N, ...), uint8 pixels (read as [0, 1]) or floats.
        y: labels (N,).
        sample: for how many examples, drawn at random; all are searched for neighbours. None takes all.
    """
    if y.is_floating_point() or y.ndim != 1 or len(y) != len(x):
        raise InputError(
            f"expected one class label per example, but got {y.dtype} of shape {tuple(y.shape)}; for regression "
            "begin at alpha = 0.3 on standardised columns"
        )
    if not len(y) or bool((y == y[0]).all()):
        raise InputError(f"expected at least two classes, but {'all labels are equal' if len(y) else 'got no labels'}")
    sampled = torch.arange(len(x), device=x.device)
    if sample is not None and sample < len(x):
        whole("sample", sample, minimum=1)
        sampled = torch.randperm(len(x), device=x.device, generator=generator)[:sample]
    rows = _rows(x)
    centred = (rows - rows.mean(0)).float()  # an offset that all share would take the digits of what follows
    squares = centred.square().sum(1)
    distances: list[Tensor] = []
    for block in torch.split(sampled, BLOCK):
        # |a - b|^2 = |a|^2 - 2 a.b + |b|^2: one matrix product picks the neighbour ...
        squared = squares - 2 * centred[block] @ centred.T
        nearest = squared.masked_fill_(y[block, None] == y, torch.inf).argmin(1)
        # ... and its distance is computed anew, free of the cancellation above.
        distances.append(torch.linalg.vector_norm(rows[block] - rows[nearest], dim=1).float())
        if progress is not None:
            progress(sum(map(len, distances)), len(sampled))
    return torch.cat(distances)


def _rows(x: Tensor) -> Tensor:
    """The examples as rows of float32, or of float64 where they have more digits, which an offset may take."""
    flat = as_unit_float(x).flatten(1) if x.ndim > 1 else as_unit_float(x)[:, None]
    return flat.float() if flat.dtype == torch.float32 or flat.dtype.itemsize < 4 else flat.double()


def suggest_alpha(x: Any, y: Any, *, sample: int | None = SAMPLE, generator: torch.Generator | None = None) -> float:
    """Half the median distance to the nearest example of another class: a starting point for alpha (norm "l2").

    An example that has an identical one of another class says nothing of the gap between classes and is left out.

    Args:
        x: all examples (N, ...), a tensor or an array: uint8 pixels (read as [0, 1]) or floats, whose unit alpha has.
        y: labels (N,), whole numbers.
        sample, generator: see `nearest_other_class`.

    Example:
        >>> x, y = torch.tensor([[0.0], [1.0], [1.2], [2.0]]), torch.tensor([0, 1, 1, 0])
        >>> round(suggest_alpha(x, y), 2)
        0.45
    """
    x, y = _tensor("x", x), _tensor("y", y)
    kind: type[float] = float
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise InputError("expected finite examples, but got NaN or inf; drop or impute those rows")
    if x.ndim == 4 and x.is_floating_point() and x.numel():
        low, high = (value.item() for value in x.aminmax())
        if low >= 0 and high > 2:
            warnings.warn(
                f"the images span [{low:.2f}, {high:.2f}] and look scaled, and so is the alpha found; divide them by "
                f"{full_scale(high)} for an alpha in [0, 1] pixels",
                stacklevel=2,
            )
        elif low < -0.1 or high > 1.1:
            kind = OfInputs
    distance = nearest_other_class(x, y, sample=sample, generator=generator)
    alpha = kind(0.5 * distance[apart(distance)].quantile(0.5).item())
    if not math.isfinite(alpha):
        raise InputError(f"expected examples whose distances can be measured, but got {alpha}; scale their columns")
    return alpha


def _tensor(name: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        if values.device.type == "meta":
            raise InputError(f"expected {name} with values, but got the meta device, which holds shapes alone")
        return values
    array = np.require(values, requirements=["C", "W"])  # torch warns of arrays that cannot be written
    try:
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except TypeError:
        raise InputError(f"expected {name} to hold numbers, but got an array of {array.dtype}") from None


def apart(distance: Tensor) -> Tensor:
    """Which examples differ from their nearest one of another class, (N,); it is an error if none does."""
    differs = distance > 0
    if not bool(differs.any()):
        raise InputError(
            "expected examples unlike those of other classes, but each has an identical one there; give alpha a "
            "number, e.g. rcad(alpha=1.0)"
        )
    return differs


class Along(NamedTuple):
    """What a model says at one distance along its own adversarial directions."""

    alpha: float
    accuracy: float  # share of examples still classified as their label
    entropy: float  # mean predictive entropy, in nats
    flipped: float  # share of the examples that were right at x and are wrong here


@torch.no_grad()
def along_adversarial(model: Model, x: Tensor, y: Tensor, alphas: Sequence[float]) -> list[Along]:
    """Accuracy and entropy at growing distances along the direction at x; the model is used, and left, as it is."""
    forward, likelihood = Forward(model), Categorical()
    gradient = input_gradient(model, x, y, likelihood)
    right = forward(x).argmax(1) == y
    rows = []
    for alpha in alphas:
        output = forward(GradientStep(float(alpha))(model, x, y, likelihood, gradient=gradient))
        still = output.argmax(1) == y
        flipped = (right & ~still).sum() / right.sum().clamp(min=1)
        values = torch.stack([still.float().mean(), likelihood.entropy(output).mean(), flipped.float()]).tolist()
        rows.append(Along(float(alpha), *values))
    return rows


def flip_distance(rows: Sequence[Along]) -> float | None:
    """The smallest distance at which half of the right predictions have flipped; below it RCAD tends to hurt."""
    return next((row.alpha for row in rows if row.flipped >= 0.5), None)


log = logging.getLogger("rcad")

STEPS = (GradientStep, RandomStep)
BATCHES = 16  # the last batch that is looked at; before it those whose number is a power of two
NUMBERS = 2**25  # how many numbers of the inputs are kept until then
REAL_STEP = 0.3  # alpha for the regression targets of a table: in deviations of a column
FAR_BELOW = 0.15  # an alpha that is a smaller share of the measured one is warned of
REMEDY = "give alpha a number, e.g. RCAD(alpha=rcad.suggest_alpha(x, y))"


class Gauge:
    """Measures alpha for the terms of a loss that ask for it; `watch` warns where one that was given is far below."""

    def __init__(self, asked: Loss, *, watch: bool = False) -> None:
        moved = [term for term in asked.terms if term.where is not None]
        if all(_is_open(term) and getattr(term.where, "bounds", None) is None for term in moved):
            asked = replace(asked, units="input")  # those of whatever is measured
        self.asked = asked
        self.alpha: float | None = None
        self.batches = 0
        self._seen: list[tuple[Tensor, Tensor]] = []
        self._waits = any(_is_open(term) for term in asked.terms)
        self._watches = watch and not self._waits

    @property
    def settled(self) -> bool:
        return not self._waits or self.batches >= BATCHES

    @property
    def busy(self) -> bool:
        """Whether the next batch is to be looked at."""
        watches = self._watches and not torch.compiler.is_compiling()
        return (watches or not self.settled) and torch.is_grad_enabled()

    def loss(self) -> Loss:
        if not self._waits:
            return self.asked
        terms = []
        for term in self.asked.terms:
            if not _is_open(term):
                terms.append(term)
            elif self.alpha is not None:  # until then a term that waits for it rests
                terms.append(replace(term, where=replace(term.where, alpha=self.alpha)))  # type: ignore[type-var]
        return replace(self.asked, terms=tuple(terms))

    def look(self, model: Model, x: Inputs, target: Tensor, step: int, options: Mapping[str, Any]) -> Loss:
        """The loss for this batch, which is looked at first."""
        plan = self.asked.plan(step)
        views = self.asked.views(model, plan, x, target, **options)
        for view, term in ((view, term) for look, view in zip(plan.looks, views, strict=True) for term in look.terms):
            if isinstance(term.where, STEPS) and (_is_open(term) or self._watches):
                self._add(view, term.where, term.likelihood or self.asked.likelihood)
                break
        return self.loss()

    def load(self, alpha: float | None, batches: int) -> None:
        """Go on with what was measured before; where batches were still to come, alpha stays as it is."""
        self.alpha, self._seen = alpha if self._waits else None, []
        self.batches = BATCHES if self.alpha is not None else batches

    def _add(self, view: View, move: Move, likelihood: Likelihood) -> None:
        x = view.x.detach()
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        target = view.target
        if isinstance(likelihood, Categorical) and target.is_floating_point() and target.ndim < 2:
            raise InputError(  # before they are taken for anything else
                f"expected integer labels, or a probability for each class, but got {target.dtype} of shape "
                f"{tuple(target.shape)}; {LABELS_OR_NUMBERS}"
            )
        x = masked(x if move.std is None else x * move._like(move.std, x), view.mask)
        if self._watches:
            self._watches = False
            for words in far_below([move], x, target, likelihood):
                log.warning(words)
            return
        self.batches += 1
        alike = bool(self._seen) and x.shape[1:] == self._seen[0][0].shape[1:]
        if alike and target.shape[1:] != self._seen[0][1].shape[1:]:
            self._seen = []  # targets of another shape for such inputs: the likelihood refused those before
        room = min(SAMPLE, NUMBERS // max(x[0].numel(), 1)) - sum(len(part) for part, _ in self._seen)
        if not self._seen or (alike and room > 0):
            self._seen = [*self._seen, (x[: max(room, 2)].clone(), target[: max(room, 2)].detach().clone())]
        if self.alpha is None or self.batches & (self.batches - 1) == 0:
            self._measure(likelihood)
        if self.settled:
            self._seen = []

    def _measure(self, likelihood: Likelihood) -> None:
        x, target = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        alpha = _mean_over_processes(measured(x, target, likelihood), x.device)
        first, self.alpha = self.alpha is None, alpha if alpha is None else float(f"{alpha:.4g}")
        if self.alpha is None:
            if self.batches >= BATCHES:
                raise InputError(
                    f"expected the first {BATCHES} batches to differ in their labels, so that alpha can be measured, "
                    f"but they are all equal; shuffle the examples, or {REMEDY}"
                )
        elif self.settled:
            log.info("alpha = %.4g, measured on %d examples of the first %d batches", self.alpha, len(x), BATCHES)
        elif first:
            log.info("alpha = %.4g, measured on the first %d examples; more will follow", self.alpha, len(x))


def far_below(moves: Iterable[Move], x: Tensor, target: Tensor, likelihood: Likelihood) -> list[str]:
    """A sentence for each step that is far shorter than the distance between the classes of these examples."""
    distances = [move.distance for move in moves if move.norm == "l2" and move.distance]
    if not distances or _real(target, likelihood) or not x.is_floating_point():
        return []
    half = measured(x, target, likelihood)
    return [
        f"alpha={alpha:g} is far below {half:.3g}, half the median distance between classes in the first examples; so "
        "short a step tends to make models worse. alpha='auto' takes the measured one"
        for alpha in distances
        if half is not None and alpha < FAR_BELOW * half
    ]


def measured(x: Tensor, target: Tensor, likelihood: Likelihood) -> float | None:
    """alpha for these examples, see `suggest_alpha` and `among_reals`; None where they are too few, or of one class."""
    if len(x) < 2:
        return None
    if _real(target, likelihood):
        return among_reals(x, target)
    soft = target.is_floating_point() and not isinstance(likelihood, Bernoulli)
    labels = target.argmax(1) if soft else target
    if labels.ndim > 1 or labels.is_floating_point():  # several labels for each example: alike or not
        labels = torch.unique(labels.flatten(1) if labels.ndim > 1 else labels, dim=0, return_inverse=True)[1]
    if bool((labels == labels[0]).all()):
        return None
    own = torch.Generator(x.device).manual_seed(0)  # the user's random numbers stay as they are
    return _half_median(nearest_other_class(x, labels, generator=own))


def _real(target: Tensor, likelihood: Likelihood) -> bool:
    """Whether targets are real numbers and no classes: a Gaussian's, and those of a likelihood of one's own."""
    classes = isinstance(likelihood, Categorical | Bernoulli) or target.ndim > 1 or not target.is_floating_point()
    return isinstance(likelihood, Gaussian) or not classes


def among_reals(x: Tensor, target: Tensor) -> float | None:
    """alpha for regression targets: in a table a share of the deviation of its columns, else as between classes.

    Then an example whose target is a deviation away or more stands for one of another class.
    """
    rows = _rows(x)
    if x.ndim <= 2:
        return REAL_STEP * rows.var(0, correction=0).mean().sqrt().item() or None
    y = target.flatten(1).float() if target.ndim > 1 else target.float()[:, None]
    near = torch.cdist(y, y) < y.std(0).norm()
    rows = rows - rows.mean(0)
    distance = torch.cdist(rows, rows).masked_fill(near, torch.inf).amin(1)
    return _half_median(distance[distance.isfinite()])


def _half_median(distance: Tensor) -> float | None:
    """Half the median of the distances above 0; None where there are none."""
    distance = distance[distance > 0]
    return 0.5 * distance.quantile(0.5).item() if len(distance) else None


def _is_open(term: Term) -> bool:
    return isinstance(term.where, STEPS) and isinstance(term.where.alpha, str)


def _mean_over_processes(alpha: float | None, device: torch.device) -> float | None:
    """The mean over the processes of a distributed training that measured something."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not distributed or torch.distributed.get_world_size() == 1:
        return alpha
    sums = torch.tensor([alpha or 0.0, float(alpha is not None)], device=device)
    torch.distributed.all_reduce(sums)
    total, count = sums.tolist()
    return total / count if count else None
