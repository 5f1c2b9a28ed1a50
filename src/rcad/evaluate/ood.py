"""Does a model know what it does not know? Scores that tell foreign examples, and its entropy along growing steps.

A score is larger for what the model takes for its own: "in". All areas and rates are fractions; examples with equal
scores are never told apart.

Entropy against alpha is the picture of what RCAD does: how sure a model stays along its adversarial directions, and
along random ones. The direction of each example is taken once, at x, and only the distance grows, as in
`rcad.loss.suggest_alpha.along_adversarial`; here in batches, in eval mode, with quantiles and with the random control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rcad.data.dataset import Progress, no_progress
from rcad.errors import InputError, one_of, whole
from rcad.evaluate.attack_search import batches
from rcad.evaluate.robustness import device_of
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Categorical, Likelihood
from rcad.loss.model_calls import Forward, evaluating
from rcad.loss.perturbations import GradientStep, input_gradient
from rcad.loss.predictions import Check, fetch_numbers, finite_check, log_confidence, tie_bounds

SCORES = ("msp", "entropy", "energy", "max_logit")


@torch.no_grad()
def scores(output: Tensor) -> dict[str, Tensor]:
    """One number per example and score, float64 (B,), from logits (B, K).

    msp: the *logarithm* of the largest probability (Hendrycks and Gimpel, 2017), which ranks like the probability
        and is free of ties where that rounds to 1; entropy: minus the predictive entropy; energy: logsumexp of the
        logits, minus the energy of Liu et al. (2020) at T = 1; max_logit: the largest logit (Hendrycks et al., 2022).
    """
    if output.ndim != 2 or not output.is_floating_point() or output.shape[1] < 2:
        raise InputError(f"expected logits of shape (B, K), but got {output.dtype} of shape {tuple(output.shape)}")
    z = output.detach().double()
    return {
        "msp": log_confidence(z),
        "entropy": -Categorical().entropy(z),
        "energy": z.logsumexp(1),
        "max_logit": z.amax(1),
    }


def out_of_distribution(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """`detection` by every score, from logits of known (B, K) and foreign (C, K) examples: names like `msp_auroc`."""
    if inside.ndim == outside.ndim == 2 and inside.shape[1] != outside.shape[1]:
        raise InputError(
            f"expected logits of one model for both sets, but got {inside.shape[1]} and {outside.shape[1]} classes"
        )
    known, foreign = scores(inside), scores(outside.to(inside.device))
    separated = {name: separation(known[name], foreign[name]) for name in SCORES}
    values = {f"{name}_{quantity}": value for name, own in separated.items() for quantity, value in own.items()}
    return fetch_numbers(values, _checks("logits", inside, outside))


def detection(known: Tensor, foreign: Tensor) -> dict[str, float]:
    """How well any score (N,), larger for known examples, separates them from foreign ones (M,).

    auroc: the chance that a known example scores higher than a foreign one, equal scores counting one half.
    aupr_in, aupr_out: average precision with the known, and with the foreign examples (by minus the score), as
        positives: sum of (recall gained) * precision over the distinct scores, without interpolation. A constant
        score gives the share of positives.
    fpr95: share of foreign examples accepted (score >= threshold) at the highest threshold that accepts at least
        95% of the known ones.
    """
    known, foreign = known.detach().double(), foreign.detach().double().to(known.device)
    return fetch_numbers(separation(known, foreign), _checks("scores", known, foreign))


def separation(known: Tensor, foreign: Tensor) -> dict[str, Tensor]:
    """The numbers of `detection`, on the device, in O(n log n)."""
    if known.ndim != 1 or foreign.ndim != 1 or len(known) == 0 or len(foreign) == 0:
        raise InputError(
            "expected one score per example and at least one example of each kind, "
            f"but got shapes {tuple(known.shape)} and {tuple(foreign.shape)}"
        )
    below = foreign.sort().values
    ranks = torch.searchsorted(below, known) + torch.searchsorted(below, known, right=True)
    threshold = known.sort(descending=True).values[-(-95 * len(known) // 100) - 1]
    return {
        "auroc": 0.5 * ranks.double().mean() / len(foreign),
        "aupr_in": average_precision(known, foreign),
        "aupr_out": average_precision(-foreign, -known),
        "fpr95": (foreign >= threshold).double().mean(),
    }


def average_precision(positive: Tensor, negative: Tensor) -> Tensor:
    """The mean, over the positives, of the precision at their own score as threshold."""
    ordered, order = torch.cat([-positive, -negative]).sort()
    true = (order < len(positive)).double()
    _, after = tie_bounds(ordered)
    precision = true.cumsum(0)[after - 1] / after
    return (true * precision).sum() / len(positive)


def _checks(name: str, known: Tensor, foreign: Tensor) -> tuple[Check, ...]:
    hint = "the model has diverged or its input is not finite"
    return tuple(finite_check(name, values.to(known.device), hint) for values in (known, foreign))


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
    batch_size: int = 1024,
    generator: torch.Generator | None = None,
    progress: Progress = no_progress,
) -> AlphaCurve:
    """Entropy and accuracy at x' for every alpha; the model runs in eval mode and is left as it was.

    Args:
        x: inputs (N, ...), uint8 pixels (read as [0, 1]) or floats, on any device.
        alphas: L2 distances in the units of x, as `GradientStep` takes them; 0 gives the clean inputs.
        likelihood: for a Gaussian head give `Gaussian(cap=None)`, or the entropy ends at the cap.
        generator: of the random directions, on the model's device.
        progress: called with (done, total) examples after each batch.
    """
    one_of("direction", direction, ("adversarial", "random"))
    whole("batch_size", batch_size, minimum=1)
    steps = [GradientStep(float(alpha)) for alpha in alphas]
    if not steps or len(x) == 0 or len(x) != len(y):
        raise InputError(
            f"expected at least one alpha and one target per example, but got {len(steps)} alphas, {len(x)} examples "
            f"and {len(y)} targets"
        )
    device = device_of(model, x)
    classes = not y.is_floating_point()
    entropies, hits, stuck = [], [], []
    with evaluating(model):
        first = Forward(model)(as_unit_float(x[:1].to(device)))
        if hasattr(likelihood, "check_shapes"):
            likelihood.check_shapes(first, y[:1].to(device))
        if hasattr(likelihood, "check_values"):
            likelihood.check_values(first, y)
        for part, target in batches(x, y, batch_size, device):
            if direction == "adversarial":
                uphill = input_gradient(model, part, target, likelihood)
            else:
                uphill = torch.randn(part.shape, device=device, dtype=part.dtype, generator=generator)
            stuck.append((uphill == 0).flatten(1).all(1))
            outputs = [Forward(model)(step(model, part, target, likelihood, gradient=uphill)) for step in steps]
            entropies.append(torch.stack([likelihood.entropy(output.double()) for output in outputs]))
            if classes:
                hits.append(torch.stack([output.argmax(1) == target for output in outputs]))
            progress(sum(map(len, stuck)), len(x))
    entropy = torch.cat(entropies, 1)
    at = entropy.new_tensor(QUANTILES)
    return AlphaCurve(
        direction,
        tuple(float(alpha) for alpha in alphas),
        QUANTILES,
        tuple(entropy.mean(1).tolist()),
        tuple(tuple(row.quantile(at).tolist()) for row in entropy),
        tuple((100 * torch.cat(hits, 1).double().mean(1)).tolist()) if hits else (),
        torch.cat(stuck).double().mean().item(),
    )
