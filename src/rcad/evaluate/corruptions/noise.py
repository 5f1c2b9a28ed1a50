"""Noise: from electronics, from few photons, from dead and stuck pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from rcad.evaluate.corruptions.draws import Draws


def gaussian_noise(x: Tensor, deviation: float, draws: Draws) -> Tensor:
    """Adds independent normal noise to every value."""
    return draws.normal(*x.shape[1:]).mul_(deviation).add_(x)


def shot_noise(x: Tensor, photons: float, draws: Draws) -> Tensor:
    """Counts photons: Poisson with mean x * photons, divided by `photons`."""
    return draws.poisson(x * photons).div_(photons)


def impulse_noise(x: Tensor, amount: float, draws: Draws) -> Tensor:
    """Turns a share `amount` of the values black or white, half each, channel by channel."""
    chance = draws.uniform(*x.shape[1:])
    salt = (chance < amount / 2).to(x.dtype)
    return torch.where(chance < amount, salt, x)
