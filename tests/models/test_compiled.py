"""Both forms of the layers that have one for torch.compile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rcad.models import compiled
from rcad.models.compiled import StridedPointwise, relu
from rcad.models.resnet import resnet18
from rcad.models.wide_resnet import WideResNet


def both(f: Callable[[Tensor], Tensor], x: Tensor, patch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """Result and gradient of f in its plain form, then in its form for torch.compile."""
    found = []
    for compiling in (False, True):
        patch.setattr(compiled, "is_compiling", lambda now=compiling: now)
        leaf = x.clone().requires_grad_(True)
        y = f(leaf)
        (gradient,) = torch.autograd.grad(y, leaf, torch.linspace(-1, 2, y.numel()).view_as(y))
        found.append((y.detach(), gradient))
    return found


def test_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([-2.0, -0.0, 0.0, 1e-30, 3.0, torch.inf, -torch.inf, torch.nan])
    plain, other = both(relu, x, monkeypatch)
    torch.testing.assert_close(other[0], plain[0], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(other[1][:-1], plain[1][:-1], rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 7, 5), (1, 3, 1, 1)])
@pytest.mark.parametrize("stride", [2, (3, 2)])
def test_strided_pointwise(
    shape: tuple[int, ...], stride: int | tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = StridedPointwise(3, 4, 1, stride)
    plain, other = both(layer, torch.randn(shape), monkeypatch)
    torch.testing.assert_close(other, plain)
    assert plain[0].shape == nn.Conv2d(3, 4, 1, stride)(torch.randn(shape)).shape


def test_the_models_are_the_same_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(4, 3, 8, 8, dtype=torch.float64)
    nets = [resnet18(num_outputs=3, width=4), WideResNet(depth=10, widen=1, num_outputs=3, dropout=0.0)]
    for net in nets:
        plain, other = both(net.double(), x, monkeypatch)
        torch.testing.assert_close(other, plain)
    assert any(isinstance(m, StridedPointwise) for m in nets[0].modules())
