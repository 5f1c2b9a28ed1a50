"""Losses of every kind, and one step of each in either way: pass by pass, or one graph for all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rcad import Categorical, Criterion, GradientStep, Losses, ProjectedAscent, RandomStep, Term
from small_nets import assert_same_state, images, norm_net

STEP = GradientStep(0.5)
PLAIN = GradientStep(0.4, loss="plain")
NLL, RCAD = Term("nll"), Term("rcad", "negative_entropy", 0.1, STEP)
SMOOTHED = Categorical(0.3)


@dataclass(frozen=True)
class Case:
    """A loss; `third` says whether its directions take backwards of their own, `passes` counts forward and backward."""

    terms: tuple[Term, ...]
    likelihood: Categorical = field(default_factory=Categorical)
    third: bool = False
    passes: tuple[int, int] = (2, 2)


CASES = {
    "erm": Case((NLL,), passes=(1, 1)),
    "rcad": Case((NLL, RCAD)),
    "raw norm": Case((NLL, Term("rcad", "negative_entropy", 0.1, GradientStep(0.5, "raw")))),
    "heavy clean term": Case((Term("nll", weight=3.0), RCAD)),
    "moved term first": Case((RCAD, NLL)),
    "several steps and noise": Case(
        (NLL, Term("rcad", "negative_entropy", 0.1, GradientStep(0.5, "linf", steps=2, jitter=0.01))), passes=(3, 3)
    ),
    "one direction for two terms": Case((NLL, RCAD, Term("adv", weight=0.5, where=STEP)), passes=(3, 3)),
    "random": Case((NLL, Term("rcad", "negative_entropy", 0.1, RandomStep(0.5)))),
    "random alone": Case((Term("moved", where=RandomStep(0.5)),), passes=(1, 1)),
    "random start alone": Case((Term("moved", where=ProjectedAscent(0.5, steps=2, random_start=True)),), passes=(3, 3)),
    "adversarial": Case((Term("adv", where=STEP),), third=True),
    "two adversarial": Case((Term("adv", where=STEP), Term("more", where=PLAIN)), third=True, passes=(3, 3)),
    "two clean terms": Case((NLL, Term("penalty", "negative_entropy", 0.2), RCAD), third=True, passes=(2, 3)),
    "clean entropy": Case((Term("penalty", "negative_entropy", 0.2), RCAD), third=True, passes=(2, 3)),
    "clean term turned": Case((Term("nll", weight=-0.3), RCAD), third=True, passes=(2, 3)),
    "direction from the plain loss": Case(
        (NLL, Term("rcad", "negative_entropy", 0.1, PLAIN)), SMOOTHED, third=True, passes=(2, 3)
    ),
    "clean term smoothed alone": Case((Term("nll", likelihood=SMOOTHED), RCAD), third=True, passes=(2, 3)),
    "two directions": Case((NLL, RCAD, Term("adv", weight=0.5, where=PLAIN)), SMOOTHED, third=True, passes=(3, 5)),
    "two directions alone": Case(
        (Term("adv", where=STEP), Term("plain", where=PLAIN)), SMOOTHED, third=True, passes=(3, 4)
    ),
    "two views": Case((NLL, Term("raw", view="raw"), Term("moved", where=STEP, view="raw")), passes=(3, 3)),
    "other view": Case((NLL, Term("moved", where=STEP, view="raw")), third=True, passes=(3, 3)),
    "each view its own": Case((RCAD, NLL, Term("moved", where=RandomStep(0.2), view="raw")), passes=(3, 3)),
}
THIRD = {name: case for name, case in CASES.items() if case.third}
SINGLE = {name: case for name, case in CASES.items() if all(term.view == "batch" for term in case.terms)}


class LoudScaler:
    """A GradScaler whose factor stays where it is."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.factor


def take(
    fused: bool, case: Case, net: Any, x: Any, y: Tensor, *, criterion: Criterion | None = None, **options: Any
) -> tuple[Losses, torch.Generator]:
    """One step from fixed random states; returns the losses and the generator as it was left."""
    generator = torch.Generator().manual_seed(7)
    torch.manual_seed(11)
    criterion = criterion or Criterion(case.likelihood, case.terms, units="input")
    if fused:
        return criterion.backward(net, x, y, generator=generator, **options), generator
    scaler, accumulate = options.pop("scaler", LoudScaler(1.0)), options.pop("accumulate", 1)
    losses = criterion.losses(net, x, y, generator=generator, **options)
    scaler.scale(losses.total / accumulate).backward()
    return losses, generator


def assert_equal_steps(
    case: Case, make: Callable[[], nn.Module], x: Any, y: Tensor, *, rtol: float = 1e-9, **options: Any
) -> None:
    """Losses, output, gradients, buffers and all random states."""
    nets, results, states = [make(), make()], [], []
    for fused, net in enumerate(nets):
        losses, generator = take(bool(fused), case, net, x, y, **options)
        results.append(losses)
        states.append((generator.get_state(), torch.get_rng_state()))
    assert_same_state(nets[0], nets[1], rtol=rtol, atol=rtol * 1e-3)
    for left, right in zip(*states, strict=True):
        assert torch.equal(left, right), "random numbers were drawn in another number"
    reference, fused_losses = results
    assert not any(value.requires_grad for value in (fused_losses.total, *fused_losses.parts.values()))
    torch.testing.assert_close(fused_losses.total, reference.total.detach(), rtol=rtol, atol=rtol)
    torch.testing.assert_close(fused_losses.parts, reference.parts, rtol=rtol, atol=rtol)
    torch.testing.assert_close(fused_losses.output, reference.output, rtol=rtol, atol=rtol)


def batch() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    x, y = images(dtype=torch.float64)
    raw, raw_target = images(seed=3, dtype=torch.float64)
    return x, y, {"raw": raw, "raw_target": raw_target}


def deep_norm_net() -> nn.Module:
    return norm_net(dropout=0.3).double()


WEIGHT = torch.tensor([0.0, 1.0, 2.0, 0.5, 0.0, 1.5, 3.0])
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"weight": WEIGHT},
    "scaled": {"scaler": LoudScaler(1024.0)},
    "accumulated": {"accumulate": 3},
    "all": {"weight": WEIGHT, "scaler": LoudScaler(0.25), "accumulate": 2},
}
