"""Distances and bounds hold for the numbers that come out, whatever the scale of the inputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rcad.evaluate.attack_search import Ball, dlr, dlr_towards, margin
from rcad.evaluate.attacks import APGD, FGSM, PGD, Attack, RandomSearch
from rcad.loss.perturbations import Move

KINDS = (FGSM, PGD, APGD, RandomSearch)


def distance(moved: Tensor, x: Tensor, norm: str, scale: float | Tensor = 1.0) -> Tensor:
    order: float = 2 if norm == "l2" else math.inf
    step = (moved.double() - x.double()) * scale
    return torch.linalg.vector_norm(step.flatten(1), ord=order, dim=1)


def made(kind: type[Attack], *arguments: Any, **more: Any) -> Attack:
    few: dict[str, int] = {"FGSM": {}, "RandomSearch": {"tries": 3}}.get(kind.__name__, {"steps": 4, "restarts": 2})  # type: ignore[assignment]
    return kind(*arguments, **more, **few)


@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 4),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    exponent=st.floats(-6, 1),
    norm=st.sampled_from(["l2", "linf"]),
    scale=st.sampled_from([None, 1e-3, 1.0, 300.0]),
)
@settings(max_examples=60, deadline=None)
def test_the_distance_holds_exactly(
    kind: Any, count: int, shape: list[int], dtype: torch.dtype, exponent: float, norm: Any, scale: float | None
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 3)).to(dtype)
    eps, bounds = 10**exponent, (0.0, 1.0) if scale is None else None
    x = torch.rand(count, *shape, dtype=dtype) if scale is None else scale * torch.randn(count, *shape, dtype=dtype)
    moved = made(kind, eps, norm, bounds).perturb(model, x, torch.randint(3, (count,)))
    assert moved.shape == x.shape
    assert moved.dtype == dtype
    assert bool((distance(moved, x, norm) <= eps * (1 + 1e-12)).all())
    if bounds is not None:
        assert 0 <= moved.min() <= moved.max() <= 1


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_distance_is_used(kind: Any, norm: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 3))
    x, y = torch.rand(5, 3, 32, 32), torch.randint(3, (5,))
    moved = made(kind, 8 / 255, norm, None).perturb(model, x, y)
    assert bool((distance(moved, x, norm) >= 8 / 255 * (1 - 1e-3)).all())


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("kind", KINDS)
def test_normalised_inputs_keep_pixel_units(kind: Any, norm: Any) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    shift, scale = (torch.tensor(v).view(1, 3, 1, 1) for v in (mean, std))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    x, y = torch.rand(6, 3, 8, 8), torch.randint(3, (6,))
    attack, twin = made(kind, 0.1, norm), made(kind, 0.1, norm, mean=mean, std=std)
    inside = (x - shift) / scale
    moved = twin.perturb(lambda z: net(z * scale + shift), inside, y)
    assert bool((distance(moved, inside, norm, scale.double()) <= 0.1 * (1 + 1e-6)).all())
    torch.testing.assert_close(moved * scale + shift, attack.perturb(net, x, y), rtol=0, atol=2e-5)


def test_a_gradient_that_is_not_a_number_moves_nothing() -> None:
    x = torch.rand(2, 4)
    for norm in ("l2", "linf"):
        ball = Ball(x, Move(0.1, norm, (0.0, 1.0)))  # type: ignore[arg-type]
        assert torch.equal(ball.climbed(x, torch.full_like(x, torch.nan), 0.1), x)
        assert bool(torch.isfinite(ball.climbed(x, torch.full_like(x, torch.inf), 0.1)).all())


def test_random_points_are_where_they_should_be() -> None:
    x = torch.zeros(4000, 3)
    generator = torch.Generator().manual_seed(0)
    cube = Ball(x, Move(0.2, "linf")).start(generator)
    assert cube.mean(0).abs().max() < 0.01
    torch.testing.assert_close(cube.std(0), torch.full((3,), 0.2 / math.sqrt(3)), rtol=0.03, atol=0)
    ball = Ball(x, Move(0.2, "l2")).start(generator)
    assert ball.mean(0).abs().max() < 0.01
    lengths = ball.norm(dim=1)
    torch.testing.assert_close(
        lengths.quantile(torch.tensor([0.25, 0.75])), torch.tensor([0.05, 0.15]), rtol=0.1, atol=0
    )
    sphere = Ball(x, Move(0.2, "l2")).corner(generator)
    torch.testing.assert_close(sphere.norm(dim=1), torch.full((4000,), 0.2), rtol=1e-4, atol=0)
    assert sphere.mean(0).abs().max() < 0.01
    corner = Ball(x, Move(0.2, "linf")).corner(generator)
    assert corner.abs().min() > 0.199
    assert corner.mean(0).abs().max() < 0.02


def test_inputs_outside_by_rounding_are_kept() -> None:
    x = torch.tensor([[1.000001, 0.5]])
    moved = Ball(x, Move(0.1, "linf", (0.0, 1.0))).climbed(x, torch.ones_like(x), 0.1)
    torch.testing.assert_close(moved, torch.tensor([[1.000001, 0.6]]))


def test_the_whole_space_is_more_than_a_point() -> None:
    move = Move(0.1, "linf", None, None, None)
    assert Ball(torch.tensor([[1.0, -4.0], [3.0, 0.0]]), move).whole_space() == 20.0
    assert Ball(torch.tensor([[1.0, -4.0]]), move).whole_space() == 40.0  # one example has no others to reach
    assert Ball(torch.zeros(3, 2), move).whole_space() == 10.0


def test_the_losses_by_hand() -> None:
    torch.manual_seed(0)
    output, y = torch.randn(20, 6, dtype=torch.float64), torch.randint(6, (20,))
    target = (y + 2) % 6
    towards = dlr_towards(target)(output, y)
    for i, (row, label) in enumerate(zip(output.tolist(), y.tolist(), strict=True)):
        ordered = sorted(row, reverse=True)
        lead = max(v for k, v in enumerate(row) if k != label) - row[label]
        assert margin(output, y)[i].item() == pytest.approx(lead)
        assert dlr(output, y)[i].item() == pytest.approx(lead / (ordered[0] - ordered[2]))
        gain = row[int(target[i])] - row[label]
        assert towards[i].item() == pytest.approx(gain / (ordered[0] - (ordered[2] + ordered[3]) / 2))
    torch.testing.assert_close(dlr(1000 * output + 3, y), dlr(output, y))
    assert dlr(output.half(), y).dtype == torch.float32
    assert bool(torch.isfinite(dlr(torch.zeros(2, 3), torch.tensor([0, 1]))).all())
