"""The joined network is the single ones: outputs, gradients, statistics, and the weights themselves."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from one_line import fails_in_one_line
from rcad.kernels.bn_relu import own_kernels
from rcad.models import build, joined
from rcad.models import layers as first_conv
from rcad.models.joined import Joined

RUNS, WIDE = 3, {"width": 2, "dropout": 0.0}


def networks(name: str, norm: str = "batch", **options: Any) -> list[nn.Module]:
    """Different weights and different statistics of the images."""
    made: list[nn.Module] = []
    for seed in range(RUNS):
        torch.manual_seed(seed)
        mean = (0.1 * (seed + 1), 0.5, 0.4)
        model = build(name, num_outputs=7, in_shape=(3, 8, 8), norm=norm, mean=mean, std=(0.2, 0.3, 0.4), **options)
        with torch.no_grad():
            for parameter in model.parameters():  # zeros at the start would hide much
                parameter.add_(0.05 * torch.randn_like(parameter))
        made.append(model.double())
    return made


@pytest.mark.parametrize("order", [torch.preserve_format, torch.channels_last])
@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet18", {}), ("resnet18", {"stem": "imagenet"}), ("resnet50", {}), ("wrn16_8", WIDE), ("small_cnn", {})],
)
def test_it_is_the_single_networks(name, options, norm, order):
    singles: Any = [single.to(memory_format=order) for single in networks(name, norm, **{"width": 4, **options})]
    views = copy.deepcopy(singles)
    network = Joined(views)
    x = torch.rand(5 * RUNS, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    y = network(x)
    assert y.shape == (5 * RUNS, 7)
    y.square().sum().backward()
    torch.optim.SGD(network.parameters(), 0.01).step()
    for i, (single, view) in enumerate(zip(singles, views, strict=True)):
        own = x.detach()[i::RUNS].requires_grad_(True)
        mine = single(own)
        torch.testing.assert_close(mine, y[i::RUNS])
        mine.square().sum().backward()
        torch.testing.assert_close(own.grad, x.grad[i::RUNS])
        torch.optim.SGD(single.parameters(), 0.01).step()
        # One step of the joined network is a step of each: weights, running averages and counts.
        torch.testing.assert_close(dict(view.state_dict()), dict(single.state_dict()))


def test_zero_channels_for_tensor_cores_change_nothing(monkeypatch):
    singles = networks("resnet18", width=4)
    x = torch.rand(2 * RUNS, 3, 8, 8, dtype=torch.float64)
    network = Joined(singles)
    plain = network(x)
    seen = []
    for module in (joined, first_conv):
        monkeypatch.setattr(module, "on_tensor_cores", lambda x: True)
    conv = network.network.conv1
    monkeypatch.setattr(conv, "_conv_forward", lambda x, *rest: (seen.append(x.shape[1]), forward(x, *rest))[1])
    forward = type(conv)._conv_forward.__get__(conv)
    torch.testing.assert_close(network(x), plain)
    assert seen == [8 * RUNS]


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("device", "width"), [("cpu", 4), *(pytest.param("cuda", width, marks=pytest.mark.gpu) for width in (16, 64))]
)
def test_one_network_cannot_reach_another(device, width, dtype, thorough, monkeypatch):
    """Not even by a value that is not a number, forward or backward: no zero of a group may meet it."""
    if device == "cpu" and (thorough or dtype != torch.float32):
        pytest.skip("half precision, and a choice of algorithms, are for GPUs")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", thorough)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark_limit", 0)
    x = torch.rand(4 * RUNS, 3, 16, 16, device=device)
    seen: list[tuple[torch.Tensor, list[list[torch.Tensor]]]] = []
    for lost in (False, True):
        singles = [single.float().to(device) for single in networks("resnet18", width=width)]
        singles = [single.to(memory_format=torch.channels_last) for single in singles]  # type: ignore[call-overload]
        x[1::RUNS] = torch.nan if lost else 0.5
        network = Joined(singles)
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32), own_kernels():
            y = network(x)
        y.float().square().view(-1, RUNS, 7).mean((0, 2)).sum().backward()
        # A gradient lies as the networks do: one after the other.
        seen.append((y.detach(), [list(parameter.grad.chunk(RUNS)) for parameter in network.parameters()]))
    (before, grads), (after, others) = seen
    assert after[1::RUNS].isnan().all()
    for i in (0, 2):
        torch.testing.assert_close(after[i::RUNS], before[i::RUNS], rtol=1e-2, atol=1e-3)
        for mine, its in zip(grads, others, strict=True):
            assert its[i].isfinite().all()
            assert (its[i] - mine[i]).norm() <= 1e-2 * mine[i].norm() + 1e-6
    assert any(its[1].isnan().any() for its in others)


def test_what_cannot_be_joined_is_refused_and_left_as_it_was(monkeypatch):
    tables = [build("mlp", num_outputs=2, in_shape=(4,)) for _ in range(2)]
    (narrow, *others), wide = networks("resnet18", width=8), networks("resnet18", width=16)
    before = narrow.get_parameter("fc.weight").data_ptr()
    for models, says in (
        (tables, "can be joined (ResNet, WideResNet, SmallCNN), but got MLP"),
        ([narrow, *wide], "of one architecture to join"),
        (networks("small_cnn", dropout=0.1), "without dropout"),
    ):
        with fails_in_one_line(says):
            Joined(models)
    assert narrow.get_parameter("fc.weight").data_ptr() == before
    joined._check_joinable([narrow, *others])  # a CPU keeps any groups apart
    monkeypatch.setattr(nn.Parameter, "is_cuda", True)
    joined._check_joinable(wide)
    with fails_in_one_line("at least 16 channels to join on a GPU, but got 8; "):
        joined._check_joinable([narrow, *others])
