"""The toy where the adversarial direction helps: two moons hidden in 625 dimensions."""

import pytest
import torch
from torch import nn

from equal import plain_loop
from rcad import methods
from rcad.paper.moons import Cell, examples

pytestmark = pytest.mark.slow
MOONS = Cell(625, 0.1)


def accuracy(method):
    generator = torch.Generator().manual_seed(0)
    x, y = examples(MOONS, 1000, seed=0)
    x_test, y_test = examples(MOONS, 4000, seed=0, test=True)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(MOONS.d, 128), nn.ReLU(), nn.Linear(128, 2))
    rows = (row for _ in range(50) for row in torch.randperm(len(x), generator=generator).split(128))
    plain_loop(net, method.criterion(), ((x[row], y[row], {"generator": generator}) for row in rows))
    return 100 * (net(x_test).argmax(1) == y_test).float().mean().item()


def test_rcad_unlearns_the_noise_and_its_controls_do_not():
    erm, rcad, small = (accuracy(one) for one in (methods.erm(), methods.rcad(0.5, 0.5), methods.rcad(0.1, 0.5)))
    assert rcad > erm + 6
    assert small < erm - 3  # too small a step hurts
    for control in (methods.rcad_random(alpha=0.5, lam=0.5), methods.confidence_penalty(lam=0.5)):
        assert accuracy(control) < rcad - 6
