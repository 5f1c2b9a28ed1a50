"""Zero channels change nothing; on a GPU in bf16 they are added."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rcad.models import build
from rcad.models import layers as first_conv
from rcad.models.layers import FirstConv2d


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_padded_channels_change_nothing(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(channels, 5, 3, 2, padding=1)
    ours = FirstConv2d(channels, 5, 3, 2, padding=1)
    ours.load_state_dict(plain.state_dict())
    seen = []
    monkeypatch.setattr(first_conv, "on_tensor_cores", lambda x: True)
    monkeypatch.setattr(ours, "_conv_forward", lambda x, *rest: (seen.append(x.shape[1]), plain_forward(x, *rest))[1])
    plain_forward = FirstConv2d._conv_forward.__get__(ours)
    found = []
    for layer in (plain, ours):
        x = torch.randn(4, channels, 7, 6, generator=torch.Generator().manual_seed(1), requires_grad=True)
        y = layer(x)
        y.square().sum().backward()
        assert layer.bias is not None
        found.append([y, x.grad, layer.weight.grad, layer.bias.grad])
    assert seen == [8]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("last", [True, False])
def test_images_come_in_the_order_of_the_weights(channels: int, last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_conv, "on_tensor_cores", lambda x: True)
    order = torch.channels_last if last else torch.contiguous_format
    layer = FirstConv2d(channels, 16, 3, padding=1).to(memory_format=order)
    seen = []
    plain = FirstConv2d._conv_forward.__get__(layer)
    monkeypatch.setattr(layer, "_conv_forward", lambda *args: (seen.extend(args[:2]), plain(*args))[1])
    layer(torch.rand(2, channels, 8, 8))
    assert [value.is_contiguous(memory_format=order) for value in seen] == [True, True]


def test_a_cpu_sees_the_channels_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_conv, "pad", lambda *_: pytest.fail("padded"))
    FirstConv2d(3, 5, 3)(torch.rand(2, 3, 8, 8))


@pytest.mark.parametrize("name", ["resnet18", "wrn16_8", "small_cnn"])
def test_models_begin_with_it(name: str) -> None:
    model = build(name, num_outputs=4, in_shape=(3, 16, 16))
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    assert isinstance(first, FirstConv2d)
    assert first.weight.shape[1] == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, None])
def test_only_bf16_is_padded(dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(first_conv, "pad", lambda x, zeros: (seen.append(zeros), nn.functional.pad(x, zeros))[1])
    layer = FirstConv2d(3, 64, 3, padding=1, bias=False).cuda().to(memory_format=torch.channels_last)
    x = torch.rand(4, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
        y = layer(x)
    assert len(seen) == (2 if dtype == torch.bfloat16 else 0)
    torch.testing.assert_close(y.float(), nn.functional.conv2d(x, layer.weight, padding=1), rtol=2e-2, atol=2e-2)
    assert y.is_contiguous(memory_format=torch.channels_last)
