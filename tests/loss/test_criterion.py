"""The drop-in surface: what a practitioner's loop does with it."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch import nn

from one_line import refusals
from rcad import (
    RCAD,
    Bernoulli,
    Categorical,
    Criterion,
    Gaussian,
    GradientStep,
    Objective,
    Term,
    compose,
    methods,
    rcad_loss,
)
from small_nets import assert_same_state, gradients, images, norm_net, smooth_net


def test_the_papers_five_lines() -> None:
    """loss = -log p(y|x); x_adv = x + alpha * grad; loss - lam * entropy(x_adv)."""
    net, (x, y) = smooth_net(), images()
    x = x.requires_grad_(True)
    loss = nn.functional.cross_entropy(net(x), y, reduction="none")
    (g,) = torch.autograd.grad(loss.sum(), x, retain_graph=True)
    x_adv = (x + 0.5 * g).detach()
    log_p = net(x_adv).log_softmax(1)
    expected = (loss + 0.02 * (log_p.exp() * log_p).sum(1)).mean()
    torch.testing.assert_close(rcad_loss(net, x.detach(), y, alpha=0.5, lam=0.02, norm="raw"), expected)


@pytest.mark.parametrize("direction", ["plain", "training"])
def test_function_criterion_objective_method_and_fused_agree(direction: Any) -> None:
    (x, y), smoothed = images(), Categorical(0.6)
    nets = [norm_net() for _ in range(5)]
    options: dict[str, Any] = {"likelihood": smoothed, "direction": direction}
    rcad_loss(nets[0], x, y, alpha=0.5, lam=0.1, **options).backward()
    RCAD(0.5, 0.1, **options)(nets[1], x, y).backward()
    RCAD(0.5, 0.1, **options).backward(nets[2], x, y)
    terms = [Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5, loss=direction))]
    Objective(nets[3], smoothed, terms)(x, y).total.backward()
    method = compose(methods.label_smoothing(0.6), methods.rcad(0.5, 0.1, direction=direction))
    method.criterion()(nets[4], x, y).backward()
    for other in nets[1:]:
        assert_same_state(nets[0], other)


def test_backward_returns_detached_losses_and_adds_to_grad() -> None:
    net, (x, y) = norm_net(), images()
    criterion = RCAD(0.5, 0.1)
    losses = criterion.backward(net, x, y)
    assert not losses.total.requires_grad
    torch.testing.assert_close(losses.total, losses.parts["nll"] + 0.1 * losses.parts["rcad"])
    once = gradients(net)
    criterion.backward(net, x, y)
    torch.testing.assert_close(gradients(net), {name: 2 * gradient for name, gradient in once.items()})


def test_a_direction_that_takes_its_own_backward_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    criterion = RCAD(0.5, 0.1)
    with caplog.at_level(logging.INFO, "rcad"):
        for _ in range(2):
            criterion.backward(norm_net(), *images(), weight=torch.rand(7))
    (message,) = [record.message for record in caplog.records]
    assert message.startswith("the direction takes a backward of its own (sample weights may be zero")


def test_two_views_of_one_graph_are_not_fused_but_right() -> None:
    _, y = images()
    codes = torch.randn(7, 6)
    nets = [nn.Sequential(nn.Linear(6, 192), nn.Unflatten(1, (3, 8, 8)), smooth_net()) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    criterion = Criterion(terms=(Term("nll"), Term("raw", view="raw")), units="input")
    criterion.backward(nets[0][2], nets[0][:2](codes), y)
    criterion(nets[1][2], nets[1][:2](codes), y).backward()
    assert_same_state(nets[0], nets[1])
    (said,) = criterion._logged
    assert "(two views are part of one larger graph, which the first backward would free)" in said


def test_regression_and_multi_label() -> None:
    x, _ = images()
    for likelihood, y in ((Gaussian(), torch.randn(7, 2)), (Bernoulli(), torch.randint(2, (7, 4)))):
        criterion, one = RCAD(0.3, 0.3, likelihood=likelihood), nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
        two = copy.deepcopy(one)
        criterion(one, x, y).backward()
        criterion.backward(two, x, y)
        assert_same_state(one, two)


NET, (X, Y) = smooth_net(), images()
PLAIN = RCAD(0.5, 0.1)
test_wrong_calls_are_named = refusals(
    (lambda: rcad_loss(NET, X, Y, alpha=-1.0, lam=0.1), "expected alpha to be a finite number >= 0"),
    (lambda: rcad_loss(NET, X, Y, alpha=0.5, lam=-0.1), "expected lam to be a finite number >= 0"),
    (lambda: rcad_loss(NET, X, Y, alpha=0.5, lam=0.1, every=2), "expected step= with every="),
    (lambda: RCAD(0.5, 0.1, measure="entropy"), "expected measure to be one of"),  # type: ignore[arg-type]
    (lambda: RCAD(0.5, 0.1, mask_key="m")(NET, X, Y), "expected a mapping with the key 'm'"),
    (lambda: PLAIN.backward(NET, X, Y, accumulate=0), "expected accumulate to be a whole number"),
    (lambda: PLAIN(lambda x: None, X, Y), "expected the model to return a tensor"),
    (lambda: PLAIN(NET(X), X, Y), "expected the model itself, not its output, but got Tensor; call"),
    (lambda: PLAIN(NET(X), Y), "but got two of them: criterion(model, x, y)"),
    (lambda: PLAIN(NET, (X, X), Y), "but got tuple; pass several inputs as a mapping by the names"),
    (torch.no_grad()(lambda: PLAIN.backward(NET, X, Y)), "backward() was called under no_grad"),
)


def test_it_prints_what_it_does() -> None:
    assert repr(RCAD(0.5, 0.1)) == (
        "RCAD(Categorical(), [Term(name='nll'), Term(name='rcad', measure='negative_entropy', weight=0.1, "
        "where=GradientStep(alpha=0.5, loss='plain'))])"
    )
