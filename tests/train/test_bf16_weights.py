"""The twin against autocast and against plain autograd."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from rcad import RCAD
from rcad.loss.model_calls import frozen_batch_stats
from rcad.models import build
from rcad.train.cuda_graph import Twin

X = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 3, 0, 1])


def net(norm: str = "batch") -> nn.Module:
    torch.manual_seed(0)
    return build("resnet18", num_outputs=4, in_shape=(3, 8, 8), width=4, norm=norm)


def grads(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_gathered_gradients_are_the_accumulated_ones(norm: str) -> None:
    plain, ours = net(norm), net(norm)
    twin = Twin(ours, torch.float32)
    assert twin.model is ours
    for model, after in ((plain, None), (ours, twin.gather)):
        twin.forget()
        for _ in range(2):  # two batches, two passes each
            RCAD(0.5, 0.3).backward(model, X, Y, accumulate=2, after_pass=after)
    twin.deliver()
    assert len(grads(ours)) == len(grads(plain)) > 20
    for one, other in zip(grads(ours), grads(plain), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(ours.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_twin_shares_all_but_the_cast_weights() -> None:
    model = net()
    twin = Twin(model, torch.float64)  # bf16 is not to be had on every CPU; the casting is the same
    for (name, own), (_, other) in zip(model.named_modules(), twin.model.named_modules(), strict=True):
        for key, buffer in own._buffers.items():
            assert other._buffers[key] is (None if key == "num_batches_tracked" else buffer), name
        for key, value in own._parameters.items():
            kept = other._parameters[key]
            if value is None or kept is None:
                assert kept is value
            elif isinstance(own, nn.Conv2d | nn.Linear):
                assert kept.dtype == torch.float64, name
            else:
                assert kept is value, name
    assert twin.model.training


def test_batches_are_counted_where_batchnorm_would_count_them() -> None:
    model = net()
    twin = Twin(model, torch.float64)
    for _ in range(3):
        twin.forget()
        twin.gather()  # the clean pass
        with frozen_batch_stats(twin.model):
            twin.gather()  # the pass at x', which leaves the averages alone
        twin.count()
    counts = [buffer for name, buffer in model.named_buffers() if name.endswith("num_batches_tracked")]
    assert len(counts) == 20
    assert all(count == 3 for count in counts)


def test_the_cast_follows_the_weights() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    twin = Twin(model, torch.float64)
    with torch.no_grad():
        model[0].weight.add_(1.0)
    twin.cast()
    torch.testing.assert_close(twin.model[0].weight, model[0].weight.double())


@pytest.mark.parametrize("take", ["gather", "keep"])
def test_no_pass_finds_another_ones_gradients(take: str) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    twin = Twin(model, torch.float64)
    for _ in range(2):
        model[0].weight.grad = torch.ones_like(model[0].weight)
        twin.forget()
        assert not grads(model)
        for _ in range(2):
            twin.model[0].weight.grad = torch.ones_like(twin.model[0].weight)
            getattr(twin, take)()
            assert not grads(twin.model)
    assert [len(twin.passes), twin.passes and len(twin.passes[0])] == ([2, 4] if take == "keep" else [0, []])
    twin.deliver()
    if take == "gather":
        torch.testing.assert_close(model[0].weight.grad, torch.full((2, 3), 2.0))


class Tied(nn.Module):
    """One layer under two names, a frozen one, and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.frozen(torch.tanh(self.one(x.to(self.one.weight.dtype))))))


def test_tied_frozen_and_unused_weights() -> None:
    torch.manual_seed(0)
    plain = Tied()
    ours = copy.deepcopy(plain)
    twin = Twin(ours, torch.float64)
    assert twin.model.one.weight is twin.model.two.weight
    x = torch.randn(5, 4)
    for _ in range(2):
        plain(x).square().sum().backward()
    twin.forget()
    for _ in range(2):
        twin.model(x).square().sum().backward()
        twin.gather()
    twin.deliver()
    for (name, one), (_, other) in zip(ours.named_parameters(), plain.named_parameters(), strict=True):
        if other.grad is None:
            assert one.grad is None, name
        else:
            assert one.grad is not None, name
            assert one.grad.dtype == torch.float32
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_the_bf16_twin_is_autocast() -> None:
    x, y = X.cuda(), Y.cuda()
    plain, ours = net().cuda(), net().cuda()
    twin = Twin(ours, torch.bfloat16)
    twin.forget()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        RCAD(0.5, 0.3).backward(plain, x, y)
        RCAD(0.5, 0.3).backward(twin.model, x, y, after_pass=twin.gather)
    twin.deliver()
    flat = [torch.cat([g.flatten() for g in grads(model)]) for model in (plain, ours)]
    assert torch.cosine_similarity(flat[0], flat[1], dim=0) > 0.999
    torch.testing.assert_close(flat[0].norm(), flat[1].norm(), rtol=1e-2, atol=0)
