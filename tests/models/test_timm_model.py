"""timm's networks behind the interface of this package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rcad.errors import InputError, MissingExtraError
from rcad.models import build
from rcad.models.timm_model import import_timm
from rcad.models.weights import load_weights
from rcad.runs.configure import configure
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.run import run
from timm_folder import load

TINY = ["test_resnet", "test_vit", "test_efficientnet", "test_convnext", "test_byobnet", "vit_tiny_patch16_224"]
IMAGE: dict[str, Any] = {"num_outputs": 5, "in_shape": (3, 32, 32)}


@pytest.fixture
def timm() -> Any:
    return load()


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize("name", TINY)
def test_features_and_head_are_the_whole_network(name: str) -> None:
    model: Any = build(f"timm:{name}", **IMAGE, dropout=0.3).train()
    x = torch.rand(4, 3, 32, 32)
    outputs = []
    for forward in (model, lambda batch: model.net(model.normalize(batch))):
        torch.manual_seed(1)  # the same dropout and stochastic depth
        outputs.append(forward(x))
    assert torch.equal(*outputs)
    assert model.features(x).shape == (4, model.num_features)
    assert isinstance(model.get_submodule(model.head_name), nn.Linear)
    assert 0.3 in {getattr(layer, "p", getattr(layer, "drop_rate", None)) for layer in model.modules()}


def test_the_network_s_own_statistics_are_layer_zero(timm: Any) -> None:
    model: Any = build("timm:test_efficientnet", **IMAGE)
    assert model.normalize.mean.flatten().tolist() == pytest.approx(timm.data.IMAGENET_DEFAULT_MEAN)
    assert model.normalize.std.flatten().tolist() == pytest.approx(timm.data.IMAGENET_DEFAULT_STD)
    assert build("timm:test_resnet", num_outputs=5, in_shape=(1, 32, 32))(torch.rand(2, 1, 32, 32)).shape == (2, 5)


@pytest.mark.usefixtures("timm")
def test_weights_go_to_another_number_of_classes(tmp_path: Path) -> None:
    one, other = build("timm:test_vit", **IMAGE), build("timm:test_vit", num_outputs=3, in_shape=(3, 32, 32))
    torch.save(one.state_dict(), tmp_path / "one.pt")
    load_weights(other, tmp_path / "one.pt", skip_head=True)
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(one.eval().features(x), other.eval().features(x))


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deit_tiny_distilled_patch16_224", "expected a timm model with one linear head"),
        ("test_rasnet", "did you mean .*test_resnet"),
    ],
)
def test_says_what_was_expected(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(f"timm:{name}", **IMAGE)


@pytest.mark.usefixtures("timm")
def test_the_engine_trains_one(tmp_path: Path) -> None:
    settings = ("model.name=timm:test_efficientnet", "train.batch_size=32")
    config = configure("digits[:96]", [("rcad", {"alpha": 1.0})], epochs=2, seed=0, settings=settings)
    record = run(config, Place(Store.open(tmp_path)))
    assert record.status == "done"
    first, second = (row["loss"] for row in record.epochs)
    assert second < first


def test_a_torchvision_that_does_not_fit_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "timm.py"
    broken.write_text("raise RuntimeError('operator torchvision::nms does not exist\\nand more')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(InputError) as caught:
        import_timm()
    expected = f"expected a torchvision that fits torch {torch.__version__}, but importing timm gave RuntimeError: "
    assert str(caught.value) == expected + "operator torchvision::nms does not exist; see: rcad doctor"
    assert caught.value.__suppress_context__
    broken.write_text("import a_package_that_is_not_there", encoding="utf-8")
    with pytest.raises(MissingExtraError, match=r"pip install .* '\.\[timm\]'"):
        import_timm()
    broken.write_text("raise ValueError", encoding="utf-8")
    with pytest.raises(InputError, match="expected timm to import, but importing timm gave ValueError: no reason"):
        import_timm()


def test_pretrained_networks_keep_their_own_statistics(timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[bool] = []

    def create_model(name: str, pretrained: bool, **options: Any) -> nn.Module:
        fetched.append(pretrained)
        if pretrained and name == "test_vit":
            raise OSError("no route\nto the hub")
        net: nn.Module = made(name, pretrained=False, **options)
        return net

    made = timm.create_model
    monkeypatch.setattr(timm, "create_model", create_model)
    other: dict[str, Any] = {**IMAGE, "mean": (0.1,) * 3, "std": (0.9,) * 3}
    assert build("timm:test_resnet", **other).get_buffer("normalize.mean").flatten().tolist() == pytest.approx(
        [0.1] * 3
    )
    model = build("timm:test_resnet", **other, weights="pretrained")
    assert fetched == [False, True]  # nothing is fetched unless it is asked for
    own = timm.get_pretrained_cfg("test_resnet")
    assert model.get_buffer("normalize.mean").flatten().tolist() == pytest.approx(list(own.mean))
    assert model.get_buffer("normalize.std").flatten().tolist() == pytest.approx(list(own.std))
    refused = "expected timm to fetch the weights of test_vit, but got: no route to the hub; download them"
    with pytest.raises(InputError, match=refused):
        build("timm:test_vit", **IMAGE, weights="pretrained")
    with pytest.raises(InputError, match="expected a file of weights for resnet18, but got 'pretrained'"):
        build("resnet18", **IMAGE, weights="pretrained")
