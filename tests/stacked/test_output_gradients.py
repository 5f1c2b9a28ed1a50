"""Terms in closed form against autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rcad.loss.likelihoods import Categorical, Gaussian
from rcad.loss.methods import Method, compose, confidence_penalty, gaussian, label_smoothing
from rcad.stacked import step as output_gradients
from rcad.stacked.method import StackedMethod, StackedTerm
from rcad.stacked.step import CLOSED, nll_slopes, pulled

REPLICAS, BATCH = 3, 7


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def terms(method: Method, count: int = REPLICAS) -> list[StackedTerm]:
    """nll and negative entropy, with a weight of its own for each replica."""
    default = method.likelihood or Categorical()
    methods = [compose(method, confidence_penalty(lam=0.1 + 0.2 * r)) for r in range(count)]
    return list(StackedMethod.of(methods, default, numbers(1)).terms)


@pytest.mark.parametrize("which", [0, 1], ids=["nll", "negative_entropy"])
@pytest.mark.parametrize("task", ["labels", "reals", "uncapped"])
def test_closed_forms_are_autograd_s(task: str, which: int) -> None:
    method = Method() if task == "labels" else gaussian(cap=0.3 if task == "reals" else None)
    output = numbers(REPLICAS, BATCH, 4 if task == "labels" else 2)
    if task != "labels":
        output[0, 0, 1], output[0, 1, 1] = -25.0, 2.0  # below the floor, above the cap
    y = torch.arange(REPLICAS * BATCH) % 4 if task == "labels" else numbers(REPLICAS * BATCH, seed=1)
    term = terms(method)[which]
    assert output_gradients._closed(term.likelihood, term.term.measure) is not None
    expected, slopes = output_gradients._by_autograd([term], output, y)
    before = output.clone()
    found, pull = pulled([term], output, y)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(pull, slopes, rtol=1e-11, atol=1e-12)
    assert torch.equal(output, before)
    assert not any(part.requires_grad for part in (found, pull))


@pytest.mark.parametrize("method", [Method(), gaussian(cap=0.3), label_smoothing(eps=0.2)], ids=repr)
def test_slopes_of_a_direction(method: Method) -> None:
    real = isinstance(method.likelihood, Gaussian)
    output = numbers(REPLICAS, BATCH, 2 if real else 4)
    y = numbers(REPLICAS * BATCH, seed=1) if real else torch.arange(REPLICAS * BATCH) % 4
    likelihood = terms(method)[0].likelihood
    leaf = output.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(likelihood.nll(leaf.flatten(0, 1), y).sum(), leaf)
    torch.testing.assert_close(nll_slopes(likelihood, output, y), expected)


@pytest.mark.parametrize("task", ["labels", "reals"])
def test_shares_weigh_examples(task: str) -> None:
    method = Method() if task == "labels" else gaussian(cap=0.3)
    output = numbers(REPLICAS, BATCH, 4 if task == "labels" else 2)
    y = torch.arange(REPLICAS * BATCH) % 4 if task == "labels" else numbers(REPLICAS * BATCH, seed=1)
    shares = numbers(REPLICAS * BATCH, seed=2).abs()
    both = terms(method)
    for chosen in ([both[0]], [both[1]], both):
        leaf = output.clone().requires_grad_(True)
        flat = leaf.flatten(0, 1)
        values = [
            term.weight * (shares * term.likelihood.nll(flat, y)).view(REPLICAS, -1).mean(1)
            if term is both[0]
            else -term.weight * (shares * term.likelihood.entropy(flat)).view(REPLICAS, -1).mean(1)
            for term in chosen
        ]
        expected = torch.stack(values).sum(0)
        (slopes,) = torch.autograd.grad(expected.sum(), leaf)
        found, pull = pulled(chosen, output, y, shares)
        torch.testing.assert_close(found, expected.detach())
        torch.testing.assert_close(pull, slopes)


def test_large_logits_stay_finite() -> None:
    output = torch.tensor([[[2000.0, -2000.0, 0.0]]], dtype=torch.float64)
    for term in terms(Method(), 1):
        assert all(part.isfinite().all() for part in pulled([term], output, torch.tensor([1])))


def test_what_has_no_closed_form_goes_through_autograd() -> None:
    smoothed = terms(label_smoothing(eps=0.2))
    assert output_gradients._closed(smoothed[0].likelihood, "nll") is None
    assert output_gradients._closed(terms(gaussian(cap=(0.3,)))[1].likelihood, "negative_entropy") is None
    output, y = numbers(REPLICAS, BATCH, 4), torch.arange(REPLICAS * BATCH) % 4
    both = pulled(terms(Method()), output, y)
    parts = [pulled([term], output, y) for term in terms(Method())]
    assert torch.allclose(both[0], parts[0][0] + parts[1][0])
    assert torch.allclose(both[1], parts[0][1] + parts[1][1])
    assert {kind for kind, _ in CLOSED} == {Categorical, Gaussian}
