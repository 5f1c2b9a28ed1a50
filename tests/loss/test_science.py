"""The toy where the adversarial direction helps: two moons hidden in 625 dimensions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from rcad import Method, methods

pytestmark = pytest.mark.slow
DIMENSIONS, SIGMA = 625, 0.1


def moons(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Unit moons in the first two of 625 dimensions, with noise on all."""
    angle = math.pi * torch.rand(count, generator=generator)
    y = torch.arange(count) % 2
    upper = torch.stack([angle.cos(), angle.sin()], 1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], 1)
    x = SIGMA * torch.randn(count, DIMENSIONS, generator=generator)
    x[:, :2] += torch.where(y[:, None] == 0, upper, lower)
    return x, y


def accuracy(method: Method, seed: int = 0, train_size: int = 1000, epochs: int = 50) -> float:
    generator = torch.Generator().manual_seed(seed)
    x, y = moons(train_size, generator)
    x_test, y_test = moons(4000, generator)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(DIMENSIONS, 128), nn.ReLU(), nn.Linear(128, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    criterion = method.criterion()
    for _ in range(epochs):
        for index in torch.randperm(train_size, generator=generator).split(128):
            optimizer.zero_grad()
            criterion.backward(net, x[index], y[index], generator=generator)
            optimizer.step()
    return 100 * (net(x_test).argmax(1) == y_test).float().mean().item()


def test_rcad_unlearns_the_noise_and_its_controls_do_not() -> None:
    erm, rcad, small = (accuracy(one) for one in (methods.erm(), methods.rcad(0.5, 0.5), methods.rcad(0.1, 0.5)))
    assert rcad > erm + 6
    assert small < erm - 3  # too small a step hurts
    for control in (methods.rcad_random(alpha=0.5, lam=0.5), methods.confidence_penalty(lam=0.5)):
        assert accuracy(control) < rcad - 6
