"""The gradients of terms with respect to the output, in closed form where there is one, against autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rcad.loss.likelihoods import Categorical, Gaussian
from rcad.loss.methods import Method, compose, confidence_penalty, gaussian, label_smoothing
from rcad.stacked.method import StackedMethod
from rcad.stacked.step import Part, nll_slopes, pulled

REPLICAS, BATCH = 3, 7
TASKS = {
    "labels": Method(),
    "reals": gaussian(cap=0.3),
    "uncapped": gaussian(cap=None),
    "smoothed": label_smoothing(eps=0.2),
    "a cap for each target": gaussian(cap=(0.3,)),
}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parts(method: Method, replicas: int = REPLICAS, batch: int = BATCH) -> list[Part]:
    """nll and negative entropy, with a weight of its own for each replica."""
    methods = [compose(method, confidence_penalty(lam=0.1 + 0.2 * r)) for r in range(replicas)]
    stack = StackedMethod.of(methods, method.likelihood or Categorical(), numbers(1))
    return [Part.of(term, batch) for term in stack.terms]


def examples(method: Method) -> tuple[Tensor, Tensor]:
    if not isinstance(method.likelihood, Gaussian):
        return numbers(REPLICAS, BATCH, 4), torch.arange(REPLICAS * BATCH) % 4
    output = numbers(REPLICAS, BATCH, 2)
    output[0, 0, 1], output[0, 1, 1] = -25.0, 2.0  # below the floor, above the cap
    return output, numbers(REPLICAS * BATCH, seed=1)


@pytest.mark.parametrize("shares", [None, numbers(REPLICAS * BATCH, seed=2).abs()], ids=["equal", "weighed"])
@pytest.mark.parametrize("task", TASKS)
def test_values_and_gradients_are_autograd_s(task: str, shares: Tensor | None) -> None:
    output, y = examples(TASKS[task])
    nll, entropy = parts(TASKS[task])
    assert (nll.closed is None) == (task in ("smoothed", "a cap for each target"))
    weight = torch.ones(REPLICAS * BATCH, dtype=torch.float64) if shares is None else shares
    for chosen in ([nll], [entropy], [nll, entropy]):
        leaf, before = output.clone().requires_grad_(True), output.clone()
        flat = leaf.flatten(0, 1)
        measures = {id(nll): nll.term.likelihood.nll(flat, y), id(entropy): -entropy.term.likelihood.entropy(flat)}
        values = [part.term.weight * (weight * measures[id(part)]).view(REPLICAS, -1).mean(1) for part in chosen]
        expected = torch.stack(values).sum(0)
        (slopes,) = torch.autograd.grad(expected.sum(), leaf)
        total, pull = pulled(chosen, output, y, shares)
        torch.testing.assert_close(total, expected.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(pull, slopes, rtol=1e-11, atol=1e-12)
        assert torch.equal(output, before)
        assert not total.requires_grad
        assert not pull.requires_grad
    leaf = output.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(nll.term.likelihood.nll(leaf.flatten(0, 1), y).sum(), leaf)
    torch.testing.assert_close(nll_slopes(nll.term.likelihood, output, y), expected)


def test_large_logits_stay_finite() -> None:
    output = torch.tensor([[[2000.0, -2000.0, 0.0]]], dtype=torch.float64)
    for part in parts(Method(), 1, 1):
        assert all(values.isfinite().all() for values in pulled([part], output, torch.tensor([1])))
