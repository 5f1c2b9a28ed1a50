"""ADA and ME-ADA: the ascent in the program's own units, 8 bits, memory, and a model left as it was."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, nll_loss

from one_line import refusals
from rcad import FeatureAscent, methods
from small_nets import CLASSES, images, left_alone


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(144, 6))
        self.head = nn.Linear(6, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


@pytest.mark.parametrize(("eta", "gamma"), [(0.0, 1.0), (1.0, 1.0), (2.0, 0.7)])
def test_the_ascent_is_that_of_the_program_in_its_own_units(eta: float, gamma: float) -> None:
    """Inputs in [-1, 1], means over a batch of 128, a step of 20.0; here each example by itself, whatever its batch."""
    net, (x, y) = Net().double(), images(128, dtype=torch.float64)
    growth = replace(methods.me_ada().growth, eta=eta, gamma=gamma, levels=None)
    grown, labels = growth.grow(net, x, y, batch_size=100)
    net.eval()
    scaled, anchor = 2 * x - 1, net.features(x).detach()
    for _ in range(15):
        probe = scaled.clone().requires_grad_(True)
        features = net.features((probe + 1) / 2)
        log_p = net.head(features).log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        gain = nll_loss(log_p, y) - gamma * mse_loss(features, anchor) + eta * entropy
        (gradient,) = torch.autograd.grad(gain, probe)
        scaled = scaled + 20.0 * gradient
    assert (scaled + 1 - 2 * x).abs().max() > 1e-2
    torch.testing.assert_close(grown, (scaled + 1) / 2)
    assert torch.equal(labels, y)
    assert methods.ada().growth == replace(methods.me_ada().growth, eta=0.0)


def test_images_stay_images_of_8_bits() -> None:
    net, (x, y) = Net(), images()
    stored = (x * 255).round().byte()
    growth = FeatureAscent(steps=2, step_size=50.0)
    grown, _ = growth.grow(net, stored, y)
    assert grown.dtype == torch.uint8
    assert not torch.equal(grown, stored)
    floats, _ = growth.grow(net, stored.float() / 255, y)
    torch.testing.assert_close(floats, grown.float() / 255)
    assert 0 <= floats.min() <= floats.max() <= 1


def test_the_model_is_left_as_it_was_and_progress_is_reported() -> None:
    net, calls = Net().train(), []
    net.body[1].eval()
    with left_alone(net):
        FeatureAscent(steps=2).grow(net, *images(), batch_size=3, progress=lambda *call: calls.append(call))
    assert calls == [(3, 7), (6, 7), (7, 7)]


def test_memory_is_capped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    net, (x, y) = Net(), images(20)
    growth = FeatureAscent(steps=1, max_bytes=8 * x[0].numel() * 4, levels=None, step_size=1e-9)
    with caplog.at_level(logging.WARNING, "rcad"):
        grown, labels = growth.grow(net, x, y, generator=torch.Generator().manual_seed(0))
    assert len(grown) == len(labels) == 8
    assert "growing 8 of 20 examples" in caplog.text
    sources = [next(i for i in range(20) if torch.allclose(x[i], g, atol=1e-5)) for g in grown]
    assert len(set(sources)) == 8
    assert torch.equal(labels, y[sources])


def test_rounds_come_every_so_many_epochs() -> None:
    growth = FeatureAscent(epochs=10, rounds=2)
    assert [epoch for epoch in range(60) if growth.due(epoch)] == [10, 20]


test_wrong_input_is_named = refusals(
    (lambda: FeatureAscent().grow(nn.Linear(2, 2), *images()), "features() and head(), but got Linear"),
    (lambda: FeatureAscent(max_bytes=1).grow(Net(), *images()), "at least one example"),
    (lambda: FeatureAscent(rounds=0), "expected rounds to be a whole number >= 1"),
    (lambda: FeatureAscent(gamma=-1.0), "expected gamma to be a finite number >= 0"),
)
