from __future__ import annotations

import sys
import types
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError
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
        ("resnet18", {"norm": "layer"}, "norm to be one of batch, group, none, but got 'layer'"),
        ("small_cnn", {"norm": "layer"}, "norm to be one of batch, group, none, but got 'layer'"),
        ("wrn16_8", {"norm": "layer"}, "norm to be one of batch, group, none, but got 'layer'"),
        ("resnet18", {"stem": "huge"}, "stem to be one of cifar, imagenet, but got 'huge'"),
        ("resnet18", {"mean": (0.5,)}, "mean and std with 3 numbers each, but got 1 and 3"),
        ("resnet18", {"num_outputs": 0}, "num_outputs to be at least 1, but got 0"),
        ("resnet18", {"width": 0}, "width to be at least 1, but got 0"),
        ("wrn16_8", {"dropout": 1.0}, r"dropout to be in \[0, 1\), but got 1.0"),
        ("resnet18", {"in_shape": (10,)}, "take 'mlp' for tables"),
        ("resnet18", {"in_shape": (8, 8)}, r"in_shape as \(C, H, W\) or \(D,\)"),
        ("small_cnn", {"in_shape": (1, 3, 3)}, "at least 4x4 pixels, but got 3x3; take 'mlp'"),
        ("mlp", {"hidden": (4, 0)}, r"hidden to hold positive numbers of units, but got \(4, 0\)"),
        ("mlp", {"in_shape": (5,), "mean": (0.5,)}, "mean and std for images only"),
        ("resnet18", {"skip_head": True}, "expected weights with skip_head"),
        ("resnet18", {"weights": "nowhere.pt"}, "found none at nowhere.pt"),
    ],
)
def test_says_what_was_expected(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught, torch.device("meta"):
        build(name, **{**IMAGE, **options})
    assert "\n" not in str(caught.value)


class FakeNet(nn.Module):
    """The part of timm's interface that is used."""

    default_cfg: ClassVar[dict[str, Any]] = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5)}

    def __init__(self, num_classes: int, in_chans: int, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.stem = nn.Conv2d(in_chans, 6, 3)
        self.fc = nn.Linear(6, num_classes)

    def get_classifier(self) -> nn.Module:
        return self.fc

    def forward_features(self, x: Tensor) -> Tensor:
        return self.stem(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = x.mean((2, 3))
        return pooled if pre_logits else self.fc(pooled)


@pytest.fixture
def fake_timm(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    timm = types.ModuleType("timm")
    known = {"fakenet": False, "fakevit": True}
    timm.is_model = lambda name: name in known  # type: ignore[attr-defined]
    timm.list_models = lambda: list(known)  # type: ignore[attr-defined]
    timm.get_pretrained_cfg = lambda name: types.SimpleNamespace(fixed_input_size=known[name])  # type: ignore[attr-defined]

    def create_model(name: str, pretrained: bool, **options: Any) -> FakeNet:
        assert pretrained is False, "nothing may be downloaded"
        return FakeNet(**options)

    timm.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    return timm


@pytest.mark.usefixtures("fake_timm")
def test_timm_models_get_features_head_and_their_own_statistics() -> None:
    model = build("timm:fakenet", **IMAGE)
    x = torch.rand(4, 3, 8, 8)
    assert model.features(x).shape == (4, 6)
    assert model.num_features == 6
    assert model.head_name == "net.fc"
    own = (x - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / 0.5
    net = model.get_submodule("net")
    assert isinstance(net, FakeNet)
    torch.testing.assert_close(model(x), net.forward_head(net.forward_features(own)))
    assert net.options == {}


@pytest.mark.usefixtures("fake_timm")
def test_timm_options() -> None:
    vit = build("timm:fakevit", **IMAGE, dropout=0.2, mean=(0.5,) * 3, std=(0.5,) * 3).get_submodule("net")
    assert isinstance(vit, FakeNet)
    assert vit.options == {"drop_rate": 0.2, "img_size": (8, 8)}
    with pytest.raises(InputError, match=r"but got 'fakenit'; did you mean fakevit or fakenet\?"):
        build("timm:fakenit", **IMAGE)
    with pytest.raises(InputError, match="for timm:fakenet, but got 'norm'"):
        build("timm:fakenet", **IMAGE, norm="group")


def test_missing_timm_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r'pip install "rcad\[timm\]"'):
        build("timm:resnet18", **IMAGE)
