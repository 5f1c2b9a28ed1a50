"""Noise by its moments and shares."""

from __future__ import annotations

import torch

from rcad.evaluate.corruptions.draws import Draws
from rcad.evaluate.corruptions.noise import gaussian_noise, impulse_noise, shot_noise


def draws(count):
    return Draws(0, "test", 0, count, torch.device("cpu"))


def test_gaussian_noise_has_its_deviation():
    x = torch.full((64, 3, 32, 32), 0.5)
    noise = gaussian_noise(x, 0.1, draws(64)) - x
    assert abs(noise.mean()) < 1e-3
    assert abs(noise.std() - 0.1) < 1e-3
    assert abs((noise[:, 0] * noise[:, 1]).mean()) < 1e-4  # channels are independent


def test_shot_noise_keeps_the_mean_and_its_variance_is_the_signal():
    x = torch.tensor([0.0, 0.1, 0.5, 1.0]).view(4, 1, 1, 1).expand(4, 3, 64, 64)
    seen = shot_noise(x, 50, draws(4))
    assert (seen[0] == 0).all()
    torch.testing.assert_close(seen.mean((1, 2, 3)), x[:, 0, 0, 0], rtol=0.02, atol=0)
    torch.testing.assert_close(seen.var((1, 2, 3)), x[:, 0, 0, 0] / 50, rtol=0.08, atol=0)


def test_impulses_are_half_black_half_white_and_leave_the_rest():
    x = torch.full((32, 3, 32, 32), 0.5)
    seen = impulse_noise(x, 0.1, draws(32))
    black, white = (seen == 0).float().mean(), (seen == 1).float().mean()
    assert abs(black - 0.05) < 2e-3
    assert abs(white - 0.05) < 2e-3
    assert ((seen == 0) | (seen == 1) | (seen == 0.5)).all()
    assert not torch.equal(seen[:, 0], seen[:, 1])
