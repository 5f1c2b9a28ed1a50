"""Layers of our own against plain ones: layer zero, the first convolution, the strided 1x1 convolution."""

import pytest
import torch
from torch import nn

from rcad.errors import InputError
from rcad.models import Normalize, build, layers
from rcad.models.layers import FirstConv2d, StridedPointwise


def test_layer_zero_normalises_each_channel():
    x, last = torch.rand(4, 3, 5, 5), torch.channels_last
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    out = Normalize(mean, std)(x.contiguous(memory_format=last))
    assert out.is_contiguous(memory_format=last)
    for c in range(3):
        torch.testing.assert_close(out[:, c], (x[:, c] - mean[c]) / std[c])
    plain = build("small_cnn", num_outputs=3, in_shape=(3, 8, 8), width=4)
    assert torch.equal(plain.normalize(x), x), "without statistics pixels pass bit for bit"
    with pytest.raises(InputError, match=r"but got torch.uint8; divide by 255"):
        Normalize((0.5,), (0.5,))(torch.zeros(1, 1, 2, 2, dtype=torch.uint8))


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
def test_padded_channels_change_nothing(channels, order, monkeypatch):
    """On a CPU there are none; on tensor cores images come in the order of the weights."""
    torch.manual_seed(0)
    ours, found, seen = FirstConv2d(channels, 5, 3, 2, padding=1).to(memory_format=order), [], []
    plain = FirstConv2d._conv_forward.__get__(ours)
    monkeypatch.setattr(ours, "_conv_forward", lambda *args: (seen.append(args[:2]), plain(*args))[1])
    for padded in (False, True):
        monkeypatch.setattr(layers, "on_tensor_cores", lambda x, padded=padded: padded)
        ours.zero_grad()
        x = torch.randn(4, channels, 7, 6, generator=torch.Generator().manual_seed(1), requires_grad=True)
        y = ours(x)
        y.square().sum().backward()
        found.append([y, x.grad, ours.weight.grad, ours.bias.grad])
    assert [x.shape[1] for x, _ in seen] == [channels, 8]
    assert channels == 8 or all(value.is_contiguous(memory_format=order) for value in seen[1])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, None])
def test_only_bf16_is_padded(dtype, monkeypatch):
    seen = []
    monkeypatch.setattr(layers, "pad", lambda x, zeros: (seen.append(zeros), nn.functional.pad(x, zeros))[1])
    layer = FirstConv2d(3, 64, 3, padding=1, bias=False).cuda().to(memory_format=torch.channels_last)
    x = torch.rand(4, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
        y = layer(x)
    assert len(seen) == (2 if dtype == torch.bfloat16 else 0)
    torch.testing.assert_close(y.float(), nn.functional.conv2d(x, layer.weight, padding=1), rtol=2e-2, atol=2e-2)
    assert y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 7, 5), (1, 3, 1, 1)])
@pytest.mark.parametrize("stride", [2, (3, 2)])
def test_the_plain_form_and_that_for_a_compiler_agree(shape, stride, monkeypatch):
    layer, x, found = StridedPointwise(3, 4, 1, stride), torch.randn(shape), []
    for compiling in (False, True):
        monkeypatch.setattr(layers, "is_compiling", lambda now=compiling: now)
        leaf = x.clone().requires_grad_(True)
        y = layer(leaf)
        y.backward(torch.linspace(-1, 2, y.numel()).view_as(y))
        found.append([y, leaf.grad])
    torch.testing.assert_close(*found)
    torch.testing.assert_close(y, nn.functional.conv2d(x, layer.weight, layer.bias, stride))
