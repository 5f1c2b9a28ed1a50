"""Entropy against alpha: how sure a model stays along its adversarial directions, and along random ones.

The picture of what RCAD does. The direction of each example is taken once, at x, and only the distance grows, as in
`rcad.alpha.along_adversarial`; here in batches, in eval mode, with quantiles and with the random control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rcad.errors import InputError, one_of, whole
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Categorical, Likelihood
from rcad.loss.model_calls import Forward, evaluating
from rcad.loss.perturbations import GradientStep, input_gradient

Direction = Literal["adversarial", "random"]
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class AlphaCurve:
    """What a model says at growing distances; one entry per alpha.

    Attributes:
        entropy: mean predictive entropy, in nats.
        quantiles: of the entropy over examples, one tuple per alpha, at `levels`.
        accuracy: percent of examples still classified as their label; empty where targets are real numbers.
        unmoved: share of examples whose gradient is exactly zero (a loss that rounds to 0): they stay at x.
    """

    direction: Direction
    alphas: tuple[float, ...]
    levels: tuple[float, ...]
    entropy: tuple[float, ...]
    quantiles: tuple[tuple[float, ...], ...]
    accuracy: tuple[float, ...]
    unmoved: float


@torch.no_grad()
def entropy_against_alpha(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    alphas: Sequence[float],
    likelihood: Likelihood = Categorical(),
    *,
    direction: Direction = "adversarial",
    bounds: tuple[float, float] | None = None,
    levels: Sequence[float] = QUANTILES,
    batch_size: int = 1024,
    generator: torch.Generator | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AlphaCurve:
    """Entropy and accuracy at x' for every alpha; the model runs in eval mode and is left as it was.

    Args:
        x: inputs (N, ...), uint8 pixels (read as [0, 1]) or floats, on any device.
        alphas: L2 distances in the units of x, as `GradientStep` takes them; 0 gives the clean inputs.
        likelihood: for a Gaussian head give `Gaussian(cap=None)`, or the entropy ends at the cap.
        bounds: limits on x'; None, as in RCAD, leaves it free.
        generator: of the random directions, on the model's device.
        progress: called with (done, total) examples after each batch.
    """
    one_of("direction", direction, ("adversarial", "random"))
    whole("batch_size", batch_size, minimum=1)
    steps = [GradientStep(float(alpha), bounds=bounds) for alpha in alphas]
    if not steps or len(x) == 0 or len(x) != len(y):
        raise InputError(
            f"expected at least one alpha and one target per example, but got {len(steps)} alphas, {len(x)} examples "
            f"and {len(y)} targets"
        )
    if not levels or not all(0 <= level <= 1 for level in levels):
        raise InputError(f"expected levels of quantiles from 0 to 1, but got {levels!r}")
    device = next((p.device for p in model.parameters()), x.device)
    classes = not y.is_floating_point()
    entropies, hits, stuck = [], [], []
    with evaluating(model):
        _check(Forward(model)(as_unit_float(x[:1].to(device))), y, likelihood)
        for some, target in zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True):
            some, target = as_unit_float(some.to(device)), target.to(device)
            if direction == "adversarial":
                uphill = input_gradient(model, some, target, likelihood)
            else:
                uphill = torch.randn(some.shape, device=device, dtype=some.dtype, generator=generator)
            stuck.append((uphill == 0).flatten(1).all(1))
            outputs = [Forward(model)(step(model, some, target, likelihood, gradient=uphill)) for step in steps]
            entropies.append(torch.stack([likelihood.entropy(output.double()) for output in outputs]))
            if classes:
                hits.append(torch.stack([output.argmax(1) == target for output in outputs]))
            if progress is not None:
                progress(sum(map(len, stuck)), len(x))
    return _curve(direction, alphas, levels, torch.cat(entropies, 1), hits, torch.cat(stuck))


def _check(output: Tensor, y: Tensor, likelihood: Likelihood) -> None:
    """That the targets fit the model, told from the output of one example."""
    if hasattr(likelihood, "check_shapes"):
        likelihood.check_shapes(output, y[:1].to(output.device))
    if hasattr(likelihood, "check_values"):
        likelihood.check_values(output, y)


def _curve(
    direction: Direction,
    alphas: Sequence[float],
    levels: Sequence[float],
    entropy: Tensor,
    hits: list[Tensor],
    stuck: Tensor,
) -> AlphaCurve:
    at = entropy.new_tensor(list(levels))
    columns = [entropy.mean(1)[None], torch.stack([row.quantile(at) for row in entropy], 1)]
    columns += [100 * torch.cat(hits, 1).double().mean(1)[None]] if hits else []
    *table, unmoved = torch.cat([torch.cat(columns).reshape(-1), stuck.double().mean()[None]]).tolist()
    width = len(alphas)
    rows = [tuple(table[k : k + width]) for k in range(0, len(table), width)]
    return AlphaCurve(
        direction,
        tuple(float(alpha) for alpha in alphas),
        tuple(float(level) for level in levels),
        rows[0],
        tuple(zip(*rows[1 : 1 + len(levels)], strict=True)),
        rows[-1] if hits else (),
        unmoved,
    )
