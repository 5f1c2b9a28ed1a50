"""timm's networks behind the interface of this package."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hub_server import Hub, point_to, serving
from rcad.cli.main import run as command
from rcad.errors import LONGEST, InputError
from rcad.models import build
from timm_folder import load

TINY = ["test_resnet", "test_vit", "test_efficientnet", "test_convnext", "test_byobnet", "vit_tiny_patch16_224"]
IMAGE: dict[str, Any] = {"num_outputs": 5, "in_shape": (3, 32, 32)}


@pytest.fixture
def timm() -> Any:
    return load()


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize("name", TINY)
def test_features_and_head_are_the_whole_network(name):
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


NET, NOWHERE = "test_resnet", "http://127.0.0.1:9"


@pytest.fixture
def hub(timm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with weights for NET, under the name that timm asks for, and nothing fetched yet."""
    pytest.importorskip("huggingface_hub")
    torch.manual_seed(7)
    made = pytest.importorskip("safetensors.torch").save(timm.create_model(NET).state_dict())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    with serving() as found:
        point_to(monkeypatch, found.url)
        found.put(f"models/{timm.get_pretrained_cfg(NET).hf_hub_id}", {"model.safetensors": made})
        yield found


@pytest.fixture
def weights(hub: Hub, tmp_path: Path) -> Path:
    """The file that the Hub has, as someone without a network carries it over."""
    ((files,),) = hub.repositories.values()
    (path := tmp_path / "carried.safetensors").write_bytes(files["model.safetensors"])
    return path


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("of_a_file", [False, True])
def test_pretrained_weights_see_pixels_as_they_were_trained_to(timm, weights, channels, of_a_file):
    source = weights if of_a_file else "pretrained"
    data: dict[str, Any] = {"mean": (0.1,) * channels, "std": (0.9,) * channels}
    model: Any = build(f"timm:{NET}", num_outputs=5, in_shape=(channels, 64, 64), **data, weights=source).eval()
    net = timm.create_model(NET, pretrained=True, num_classes=0, in_chans=channels).eval()
    own, x = timm.get_pretrained_cfg(NET), torch.rand(2, channels, 64, 64)
    mean, std = (torch.tensor(rgb)[:, None, None] for rgb in (own.mean, own.std))
    if channels == 1:
        mean, std = mean.mean(), std.mean()
    torch.testing.assert_close(model.features(x), net((x - mean) / std))


FETCHED = r"^expected the weights of test_vit, .*; .* timm/test_vit.r160_in1k, then pass it here: --weights FILE$"


@pytest.mark.parametrize(
    ("name", "weights", "side", "message"),
    [
        ("test_vit", "pretrained", 64, FETCHED),
        (f"{NET}.a9", "pretrained", 64, f"with pretrained weights, but got '{NET}.a9'; did you mean {NET}.r160_in1k"),
        ("test_mambaout", "pretrained", 64, "a timm model with pretrained weights, but got 'test_mambaout'"),
        ("test_vit", None, 50, "images of 3x50x50, but got: .*divisible by .*; --size 160 resizes"),
        ("deit_tiny_distilled_patch16_224", None, 32, "expected a timm model with one linear head"),
        ("test_rasnet", None, 32, "did you mean .*test_resnet"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_says_why_a_network_or_its_weights_cannot_be_had(name, weights, side, message, monkeypatch):
    point_to(monkeypatch, NOWHERE)
    with pytest.raises(InputError, match=message) as caught:
        build(f"timm:{name}", num_outputs=5, in_shape=(3, side, side), weights=weights)
    assert len(str(caught.value)) < LONGEST


def test_finetuning_from_the_command_line(hub, weights, tmp_path, monkeypatch, capsys):
    pillow = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RCAD_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    for k in range(40):
        file = Path("photos", ("cat", "dog")[k % 2], f"{k}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(draw.integers(0, 128, (32, 32, 3), dtype=np.uint8) + np.uint8(k % 2 * 100)).save(file)

    def rcad(words, expected=0):
        code = command(words.split())
        said = capsys.readouterr()
        assert code == expected, said.err
        return said.err + said.out

    start = f"train --data photos --method rcad --model timm:{NET} --epochs 2 --batch-size 8 --lr 0.001"
    train = f"{start} --pretrained"
    assert "trained on images of 160 pixels a side, but these have 32; --size 160" in rcad(f"{train} --dry-run")
    assert f"timm:{NET}, 372,882 parameters, weights: pretrained; rcad(" in rcad(train)
    fetched = [line for line in hub.asked if line.startswith("GET") and line.endswith("/model.safetensors")]
    assert len(fetched) == 1  # once, by the dry run; kept from then on
    (record,) = (json.loads(path.read_text()) for path in Path("runs").glob("*/record.json"))
    first, last = (epoch["loss"] for epoch in record["epochs"])
    assert last < first
    point_to(monkeypatch, NOWHERE)
    assert "done: rcad on photos, seed 1" in rcad(f"{train} --seed 1 --quiet")  # the fetched file needs no network
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    (line,) = rcad(f"{train} --seed 2", expected=2).splitlines()
    assert "the Hugging Face Hub was not reached" in line
    carried = rcad(f"{start} --seed 2 --weights {weights}")
    assert "has 1000 outputs, but 2 are needed: the last layer starts anew" in carried
    assert "20 predictions" in rcad("predict last --data photos/dog --out dogs.csv")  # a run has its own weights
    rcad("export last --to torch --out model.pt2")
