"""Both forms of a strided 1x1 convolution."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rcad.models import layers as strided_pointwise
from rcad.models.layers import StridedPointwise
from rcad.models.resnet import resnet18


def both(f: Callable[[Tensor], Tensor], x: Tensor, patch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """Result and gradient of f in its plain form, then in its form for torch.compile."""
    found = []
    for compiling in (False, True):
        patch.setattr(strided_pointwise, "is_compiling", lambda now=compiling: now)
        leaf = x.clone().requires_grad_(True)
        y = f(leaf)
        (gradient,) = torch.autograd.grad(y, leaf, torch.linspace(-1, 2, y.numel()).view_as(y))
        found.append((y.detach(), gradient))
    return found


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 7, 5), (1, 3, 1, 1)])
@pytest.mark.parametrize("stride", [2, (3, 2)])
def test_both_forms_agree(
    shape: tuple[int, ...], stride: int | tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = StridedPointwise(3, 4, 1, stride)
    plain, other = both(layer, torch.randn(shape), monkeypatch)
    torch.testing.assert_close(other, plain)
    assert plain[0].shape == nn.Conv2d(3, 4, 1, stride)(torch.randn(shape)).shape


def test_a_resnet_is_the_same_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    net = resnet18(num_outputs=3, width=4).double()
    plain, other = both(net, torch.rand(4, 3, 8, 8, dtype=torch.float64), monkeypatch)
    torch.testing.assert_close(other, plain)
    assert sum(isinstance(m, StridedPointwise) for m in net.modules()) == 3
