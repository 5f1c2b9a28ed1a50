"""The parts of the stacked trainer by themselves: gradients against autograd, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from one_line import refusals
from rcad import methods
from rcad.loss.likelihoods import Bernoulli, Categorical, Gaussian
from rcad.loss.methods import Method, compose, confidence_penalty, erm, gaussian, label_smoothing, rcad, rcad_text
from rcad.loss.perturbations import ProjectedAscent
from rcad.loss.terms import Term
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.stacked.method import Part, StackedMethod, StackedStep, nll_slopes, pulled
from rcad.stacked.model import Layout, Passes, StackedMLP
from rcad.stacked.train import Examples, StackedProblem, train_stacked, why_not

OPTIM = OptimConfig(lr=0.1)


def test_a_weight_changes_no_direction():
    state = torch.get_rng_state()
    stack, method = StackedMLP.initial([0], (4, 6, 5, 3), dtype=torch.float64), rcad_text(0.5, 0.3)
    assert torch.equal(torch.get_rng_state(), state), "the first weights leave the random state alone"
    gradient, net = torch.empty_like(stack.flat), stack.module(0)
    x, y = torch.randn(1, 7, 4, dtype=torch.float64), torch.arange(7)[None] % 3
    weight = torch.arange(7.0, dtype=torch.float64)
    stacked = StackedMethod.of([method], Categorical(), x)
    step = StackedStep(stacked, Passes(stack, gradient, 7), noise=torch.randn)
    total, _ = step(x, y, 0, weight[None])
    losses = method.criterion().backward(net, x[0], y[0], weight=weight)
    torch.testing.assert_close(total[0], losses.total)
    found = [view[0] for view in stack.layout.views(gradient)]
    torch.testing.assert_close(found, [parameter.grad for parameter in net.parameters()])


def fit(methods: Any, optim: Any = OPTIM) -> None:
    problem = StackedProblem(Examples(torch.rand(2, 10, 4), torch.arange(10).repeat(2, 1) % 2), 2)
    train_stacked(problem, methods, seeds=(0, 1), optim=optim, epochs=1, batch_size=4)


test_what_cannot_be_is_said = refusals(
    (fit, [rcad(0.5), erm()], "expected methods that differ in numbers only, but got rcad"),
    (fit, [rcad(0.5), rcad(0.5, norm="linf")], "differ in numbers only"),
    (fit, erm(), [OPTIM, OptimConfig(lr=0.1, nesterov=False)], "differ in lr, weight_decay and clip only"),
    (fit, [compose(gaussian(None), rcad(0.3, lam)) for lam in (0.89, 1.2)], "but got cap=None and lam=1.2"),
    (fit, methods.cutout(), "expected no augmentation in a stacked run"),
    (fit, methods.rcad_released(), "expected terms on the batch"),
    (fit, methods.me_ada(), "expected levels=None to grow stacked tables, but got levels=255"),
    (fit, Method(extra=(Term("pgd", where=ProjectedAscent(0.1)),)), "but got ProjectedAscent"),
    (fit, Method(likelihood=Bernoulli()), "expected Categorical or Gaussian"),
    (fit, Method(likelihood=Categorical(weight=(1.0, 2.0))), "expected no class weights"),
    (lambda: StackedMLP(Layout(1, (1, 2)), torch.zeros(1)), "expected 4 parameters, but got a tensor"),
)


@pytest.mark.parametrize(
    ("model", "train", "words"),
    [
        ({"name": "resnet18"}, {}, "expected model.name 'mlp'"),
        ({"dropout": 0.5}, {}, "without dropout"),
        ({}, {"ema": 0.9}, "epochs, batch_size and selection only"),
        ({"name": "mlp", "hidden": (3,), "dropout": 0.0}, {"selection": "last"}, None),
    ],
)
def test_which_configs_can_be_stacked(model, train, words):
    parts = {"model": ModelConfig(**model), "train": TrainConfig(epochs=1, batch_size=1, **train)}
    found = why_not(RunConfig(data=DataConfig(name="boston"), method=(("erm", ()),), optim=OPTIM, **parts))
    assert found is None if words is None else words in str(found)


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


def parts(method: Method) -> list[Part]:
    """nll and negative entropy, with a weight of its own for each replica."""
    methods = [compose(method, confidence_penalty(lam=0.1 + 0.2 * r)) for r in range(REPLICAS)]
    stack = StackedMethod.of(methods, method.likelihood or Categorical(), numbers(1))
    return [Part.of(term, BATCH) for term in stack.terms]


def examples(method: Method) -> tuple[Tensor, Tensor]:
    if not isinstance(method.likelihood, Gaussian):
        return numbers(REPLICAS, BATCH, 4), torch.arange(REPLICAS * BATCH) % 4
    output = numbers(REPLICAS, BATCH, 2)
    output[0, 0, 1], output[0, 1, 1] = -25.0, 2.0  # below the floor, above the cap
    return output, numbers(REPLICAS * BATCH, seed=1)


@pytest.mark.parametrize("shares", [None, numbers(REPLICAS * BATCH, seed=2).abs()], ids=["equal", "weighed"])
@pytest.mark.parametrize("task", TASKS)
def test_values_and_gradients_are_autograd_s(task, shares):
    output, y = examples(TASKS[task])
    nll, entropy = parts(TASKS[task])
    assert (nll.closed is None) == (task in ("smoothed", "a cap for each target"))
    for part in (nll, entropy):
        before = output.clone()
        total, pull = pulled([part], output, y, shares)
        expected, slopes = pulled([part._replace(closed=None)], output, y, shares)
        torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(pull, slopes, rtol=1e-11, atol=1e-12)
        assert torch.equal(output, before)
        assert not total.requires_grad
        assert not pull.requires_grad
        if task == "labels":
            assert all(values.isfinite().all() for values in pulled([part], 1000 * output, y, shares))
    leaf = output.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(nll.term.likelihood.nll(leaf.flatten(0, 1), y).sum(), leaf)
    torch.testing.assert_close(nll_slopes(nll.term.likelihood, output, y), expected)
