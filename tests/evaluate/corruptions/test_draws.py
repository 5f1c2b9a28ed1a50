"""Random numbers by image number."""

from __future__ import annotations

import torch
from scipy import stats

from rcad.evaluate.corruptions.draws import BLOCK, Draws

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
