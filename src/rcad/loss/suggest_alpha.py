"""How far to step: alpha measured on the data, and looked at on a model.

alpha has the unit of the input and a window set by the distance between classes. Below the window RCAD hurts, far
above it does nothing. Half the median distance from a training example to its nearest one of another class was within
a factor of two of the best alpha on digits and on moons in up to 200 dimensions; among much noise, which lengthens all
distances, it is too large (`results/alpha`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rcad.errors import InputError, whole
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Categorical, Likelihood
from rcad.loss.model_calls import Forward, Model
from rcad.loss.perturbations import GradientStep, input_gradient

SAMPLE, BLOCK = 2_000, 512


def nearest_other_class(
    x: Tensor,
    y: Tensor,
    *,
    sample: int | None = SAMPLE,
    generator: torch.Generator | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The L2 distance from examples to their nearest one of another class.

    Args:
        x: all examples (N, ...), uint8 pixels (read as [0, 1]) or floats.
        y: labels (N,).
        sample: how many examples to ask, drawn at random; all others are still searched. None asks all.

    Returns:
        one distance per example asked, in the units of x.
    """
    if y.is_floating_point() or y.ndim != 1 or len(y) != len(x):
        raise InputError(
            f"expected one class label per example, but got {y.dtype} of shape {tuple(y.shape)}; for regression "
            "begin at alpha = 0.3 deviations of a column"
        )
    if bool((y == y[0]).all()):
        raise InputError("expected at least two classes, but all labels are equal")
    asked = torch.arange(len(x), device=x.device)
    if sample is not None and sample < len(x):
        whole("sample", sample, minimum=1)
        asked = torch.randperm(len(x), device=x.device, generator=generator)[:sample]
    rows = as_unit_float(x).flatten(1).float()
    squares = rows.square().sum(1)
    found = []
    for block in torch.split(asked, BLOCK):
        # |a - b|^2 = |a|^2 - 2 a.b + |b|^2: one matrix product picks the neighbour ...
        squared = squares - 2 * rows[block] @ rows.T
        nearest = squared.masked_fill_(y[block, None] == y, torch.inf).argmin(1)
        # ... and its distance is computed anew, free of the cancellation above.
        found.append(torch.linalg.vector_norm(rows[block] - rows[nearest], dim=1))
        if progress is not None:
            progress(sum(map(len, found)), len(asked))
    return torch.cat(found)


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
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise InputError("expected finite examples, but got NaN or inf; drop or impute those rows")
    if x.ndim == 4 and x.is_floating_point() and x.numel():
        low, high = (value.item() for value in x.aminmax())
        if low >= 0 and high > 2:
            warnings.warn(
                f"the images span [{low:.2f}, {high:.2f}] and look scaled, and so is the alpha found; divide them by "
                "255 for an alpha in [0, 1] pixels",
                stacklevel=2,
            )
    distance = nearest_other_class(x, y, sample=sample, generator=generator)
    return 0.5 * distance[apart(distance)].quantile(0.5).item()


def _tensor(name: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        if values.device.type == "meta":
            raise InputError(f"expected {name} with values, but got the meta device, which holds shapes alone")
        return values
    array = np.require(values, requirements=["C", "W"])  # torch warns of arrays that cannot be written
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise InputError(f"expected {name} to hold numbers, but got an array of {array.dtype}") from None


def apart(distance: Tensor) -> Tensor:
    """Which examples differ from their nearest one of another class, (N,); it is an error if none does."""
    found = distance > 0
    if not bool(found.any()):
        raise InputError(
            "expected examples unlike those of other classes, but each has an identical one there; give alpha a number"
        )
    return found


class Along(NamedTuple):
    """What a model says at one distance along its own adversarial directions.

    Attributes:
        alpha: the distance.
        accuracy: share of examples still classified as their label.
        entropy: mean predictive entropy, in nats.
        flipped: share of the examples that were right at x and are wrong here.
    """

    alpha: float
    accuracy: float
    entropy: float
    flipped: float


@torch.no_grad()
def along_adversarial(
    model: Model, x: Tensor, y: Tensor, alphas: Sequence[float], likelihood: Likelihood = Categorical()
) -> list[Along]:
    """Accuracy and entropy at growing distances from x, in the model's present mode; the model is left as it was.

    The direction is taken once, at x, as RCAD does.
    """
    forward = Forward(model)
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
