"""BatchNorm, addition and ReLU in our kernels against torch's layers in float64.

The kernels need a GPU; with TRITON_INTERPRET=1 and triton installed they run on a CPU as well, slowly.
"""

from __future__ import annotations

import copy
import os
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from rcad.models import activated as module
from rcad.models.activated import _Grid, activated, normalised, own_kernels
from rcad.models.build import build

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_kernels = pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a CUDA device, or Triton's interpreter")

SHAPES = [(4, 8, 3, 3), (5, 70, 2, 2), (2, 130, 9, 9), (3, 64, 1, 1), (40, 64, 6, 6)]
KINDS = [(True, True), (False, True), (False, False)]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    if not GPU:
        monkeypatch.setattr(module, "_in_rows", lambda x: x.is_contiguous(memory_format=torch.channels_last))


def layer(channels: int, dtype: torch.dtype = torch.float32) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in (norm.weight, norm.bias, norm.running_mean):
            assert value is not None
            value.copy_(torch.randn(channels, generator=draw))
    return norm.to(DEVICE, dtype)


def drawn(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """With a mean that is larger than the spread."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + 3
    return values.to(DEVICE, dtype).contiguous(memory_format=torch.channels_last)


def passed(
    norm: nn.BatchNorm2d, shape: tuple[int, ...], *, adds: bool, active: bool, dtype: torch.dtype = torch.float32
) -> list[Tensor | None]:
    """Output, gradients of x, of what is added and of the parameters; then the layer's buffers."""
    x, residual = drawn(shape, 2, dtype).requires_grad_(), drawn(shape, 3, dtype).requires_grad_()
    y = activated(norm, x, residual if adds else None) if active else normalised(norm, x)
    y.backward(drawn(shape, 4, dtype) - 3)
    return [y.detach(), x.grad, residual.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()]


@needs_kernels
@pytest.mark.gpu
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(("adds", "active"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_batch_norm(shape: tuple[int, ...], adds: bool, active: bool) -> None:
    ours, exact = layer(shape[1]), layer(shape[1], torch.float64)
    with own_kernels():
        assert module._suits(ours, drawn(shape, 0), None)
        found = passed(ours, shape, adds=adds, active=active)
    expected = passed(exact, shape, adds=adds, active=active, dtype=torch.float64)
    for one, other in zip(found, expected, strict=True):
        if other is None:
            assert one is None
        else:
            assert one is not None
            assert one.shape == other.shape
            torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-4)


@needs_kernels
@pytest.mark.gpu
@pytest.mark.usefixtures("kernels")
def test_averages_that_rest_are_left_alone() -> None:
    norm = layer(8)
    before = copy.deepcopy(norm)
    norm.track_running_stats = False
    with own_kernels():
        found = passed(norm, SHAPES[0], adds=True, active=True)
    for name, buffer in before.named_buffers():
        assert torch.equal(norm.get_buffer(name), buffer)
    with own_kernels():
        moved = passed(before, SHAPES[0], adds=True, active=True)
    for one, other in zip(found[:5], moved[:5], strict=True):
        assert one is not None
        assert torch.equal(one, other)  # type: ignore[arg-type]
    assert before.num_batches_tracked == 1


@needs_kernels
@pytest.mark.gpu
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("lost", [torch.nan, torch.inf])
def test_what_is_not_a_number_shows(lost: float, adds: bool) -> None:
    """A ReLU that took it for zero would hide that a run diverges; and it stays in its channel."""
    norm, x, residual = layer(40), drawn((4, 40, 3, 3), 2), drawn((4, 40, 3, 3), 3)
    x[1, 33, 0, 0] = lost
    x.requires_grad_()
    with own_kernels():
        y = activated(norm, x, residual if adds else None)
    y.sum().backward()
    hit = torch.arange(40, device=DEVICE) == 33
    for found in (y, x.grad):
        assert found is not None
        assert torch.equal(found.isnan().any(3).any(2).any(0), hit)
    for found in (norm.weight.grad, norm.running_mean):
        assert found is not None
        assert torch.equal(~found.isfinite(), hit)


@needs_kernels
@pytest.mark.gpu
@pytest.mark.usefixtures("kernels")
def test_a_gradient_in_another_order_and_a_second_backward() -> None:
    norm, x = layer(8), drawn(SHAPES[0], 2).requires_grad_()
    with own_kernels():
        y = activated(norm, x)
    dy = drawn(SHAPES[0], 4)
    (first,) = torch.autograd.grad(y, x, dy, retain_graph=True)
    (again,) = torch.autograd.grad(y, x, dy.contiguous(), retain_graph=True)
    assert torch.equal(first, again)


@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
@pytest.mark.gpu
@pytest.mark.parametrize(("adds", "active"), KINDS)
def test_bf16_is_as_close_as_torchs(adds: bool, active: bool) -> None:
    """Each against float64; ours rounds once, torch after each part."""
    shape, half = (32, 64, 16, 16), torch.bfloat16
    exact = passed(layer(64, torch.float64), shape, adds=adds, active=active, dtype=torch.float64)
    theirs = passed(layer(64), shape, adds=adds, active=active, dtype=half)
    with own_kernels():
        ours = passed(layer(64), shape, adds=adds, active=active, dtype=half)
    for one, other, true in zip(ours[:5], theirs[:5], exact[:5], strict=True):
        if true is not None:
            assert one is not None
            assert other is not None
            assert (one - true).norm() <= 1.1 * (other - true).norm() + 1e-4 * true.norm()


@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "wrn16_8", "small_cnn"])
def test_networks_with_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    options: dict[str, Any] = {"norm": "batch", "width": 16}
    if name.startswith("wrn"):
        options["dropout"] = 0.0
    torch.manual_seed(0)
    plain = build(name, num_outputs=10, in_shape=(3, 32, 32), **options).cuda().double()
    plain = plain.to(memory_format=torch.channels_last)
    ours = copy.deepcopy(plain).float()
    x = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0)).cuda()
    with own_kernels():
        output = ours(x.contiguous(memory_format=torch.channels_last))
    expected = plain(x.double())
    assert (output - expected).norm() < 1e-3 * expected.norm()
    output.square().mean().backward()
    expected.square().mean().backward()
    flat = [torch.cat([p.grad.double().flatten() for p in net.parameters()]) for net in (ours, plain)]  # type: ignore[union-attr]
    assert torch.cosine_similarity(flat[0], flat[1], dim=0) > 0.999
    for (key, one), (_, other) in zip(ours.named_buffers(), plain.named_buffers(), strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-3, atol=1e-3, msg=key)


@pytest.mark.parametrize(("adds", "active"), KINDS)
def test_elsewhere_they_are_torchs_layers(adds: bool, active: bool) -> None:
    norm = layer(8)
    other = copy.deepcopy(norm)
    found = passed(norm, SHAPES[0], adds=adds, active=active)
    x, residual = drawn(SHAPES[0], 2), drawn(SHAPES[0], 3)
    y = other(x) + residual if adds else other(x)
    assert torch.equal(found[0], relu(y) if active else y)  # type: ignore[arg-type]


@pytest.mark.usefixtures("kernels")
def test_what_they_suit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rcad.models.norm_kernels", module)  # wherever triton is missing
    monkeypatch.setattr(module, "_in_rows", lambda x: x.is_contiguous(memory_format=torch.channels_last))
    x, norm = drawn((4, 8, 3, 3), 0), layer(8)
    assert not module._suits(norm, x, None)
    with own_kernels():
        assert module._suits(norm, x, x)
        assert not module._suits(norm, x.contiguous(), None)
        assert not module._suits(norm, x, x.contiguous())
        assert not module._suits(norm, x, x.double())
        assert not module._suits(norm, x[:1, :, :1, :1], None)  # torch's layer has words for one value a channel
        assert not module._suits(nn.GroupNorm(2, 8), x, None)
        assert not module._suits(nn.BatchNorm2d(8, affine=False), x, None)
        assert not module._suits(nn.BatchNorm2d(8, track_running_stats=False), x, None)
        assert not module._suits(nn.BatchNorm2d(8, momentum=None), x, None)
        assert not module._suits(norm.eval(), x, None)
    assert not module._suits(norm.train(), x, None)


def test_without_triton_torch_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rcad.models.norm_kernels", None)  # what an import that fails leaves
    monkeypatch.setattr(module, "_in_rows", lambda x: True)
    with own_kernels():
        assert not module._suits(layer(8), drawn((4, 8, 3, 3), 0), None)


def test_they_are_wanted_inside_alone() -> None:
    def fails() -> None:
        with own_kernels():
            assert module._wanted.get()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert not module._wanted.get()


@pytest.mark.parametrize("shape", [*SHAPES, (32, 64, 32, 32), (32, 2560, 4, 4), (512, 64, 32, 32), (1, 1, 1, 2)])
def test_shares_cover_every_row_once(shape: tuple[int, ...]) -> None:
    grid = _Grid.of(torch.empty(shape, device="meta"))
    assert grid.rows * grid.channels == torch.Size(shape).numel()
    starts = [*range(0, grid.rows, grid.share), grid.rows]
    assert len(starts) - 1 == grid.shares == grid.by_share[0]
    assert all(end > start for start, end in pairwise(starts))
    assert grid.by_share[1] * module.BLOCK_C >= grid.channels > (grid.by_share[1] - 1) * module.BLOCK_C
    assert 1 <= grid.by_block[0] <= max(1, module.PROGRAMS[1] // grid.columns)
