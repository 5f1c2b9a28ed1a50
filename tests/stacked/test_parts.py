"""The parts of the stacked trainer by themselves: passes against autograd, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from one_line import one_line
from rcad.loss.likelihoods import Bernoulli, Categorical, Gaussian
from rcad.loss.methods import Method, compose, cutout, erm, label_smoothing, me_ada, rcad, rcad_released, rcad_text
from rcad.loss.perturbations import ProjectedAscent
from rcad.loss.terms import Term
from rcad.models.mlp import MLP
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.stacked.method import StackedMethod
from rcad.stacked.model import Layout, Passes, StackedMLP
from rcad.stacked.step import StackedStep
from rcad.stacked.task import Examples, StackedProblem
from rcad.stacked.train import train_stacked, why_not
from rcad.train.task import derived

SIZES = (4, 6, 5, 3)
OPTIM = OptimConfig(lr=0.1)
LIKE = torch.zeros(1)


def model(replicas: int = 3) -> StackedMLP:
    return StackedMLP.initial(range(replicas), SIZES, dtype=torch.float64)


def test_replicas_begin_as_single_runs_do() -> None:
    stack = model()
    state = torch.get_rng_state()
    for r in range(3):
        torch.manual_seed(derived(r, "weights"))
        net = MLP(num_outputs=3, in_shape=(4,), hidden=(6, 5)).double()
        assert all(torch.equal(value, stack.replica(r)[name]) for name, value in net.state_dict().items())
        x = torch.randn(3, 2, 4, dtype=torch.float64)
        assert torch.allclose(stack(x)[r], net(x[r]))
    torch.set_rng_state(state)
    model()
    assert torch.equal(torch.get_rng_state(), state)


def test_taking_and_putting_replicas() -> None:
    stack = model(4)
    part = stack.take(torch.tensor([3, 1]))
    assert torch.equal(part.replica(0)["layers.1.weight"], stack.replica(3)["layers.1.weight"])
    stack.put(torch.tensor([0, 2]), part)
    assert torch.equal(stack.replica(2)["fc.bias"], part.replica(1)["fc.bias"])
    assert torch.equal(stack.replica(3)["fc.bias"], part.replica(0)["fc.bias"])


def test_passes_are_autograd_s() -> None:
    stack = model()
    stack.flat.requires_grad_(True)
    tracked = StackedMLP(stack.layout, stack.flat)
    draw = torch.Generator().manual_seed(1)
    xs = [torch.randn(3, 7, 4, generator=draw, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    pulls = [torch.randn(3, 7, 3, generator=draw, dtype=torch.float64) for _ in range(2)]
    loss = sum((tracked(x) * pull).sum() for x, pull in zip(xs, pulls, strict=True))
    expected = torch.autograd.grad(loss, [stack.flat, *xs])
    gradient = torch.full_like(stack.flat, float("nan")).detach()  # what an earlier step left must not matter
    passes = Passes(StackedMLP(stack.layout, stack.flat.detach()), gradient, 7)
    for _ in range(2):
        passes.start()
        found = []
        for x, pull in zip(xs, pulls, strict=True):
            assert torch.allclose(passes.forward(x.detach()), tracked(x))
            uphill = passes.backward(pull, inputs=True)
            found.append(uphill.clone())
        assert torch.allclose(gradient, expected[0])
        assert all(torch.allclose(a, b) for a, b in zip(found, expected[1:], strict=True))
    before = gradient.clone()
    passes.forward(xs[0].detach())
    assert passes.backward(pulls[0], weights=False) is None
    assert torch.equal(gradient, before)


def test_a_weight_changes_no_direction() -> None:
    stack, method = model(1), rcad_text(0.5, 0.3)
    gradient, net = torch.empty_like(stack.flat), stack.module(0)
    x, y = torch.randn(1, 7, 4, dtype=torch.float64), torch.arange(7)[None] % 3
    weight = torch.arange(7.0, dtype=torch.float64)
    stacked = StackedMethod.of([method], Categorical(), x)
    step = StackedStep(stacked, Passes(stack, gradient, 7), noise=torch.randn)
    total, _ = step(x, y, 0, weight[None])
    losses = method.criterion().backward(net, x[0], y[0], weight=weight)
    torch.testing.assert_close(total[0], losses.total)
    for view, parameter in zip(stack.layout.views(gradient), net.parameters(), strict=True):
        torch.testing.assert_close(view[0], parameter.grad)


def blobs(**changes: Any) -> StackedProblem:
    x = torch.randn(2, 10, 4, generator=torch.Generator().manual_seed(0))
    sets = {"train": Examples(x, torch.arange(10).repeat(2, 1) % 2), "classes": 2, **changes}
    return StackedProblem(**sets)


def fit(data: StackedProblem | None = None, methods: Any = None, **changes: Any) -> None:
    options = {"seeds": (0, 1), "optim": OPTIM, "epochs": 1, "batch_size": 4, **changes}
    train_stacked(data or blobs(), methods or erm(), **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit(methods=[rcad(0.5), erm()]), "expected methods that differ in numbers only, but got rcad"),
        (lambda: fit(methods=[rcad(0.5), rcad(0.5, norm="linf")]), "differ in numbers only"),
        (lambda: fit(methods=[label_smoothing(0.1), label_smoothing(0.1, "others")]), "differ in numbers only"),
        (lambda: fit(optim=[OPTIM, OptimConfig(lr=0.1, nesterov=False)]), "differ in lr, weight_decay and clip only"),
        (lambda: fit(methods=cutout()), "expected no augmentation in a stacked run"),
        (lambda: fit(methods=rcad_released()), "expected terms on the batch|without jitter"),
        (lambda: fit(methods=me_ada()), "expected levels=None to grow stacked tables, but got levels=255"),
        (lambda: fit(methods=Method(extra=(Term("pgd", where=ProjectedAscent(0.1)),))), "but got ProjectedAscent"),
        (lambda: fit(methods=Method(likelihood=Bernoulli())), "expected Categorical or Gaussian"),
        (lambda: fit(methods=Method(likelihood=Categorical(weight=(1.0, 2.0)))), "expected no class weights"),
        (lambda: Layout(0, (1, 2)), "expected replicas to be a whole number >= 1, but got 0"),
        (lambda: StackedMLP(Layout(1, (1, 2)), LIKE), "expected 4 parameters, but got a tensor"),
    ],
)
def test_what_cannot_be_is_said(call: Callable[[], object], words: str) -> None:
    with one_line(match=words):
        call()


def test_numbers_are_read_from_the_methods() -> None:
    methods = [compose(label_smoothing(e), rcad(a, b)) for e, a, b in ((0.1, 2, 3), (0, 4, 0))]
    stack = StackedMethod.of(methods, Categorical(), LIKE)
    assert torch.allclose(stack.likelihood.smoothing, torch.tensor([0.1, 0.0]))
    assert stack.terms[1].alpha.tolist() == [2, 4]
    assert stack.terms[1].weight.tolist() == [3, 0]
    assert stack.terms[0].likelihood is stack.likelihood
    assert len(StackedMethod.of([rcad(lam=0.0)] * 2, Gaussian(), LIKE).terms) == 1


@pytest.mark.parametrize(
    ("model", "train", "words"),
    [
        ({"name": "resnet18"}, {}, "expected model.name 'mlp'"),
        ({"dropout": 0.5}, {}, "without dropout"),
        ({}, {"ema": 0.9}, "epochs, batch_size and selection only"),
        ({"name": "mlp", "hidden": (3,), "dropout": 0.0}, {"selection": "last"}, None),
    ],
)
def test_which_configs_can_be_stacked(model: dict[str, Any], train: dict[str, Any], words: str | None) -> None:
    parts = {"model": ModelConfig(**model), "train": TrainConfig(epochs=1, batch_size=1, **train)}
    found = why_not(RunConfig(data=DataConfig(name="boston"), method=(("erm", ()),), optim=OPTIM, **parts))
    assert found is None if words is None else words in str(found)
