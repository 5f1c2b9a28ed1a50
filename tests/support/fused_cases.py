"""Losses of every kind, and one step of each in either way: pass by pass, or one graph for all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rcad import Categorical, Criterion, GradientStep, Losses, ProjectedAscent, RandomStep, Term
from small_nets import assert_same_state, images, norm_net

STEP = GradientStep(0.5)
PLAIN = GradientStep(0.4, loss="plain")
NLL, SMOOTHED = Term("nll"), Categorical(0.3)
TWO = (Term("adv", where=STEP), Term("more", where=PLAIN))


def penalty(where: Any) -> Term:
    return Term("rcad", "negative_entropy", 0.1, where)


RCAD = penalty(STEP)


class Case(NamedTuple):
    """A loss; `third` says whether its directions take backwards of their own, `passes` counts forward and backward."""

    terms: tuple[Term, ...]
    likelihood: Categorical = Categorical()
    third: bool = False
    passes: tuple[int, int] = (2, 2)


CASES = {
    "erm": Case((NLL,), passes=(1, 1)),
    "rcad": Case((NLL, RCAD)),
    "raw norm": Case((NLL, penalty(GradientStep(0.5, "raw")))),
    "heavy clean term": Case((Term("nll", weight=3.0), RCAD)),
    "moved term first": Case((RCAD, NLL)),
    "several steps and noise": Case((NLL, penalty(GradientStep(0.5, "linf", steps=2, jitter=0.01))), passes=(3, 3)),
    "one direction for two terms": Case((NLL, RCAD, Term("adv", weight=0.5, where=STEP)), passes=(3, 3)),
    "random": Case((NLL, penalty(RandomStep(0.5)))),
    "random alone": Case((Term("moved", where=RandomStep(0.5)),), passes=(1, 1)),
    "random start alone": Case((Term("moved", where=ProjectedAscent(0.5, steps=2, random_start=True)),), passes=(3, 3)),
    "adversarial": Case((Term("adv", where=STEP),), third=True),
    "two adversarial": Case(TWO, third=True, passes=(3, 3)),
    "two clean terms": Case((NLL, Term("penalty", "negative_entropy", 0.2), RCAD), third=True, passes=(2, 3)),
    "clean entropy": Case((Term("penalty", "negative_entropy", 0.2), RCAD), third=True, passes=(2, 3)),
    "clean term turned": Case((Term("nll", weight=-0.3), RCAD), third=True, passes=(2, 3)),
    "direction from the plain loss": Case((NLL, penalty(PLAIN)), SMOOTHED, third=True, passes=(2, 3)),
    "clean term smoothed alone": Case((Term("nll", likelihood=SMOOTHED), RCAD), third=True, passes=(2, 3)),
    "two directions": Case((NLL, RCAD, Term("adv", weight=0.5, where=PLAIN)), SMOOTHED, third=True, passes=(3, 5)),
    "two directions alone": Case(TWO, SMOOTHED, third=True, passes=(3, 4)),
    "two views": Case((NLL, Term("raw", view="raw"), Term("moved", where=STEP, view="raw")), passes=(3, 3)),
    "other view": Case((NLL, Term("moved", where=STEP, view="raw")), third=True, passes=(3, 3)),
    "each view its own": Case((RCAD, NLL, Term("moved", where=RandomStep(0.2), view="raw")), passes=(3, 3)),
}
THIRD = {name: case for name, case in CASES.items() if case.third}
SINGLE = {name: case for name, case in CASES.items() if all(term.view == "batch" for term in case.terms)}


@dataclass
class LoudScaler:
    """A GradScaler whose factor stays where it is."""

    factor: float

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


def assert_equal_steps(case: Case, make: Callable[[], nn.Module], x: Any, y: Tensor, **options: Any) -> None:
    nets, results, states = [make(), make()], [], []
    for fused, net in enumerate(nets):
        losses, generator = take(bool(fused), case, net, x, y, **options)
        results.append(losses)
        states.append(torch.stack([generator.get_state(), torch.get_rng_state()]))
    assert_same_state(nets[0], nets[1], rtol=1e-9, atol=1e-12)
    assert torch.equal(states[0], states[1]), "random numbers were drawn in another number"
    assert not any(value.requires_grad for value in (results[1].total, *results[1].parts.values()))
    for name in ("total", "parts", "output"):
        reference, losses = (getattr(one, name) for one in results)
        torch.testing.assert_close(losses, reference, rtol=1e-9, atol=1e-9)


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
