"""Distances by a loop, and what a model says along its adversarial directions."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rcad import Categorical, GradientStep, InputError, suggest_alpha
from rcad.loss.suggest_alpha import along_adversarial, flip_distance, nearest_other_class
from small_nets import images, norm_net, smooth_net


@given(count=st.integers(2, 40), width=st.integers(1, 5), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_a_loop_gives_the_same(count: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator)
    y = torch.randint(3, (count,), generator=generator)
    y[0], y[1] = 0, 1
    by_hand = [min(math.dist(x[i], x[j]) for j in range(count) if y[j] != y[i]) for i in range(count)]
    torch.testing.assert_close(nearest_other_class(x, y), torch.tensor(by_hand), rtol=1e-4, atol=1e-5)


def test_near_neighbours_far_from_the_origin_are_measured_exactly() -> None:
    x = torch.tensor([[1000.0, 0.0], [1000.0, 0.25], [2000.0, 0.0]])
    distance = nearest_other_class(x, torch.tensor([0, 1, 1]))
    torch.testing.assert_close(distance, torch.tensor([0.25, 0.25, 1000.0]))


def test_pixels_are_read_in_the_unit_interval() -> None:
    x, y = images(30)
    stored = (x * 255).round().byte()
    assert suggest_alpha(stored, y) == pytest.approx(suggest_alpha(stored.float() / 255, y))


def test_a_sample_asks_some_and_searches_all() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(3000, 4, generator=generator), torch.randint(2, (3000,), generator=generator)
    everyone = nearest_other_class(x, y, sample=None)
    some = nearest_other_class(x, y, sample=100, generator=torch.Generator().manual_seed(1))
    assert len(some) == 100
    assert set(some.tolist()) <= set(everyone.tolist())
    assert suggest_alpha(x, y, sample=500) == pytest.approx(suggest_alpha(x, y, sample=None), rel=0.15)


def test_arrays_and_lists_are_read_too() -> None:
    x, y = images(30)
    expected = suggest_alpha(x, y)
    fixed = x.numpy().copy()
    fixed.flags.writeable = False  # as the columns of a data frame
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert suggest_alpha(x.numpy(), y.numpy()) == expected
        assert suggest_alpha(fixed, y.tolist()) == expected
        assert suggest_alpha(x.numpy()[:, :, ::-1], y) == pytest.approx(expected)
    for wrong, kind in ((["a", "b"] * 15, "<U1"), (None, "object")):
        with pytest.raises(InputError, match=f"^expected y to hold numbers, but got an array of {kind}$"):
            suggest_alpha(x, wrong)


def test_bytes_as_floats_warn() -> None:
    x, y = images(30)
    with pytest.warns(UserWarning, match=r"span \[0.*, 25.*\] and look scaled, .*; divide them by 255") as caught:
        scaled = suggest_alpha(255 * x, y)
    assert scaled == pytest.approx(255 * suggest_alpha(x, y))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fine in (x, (x * 255).byte(), 8 * x - 4, 255 * x.flatten(1)):
            suggest_alpha(fine, y)


def test_two_blobs_give_half_their_gap() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2
    x = 0.01 * torch.randn(400, 2, generator=generator)
    x[:, 0] += 3.0 * y
    assert suggest_alpha(x, y) == pytest.approx(1.5, rel=0.03)


def test_identical_examples_of_two_classes_do_not_count() -> None:
    x = torch.tensor([[0.0], [0.0], [0.0], [0.0], [5.0], [7.0]])
    y = torch.tensor([0, 1, 0, 1, 0, 1])
    assert nearest_other_class(x, y).tolist() == [0, 0, 0, 0, 2, 2]
    assert suggest_alpha(x, y) == 1.0
    with pytest.raises(InputError, match=r"^expected examples unlike those of other classes, .*; give alpha a number$"):
        suggest_alpha(x[:4], y[:4])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_examples_must_be_finite(bad: float) -> None:
    x = torch.tensor([[0.0], [1.0], [bad], [2.0]])
    with pytest.raises(InputError, match=r"^expected finite examples, but got NaN or inf; drop or impute those rows$"):
        suggest_alpha(x, torch.tensor([0, 1, 1, 0]))


def test_the_curve_is_what_the_steps_give() -> None:
    net, (x, y) = smooth_net(), images(40)
    rows = along_adversarial(net, x, y, [0.0, 0.5, 4.0])
    output = net(GradientStep(0.5)(net, x, y))
    assert rows[1].accuracy == pytest.approx((output.argmax(1) == y).float().mean().item())
    assert rows[1].entropy == pytest.approx(Categorical().entropy(output).mean().item(), rel=1e-5)
    assert rows[0].flipped == 0
    assert rows[0].accuracy >= rows[2].accuracy


def test_a_linear_model_flips_at_its_margin() -> None:
    """For two classes along one axis the prediction at x = m flips exactly after a step of m."""
    net = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0], [1.0]]))
    x, y = torch.full((9, 1), 0.75), torch.ones(9, dtype=torch.long)
    rows = along_adversarial(net, x, y, [0.1 * k for k in range(12)])
    assert flip_distance(rows) == pytest.approx(0.8)
    assert flip_distance(rows[:5]) is None


def test_the_model_is_left_as_it_was() -> None:
    net, (x, y) = norm_net(), images(8)
    net.eval()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    along_adversarial(net, x, y, [0.5])
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (torch.zeros(7), "expected one class label per example"),
        (torch.zeros(7, dtype=torch.long), "at least two classes"),
        (torch.zeros(3, dtype=torch.long), "expected one class label per example"),
    ],
)
def test_wrong_labels_are_named(y: torch.Tensor, says: str) -> None:
    with pytest.raises(InputError, match=says):
        suggest_alpha(images()[0], y)
