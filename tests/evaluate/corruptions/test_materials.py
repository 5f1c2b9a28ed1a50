"""Random numbers, linear maps against scipy, and ice: by what they must leave alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from rcad.evaluate.corruptions.materials import (
    BLOCK,
    Draws,
    convolve,
    disk,
    gaussian_blur,
    mirrored,
    streak,
)

CPU = torch.device("cpu")


def test_a_part_is_a_part_of_the_whole():
    whole = Draws(3, "fog", 0, 50, CPU)
    expected = [whole.normal(5), whole.uniform(2, 3), whole.uniform()]
    for first, count in [(0, 1), (15, 2), (16, 16), (17, 20), (49, 1)]:
        part = Draws(3, "fog", first, count, CPU)
        for numbers, all_numbers in zip([part.normal(5), part.uniform(2, 3), part.uniform()], expected, strict=True):
            assert torch.equal(numbers, all_numbers[first : first + count])


def test_seed_key_and_block_all_matter():
    base = Draws(3, "fog", 0, BLOCK, CPU).uniform(8)
    others = [Draws(4, "fog", 0, BLOCK, CPU), Draws(3, "snow", 0, BLOCK, CPU), Draws(3, "fog", BLOCK, BLOCK, CPU)]
    assert all(not torch.equal(base, other.uniform(8)) for other in others)


def test_the_distributions_are_what_they_say():
    draws = Draws(0, "test", 5, 4000, CPU)
    assert stats.kstest(draws.uniform(5).flatten().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(draws.normal(5).flatten().numpy(), "norm").pvalue > 1e-3
    whole = draws.integers(7, 5)
    assert whole.unique().tolist() == list(range(7))
    assert stats.chisquare(whole.flatten().bincount().numpy()).pvalue > 1e-3
    counts = draws.poisson(torch.full((4000, 4), 2.5))
    seen = [(counts == k).sum().item() for k in range(6)]
    assert stats.chisquare(seen, sum(seen) * stats.poisson.pmf(range(6), 2.5) / stats.poisson.cdf(5, 2.5)).pvalue > 1e-3


def test_poisson_counts_do_not_depend_on_the_neighbours():
    low, high = torch.full((3, 100), 1.0), torch.full((3, 100), 50.0)
    mixed = torch.stack([high[0], low[0], low[0]])
    one, two = (Draws(0, "test", 0, 3, CPU).poisson(rates) for rates in (low, mixed))
    assert torch.equal(one[1:], two[1:])
    assert not torch.equal(one[1], one[2])


def uniform(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 6.4])
@pytest.mark.parametrize("truncate", [3.0, 4.0])
def test_gaussian_blur_is_scipys(sigma, truncate):
    x = uniform(2, 1, 20, 14)
    expected = [ndimage.gaussian_filter(image[0], sigma, mode="reflect", truncate=truncate) for image in x.numpy()]
    np.testing.assert_allclose(gaussian_blur(x, sigma, truncate)[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("radius", [1, 2.5, 10])
def test_filters_are_scipys(radius):
    x, kernel = uniform(2, 3, 18, 15), disk(radius, 0.5)
    kernel[0, :] *= 2  # not symmetric, to tell a correlation from a convolution
    expected = [[ndimage.correlate(channel, kernel, mode="reflect") for channel in image] for image in x.numpy()]
    np.testing.assert_allclose(convolve(x, kernel), expected, atol=1e-5)


def test_a_mirrored_border_may_exceed_the_image():
    x = uniform(1, 1, 4, 5)
    np.testing.assert_array_equal(mirrored(x, 11)[0, 0], np.pad(x[0, 0], 11, mode="symmetric"))


def test_a_streak_runs_one_way_along_its_angle():
    x = torch.zeros(3, 1, 21, 21)
    x[:, :, 10, 10] = 1
    angle = torch.tensor([0.0, math.pi / 2, math.pi / 4])
    out = streak(x, angle, 6, 2.0)
    weights = torch.exp(-((torch.arange(13) / 2) ** 2) / 2)
    weights = weights[weights > 1 / 512] / weights[weights > 1 / 512].sum()
    reach = len(weights)
    torch.testing.assert_close(out[0, 0, 10, 11 - reach : 11].flip(0), weights)  # reads to the right of each pixel
    torch.testing.assert_close(out[1, 0, 11 - reach : 11, 10].flip(0), weights)
    torch.testing.assert_close(out.sum((1, 2, 3)), torch.ones(3))
    rows, columns = torch.nonzero(out[2, 0], as_tuple=True)
    assert torch.equal(rows, columns)
    assert rows.max() == 10
