from __future__ import annotations

import pytest
import torch

from rcad.errors import InputError
from rcad.models import Normalize, build
from rcad.models.layers import layer_zero


def test_equals_a_loop_over_channels() -> None:
    x = torch.rand(4, 3, 5, 5)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    out = Normalize(mean, std)(x)
    for c in range(3):
        torch.testing.assert_close(out[:, c], (x[:, c] - mean[c]) / std[c])


def test_without_statistics_pixels_pass_bit_for_bit() -> None:
    x = torch.rand(4, 3, 5, 5)
    assert torch.equal(layer_zero(3, None, None)(x), x)


def test_keeps_channels_last() -> None:
    x = torch.rand(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    assert Normalize((0.5,) * 3, (0.2,) * 3)(x).is_contiguous(memory_format=torch.channels_last)


def test_the_model_s_layer_zero_uses_the_given_statistics() -> None:
    torch.manual_seed(0)
    plain = build("small_cnn", num_outputs=3, in_shape=(1, 8, 8), width=4)
    torch.manual_seed(0)
    scaled = build("small_cnn", num_outputs=3, in_shape=(1, 8, 8), width=4, mean=(0.25,), std=(0.5,))
    x = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(scaled(x), plain((x - 0.25) / 0.5))


@pytest.mark.parametrize(
    ("mean", "std"),
    [((), ()), ((0.5,), (0.1, 0.2)), ((0.5,), (0.0,)), ((0.5,), (-1.0,)), ((float("nan"),), (1.0,))],
)
def test_refuses_statistics_that_cannot_scale(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=r"expected (mean|std).*but got"):
        Normalize(mean, std)


def test_refuses_integer_pixels() -> None:
    with pytest.raises(InputError, match=r"but got torch.uint8; divide by 255"):
        Normalize((0.5,), (0.5,))(torch.zeros(1, 1, 2, 2, dtype=torch.uint8))
