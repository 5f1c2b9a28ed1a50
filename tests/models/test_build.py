"""What cannot be built is said in one line."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rcad.errors import InputError
from rcad.models import build

IMAGE = {"num_outputs": 3, "in_shape": (3, 8, 8)}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet81", {}, r"but got 'resnet81'; did you mean 'resnet18'\?"),
        ("transformer", {}, "but got 'transformer'; choose one of these"),
        ("resnet18", {"dropout": 0.1}, "for resnet18, but got 'dropout'"),
        ("resnet18", {"hidden": (3,)}, "for resnet18, but got 'hidden'"),
        ("mlp", {"norm": "batch"}, "for mlp, but got 'norm'"),
        ("mlp", {"width": 8}, "for mlp, but got 'width'"),
        ("small_cnn", {"stem": "cifar"}, "for small_cnn, but got 'stem'"),
        ("resnet18", {"in_shape": (10,)}, "take 'mlp' for tables"),
        ("small_cnn", {"in_shape": (1, 3, 3)}, "at least 4x4 pixels, but got 3x3; take 'mlp'"),
        ("resnet18", {"skip_head": True}, "expected weights with skip_head"),
        ("resnet18", {"weights": "nowhere.pt"}, "found none at nowhere.pt"),
        ("timm:resnet18", {"norm": "group"}, "for timm:resnet18, but got 'norm'"),
    ],
)
def test_says_what_was_expected(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message), torch.device("meta"):
        build(name, **{**IMAGE, **options})
