"""Parameter counts as published, on the meta device: nothing is allocated."""

from __future__ import annotations

import pytest
import torch

from rcad.models import build


@pytest.mark.parametrize(
    ("name", "outputs", "size", "published"),
    [
        ("resnet18", 10, 32, 11_173_962),
        ("resnet18", 100, 32, 11_220_132),
        ("resnet18", 1000, 224, 11_689_512),
        ("resnet34", 1000, 224, 21_797_672),
        ("resnet50", 1000, 224, 25_557_032),
        ("wrn28_10", 10, 32, 36_479_194),
        ("wrn28_10", 100, 32, 36_536_884),
        ("wrn16_8", 10, 32, 10_961_370),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, outputs: int, size: int, published: int) -> None:
    with torch.device("meta"):
        model = build(name, num_outputs=outputs, in_shape=(3, size, size))
    assert sum(p.numel() for p in model.parameters()) == published


def test_group_norm_keeps_the_count_and_takes_32_groups() -> None:
    with torch.device("meta"):
        batch = build("resnet18", num_outputs=10, in_shape=(3, 32, 32))
        group = build("resnet18", num_outputs=10, in_shape=(3, 32, 32), norm="group")
    assert sum(p.numel() for p in batch.parameters()) == sum(p.numel() for p in group.parameters())
    groups = {m.num_groups for m in group.modules() if isinstance(m, torch.nn.GroupNorm)}
    assert groups == {32}


def test_resnet_names_are_torchvision_s() -> None:
    with torch.device("meta"):
        names = set(build("resnet50", num_outputs=1000, in_shape=(3, 224, 224)).state_dict())
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.downsample.1.weight", "layer4.2.bn3.bias"} <= names
    assert {name.split(".")[0] for name in names} == {
        *("normalize", "conv1", "bn1", "layer1", "layer2", "layer3", "layer4", "fc")
    }
    assert len(names) == 320 + 2  # torchvision's, and the mean and std of layer zero


@pytest.mark.parametrize(("size", "stem_size"), [(32, 3), (64, 3), (96, 7)])
def test_stem_follows_the_size_of_the_images(size: int, stem_size: int) -> None:
    with torch.device("meta"):
        model = build("resnet18", num_outputs=10, in_shape=(3, size, size))
    assert model.conv1.kernel_size == (stem_size, stem_size)
