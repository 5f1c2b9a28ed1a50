"""Blur: a lens out of focus, frosted glass, a moving camera, a camera that moves towards its object."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rcad.evaluate.corruptions.draws import Draws
from rcad.evaluate.corruptions.linear import convolve, disk, gaussian_blur, separable, streak, zoom_matrix


def defocus_blur(x: Tensor, lens: tuple[float, float], draws: Draws) -> Tensor:
    """Averages over a disk with a soft edge."""
    return convolve(x, disk(*lens))


def glass_blur(x: Tensor, glass: tuple[float, int, int, float], draws: Draws) -> Tensor:
    """Swaps pixels with near ones, between two slight Gaussian blurs."""
    sigma, reach, rounds, share = glass
    return gaussian_blur(_swapped(gaussian_blur(x, sigma), reach, rounds, share, draws), sigma)


def motion_blur(x: Tensor, motion: tuple[int, float], draws: Draws) -> Tensor:
    """Smears each image along its own line, within 45 degrees of the horizontal."""
    angle = (draws.uniform() - 0.5) * (math.pi / 2)
    return streak(x, angle, *motion)


def zoom_blur(x: Tensor, zooming: tuple[int, float], draws: Draws) -> Tensor:
    """The mean of the image (counted twice) and of its enlargements about the centre."""
    count, step = zooming
    height, width = x.shape[-2:]
    total = 2 * x
    for i in range(1, count + 1):
        factor = round(1 + i * step, 6)
        total += separable(x, zoom_matrix(height, factor), zoom_matrix(width, factor))
    return total / (count + 2)


def _swapped(x: Tensor, reach: int, rounds: int, share: float, draws: Draws) -> Tensor:
    """A share of the pixels swapped in turn, each with one at most `reach` away.

    Pixels 2 * reach + 1 apart have no neighbour in common, so all of these swap at once. The original goes pixel by
    pixel; only the order differs.
    """
    count, _, height, width = x.shape
    apart = 2 * reach + 1
    source = torch.arange(height * width, device=x.device).repeat(count, 1)
    for _ in range(rounds):
        shift = draws.integers(apart, 2, height, width) - reach
        if share < 1:
            shift = shift * (draws.uniform(1, height, width) < share)
        for start in range(apart * apart):
            rows = torch.arange(start // apart, height, apart, device=x.device)
            columns = torch.arange(start % apart, width, apart, device=x.device)
            own = (rows[:, None] * width + columns).flatten().expand(count, -1)
            move = shift[:, :, rows[:, None], columns].flatten(2)
            row = (own // width + move[:, 0]).clamp_(0, height - 1)
            column = (own % width + move[:, 1]).clamp_(0, width - 1)
            other = row * width + column
            here, there = source.gather(1, own), source.gather(1, other)
            source.scatter_(1, own, there).scatter_(1, other, here)
    return x.flatten(2).gather(2, source[:, None].expand(-1, x.shape[1], -1)).view_as(x)
