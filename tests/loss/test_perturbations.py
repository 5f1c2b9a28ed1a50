"""Directions by closed form, distances, units, side effects."""

import math

import pytest
import torch
from torch import nn

from one_line import refusals
from rcad import Categorical, GradientStep, ProjectedAscent, RandomStep
from rcad.loss.perturbations import input_gradient, unit
from small_nets import CLASSES, images, left_alone, norm_net, smooth_net

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
ALL = [
    GradientStep(0.5),
    GradientStep(0.5, "raw"),
    GradientStep(0.05, "linf", (0.0, 1.0)),
    GradientStep(0.5, steps=3),
    RandomStep(0.5),
    RandomStep(0.05, "linf"),
    ProjectedAscent(0.5, steps=3),
    ProjectedAscent(0.05, "linf", (0.0, 1.0), steps=3, random_start=True),
]
EACH = pytest.mark.parametrize("where", ALL, ids=repr)


def length(step):
    return step.flatten(1).norm(dim=1)


def linear(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Linear(6, CLASSES).to(dtype), torch.randn(9, 6, dtype=dtype), torch.randint(CLASSES, (9,))


def test_linear_softmax_has_the_direction_of_the_closed_form():
    model, x, y = linear()
    p = model(x).softmax(1).detach()
    gradient = (p - nn.functional.one_hot(y, CLASSES)) @ model.weight.detach()
    unit_length = gradient / gradient.norm(dim=1, keepdim=True)
    torch.testing.assert_close(GradientStep(0.7, "raw")(model, x, y), x + 0.7 * gradient)
    torch.testing.assert_close(GradientStep(0.7)(model, x, y), x + 0.7 * unit_length)
    torch.testing.assert_close(GradientStep(0.7, "linf")(model, x, y), x + 0.7 * gradient.sign())


@EACH
def test_x_moves_by_alpha_and_no_further(where):
    x, y = images()
    moved = where(smooth_net(), x, y)
    assert (moved.shape, moved.dtype, moved.requires_grad) == (x.shape, x.dtype, False)
    step = moved - x
    size = length(step) if where.norm == "l2" else step.flatten(1).abs().amax(1)
    if where.norm == "raw":
        torch.testing.assert_close(step, where.alpha * input_gradient(smooth_net(), x, y, Categorical()))
    elif where.bounds is None:
        torch.testing.assert_close(size, torch.full_like(size, where.alpha))
    else:
        assert bool((size <= where.alpha + 1e-6).all())
        assert 0 <= moved.min() <= moved.max() <= 1


def test_the_direction_does_not_depend_on_the_batch():
    net, (x, y) = smooth_net().double(), images(6, dtype=torch.float64)
    together = GradientStep(0.5)(net, x, y)
    alone = torch.cat([GradientStep(0.5)(net, x[i : i + 1], y[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(together, alone)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(GradientStep(0.5)(net, x[order], y[order]), together[order])


def test_normalised_inputs_move_by_the_same_pixels():
    net, (x, y) = smooth_net().double(), images(dtype=torch.float64)
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in (MEAN, STD))

    def of_normalised(z):
        return net(z * std + mean)

    for norm in ("l2", "raw", "linf"):
        expected = GradientStep(0.8, norm, (0.0, 1.0))(net, x, y)
        moved = GradientStep(0.8, norm, (0.0, 1.0), MEAN, STD)(of_normalised, (x - mean) / std, y)
        torch.testing.assert_close(moved * std + mean, expected)
    one, three = (GradientStep(0.5, std=std)(net, x, y) for std in ((0.25,), (0.25,) * 3))
    assert torch.equal(one, three), "one number stands for every channel"
    random = RandomStep(0.8, std=STD)(of_normalised, (x - mean) / std, y)
    torch.testing.assert_close(length(random * std + mean - x), torch.full((7,), 0.8, dtype=torch.float64))


def test_the_random_direction_has_no_favourite():
    x = torch.zeros(20_000, 3)
    step = RandomStep(1.0)(smooth_net(), x, x, generator=torch.Generator().manual_seed(0))
    assert step.mean(0).abs().max() < 0.02
    torch.testing.assert_close(step.T @ step / len(x), torch.eye(3) / 3, rtol=0.0, atol=0.02)


def test_masked_positions_stay():
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    x = torch.randn(2, 3, 4)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES))
    y = torch.tensor([0, 1])
    for where in (GradientStep(0.5, jitter=0.1), RandomStep(0.5), ProjectedAscent(0.5, random_start=True)):
        moved = where(model, x, y, mask=mask)
        assert torch.equal(moved[mask == 0], x[mask == 0])
        assert not torch.isclose(moved[mask == 1], x[mask == 1]).any()
    torch.testing.assert_close(length(GradientStep(0.5)(model, x, y, mask=mask) - x), torch.full((2,), 0.5))


def test_a_vanishing_gradient_keeps_its_direction_and_a_zero_one_stays():
    g = torch.tensor([[3e-30, 4e-30], [0.0, 0.0], [3.0, 4.0]])
    torch.testing.assert_close(unit(g, "l2"), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]))


def test_jitter_is_uniform_and_reproducible():
    net, (x, y) = smooth_net(), images(64)

    def noise(seed):
        generator = torch.Generator().manual_seed(seed)
        return GradientStep(0.5, jitter=0.01)(net, x, y, generator=generator) - GradientStep(0.5)(net, x, y)

    assert noise(0).abs().max().item() == pytest.approx(0.01, rel=1e-2)
    assert noise(0).std().item() == pytest.approx(0.01 / math.sqrt(3), rel=2e-2)
    assert torch.equal(noise(0), noise(0))
    assert not torch.equal(noise(0), noise(1))


@EACH
def test_nothing_is_left_behind_with_and_without_gradients(where):
    net, (x, y) = norm_net(dropout=0.5), images()
    net[1].eval()  # a frozen layer stays frozen
    original, state = x.clone(), torch.get_rng_state()
    with left_alone(net):
        moved = where(net, x, y, generator=torch.Generator().manual_seed(0))
    assert torch.equal(x, original)
    assert x.grad is None
    assert all(getattr(m, "track_running_stats", True) for m in net.modules())
    torch.set_rng_state(state)
    with torch.no_grad():
        torch.testing.assert_close(where(net, x, y, generator=torch.Generator().manual_seed(0)), moved)


test_wrong_values_are_named = refusals(
    (lambda: GradientStep(-0.5), "expected alpha to be a finite number >= 0, but got -0.5"),
    (lambda: GradientStep(0.5, "l1"), "expected norm to be one of l2, raw, linf, but got 'l1'"),
    (lambda: RandomStep(0.5, "raw"), "expected norm to be one of l2, linf"),
    (lambda: GradientStep(0.5, steps=0), "expected steps to be a whole number >= 1"),
    (lambda: GradientStep(0.5, loss="smooth"), "expected loss to be one of training, plain"),
    (lambda: GradientStep(0.5, bounds=(1.0, 0.0)), "low < high"),
    (lambda: GradientStep(0.5, bounds=(0.0, 1.0), std=STD), "both mean and std"),
    (lambda: GradientStep(0.5, std="big"), "expected std to be numbers, one per channel, but got 'big'"),
    (lambda: GradientStep(0.5, std=(0.2, 0.2))(smooth_net(), *images()), "one number per channel"),
)


def test_a_gradient_that_is_not_finite_gives_no_direction() -> None:
    gradient = torch.randn(4, 3, 2)
    broken = gradient.clone()
    broken[1, 0, 0], broken[2, 1, 1], broken[3, 2, 0] = math.inf, -math.inf, math.nan
    assert torch.equal(unit(broken, "l2"), torch.cat([unit(gradient, "l2")[:1], torch.zeros(3, 3, 2)]))
    assert bool(unit(broken, "linf").isfinite().all())
    assert torch.equal(torch.compile(unit, backend="eager", fullgraph=True)(broken, "l2"), unit(broken, "l2"))
