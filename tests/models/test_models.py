"""Every network: shapes, features and head, start values, parameter counts as published; weights from files."""

import copy
import os
from pathlib import Path, PosixPath
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from equal import same_parameters
from one_line import fails_in_one_line, refusals
from rcad.models import Model, build, load_weights
from rcad.models.convnets import WideBlock
from small_nets import gradients

SMALL: Any = {name: {"width": 8} for name in ("resnet18", "resnet50", "small_cnn")}
SMALL["wrn16_8"] = {"width": 1, "dropout": 0.0}
CASES = [(name, norm) for name in SMALL for norm in ("batch", "group", "none")] + [("mlp", None)]


def small(name: str, norm: str | None, **options: Any) -> Model:
    torch.manual_seed(0)
    options = {**SMALL.get(name, {"hidden": (32, 16)}), **options}
    return build(name, num_outputs=5, in_shape=(3, 16, 16), norm=norm, mean=(0.5,) * 3, std=(0.3,) * 3, **options)


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    noise, patterns = torch.rand(2, 10, 3, 16, 16, generator=generator)
    y = torch.arange(10) % 5
    return (noise + patterns[y]) / 2, y


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_forward_is_the_head_of_the_features(name, norm):
    model = small(name, norm).eval()
    x, _ = batch()
    features, output = model.features(x), model(x)
    assert (features.shape, output.shape) == ((10, model.num_features), (10, 5))
    assert torch.equal(output, model.head(features))
    assert torch.equal(output, small(name, norm).eval()(x))  # the seed decides the weights
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    torch.testing.assert_close(last(x.contiguous(memory_format=torch.channels_last)), output, atol=1e-4, rtol=1e-4)
    if norm != "batch":  # no statistics of a batch: an example is seen alike among others
        kinds = {type(m).__name__ for m in model.modules()}
        assert not any("BatchNorm" in kind for kind in kinds)
        assert ("GroupNorm" in kinds) == (norm == "group")
        torch.testing.assert_close(model.train()(x)[:3], model(x[:3]))


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_the_loss_falls_at_the_protocol_s_learning_rate(name, norm):
    model = small(name, norm)
    x, y = batch()
    before = x.clone()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    losses = []
    for step in range(25):
        loss = cross_entropy(model(x.requires_grad_(step == 0)), y)
        sgd.zero_grad()
        loss.backward()
        if step == 0:
            # Without a gradient in x at the start there would be no direction to step along.
            assert (x.grad.flatten(1).norm(dim=1) > 0).all()
            assert torch.equal(x.detach(), before)
            assert gradients(model).keys() == dict(model.named_parameters()).keys()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        sgd.step()
        losses.append(loss.item())
    assert min(losses[-3:]) < 0.8 * losses[0]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_shortcut_is_a_layer_that_can_be_watched_and_exchanged(name):
    model, (x, _), seen = small(name, "batch"), batch(), list[Any]()
    block: Any = model.get_submodule("layer2.0")
    before, (conv, norm) = model(x), block.downsample
    block.downsample.register_forward_hook(lambda m, i, o: seen.append((*i, o)))
    torch.testing.assert_close(model(x), before)
    torch.testing.assert_close(norm(conv(seen[0][0])), seen[0][1])
    block.downsample = nn.Sequential(conv, norm, nn.ReLU())
    assert not torch.allclose(model(x), before)


def test_an_mlp_is_linear_layers_with_relu():
    model = small("mlp", None).eval()
    x, _ = batch()
    a, b, c = (m for m in model.modules() if isinstance(m, nn.Linear))
    by_hand = nn.Sequential(nn.Flatten(), a, nn.ReLU(), b, nn.ReLU(), c)
    torch.testing.assert_close(model(x), by_hand((x - 0.5) / 0.3))
    assert build("mlp", num_outputs=3, in_shape=(13,), hidden=()).num_features == 13  # a table, and a linear model


def test_a_wide_block_activates_before_convolution_and_shortcut():
    torch.manual_seed(0)
    block = WideBlock(3, 5, 2, 0.0, "batch").eval()
    x = torch.randn(4, 3, 8, 8)
    active = torch.relu(block.bn1(x))
    expected = block.conv2(torch.relu(block.bn2(block.conv1(active)))) + block.shortcut(active)
    torch.testing.assert_close(block(x), expected)
    same = WideBlock(3, 3, 1, 0.0, "batch").eval()
    same.conv2.weight.data.zero_()
    assert torch.equal(same(x), x)


@pytest.mark.parametrize(("name", "default"), [("wrn28_10", 0.3), ("wrn16_8", 0.4), ("small_cnn", 0.0)])
def test_dropout_defaults_and_option(name, default):
    with torch.device("meta"):
        models = [build(name, num_outputs=2, in_shape=(3, 16, 16), dropout=dropout) for dropout in (None, 0.15)]
    assert [{m.p for m in model.modules() if isinstance(m, nn.Dropout)} for model in models] == [{default}, {0.15}]


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "wrn16_8"])
def test_without_normalisation_every_block_starts_as_its_shortcut(name):
    model = small(name, "none").eval()
    blocks = [m for m in model.modules() if hasattr(m, "branch")]
    assert blocks
    before = model(batch()[0])
    for block in blocks:
        block.branch[0].weight.data.normal_()
    assert torch.equal(model(batch()[0]), before)


def test_parameter_counts_are_the_published_ones():
    for name, outputs, size, published in (
        ("resnet18", 10, 32, 11_173_962),
        ("resnet34", 1000, 224, 21_797_672),
        ("resnet50", 1000, 224, 25_557_032),
        ("wrn28_10", 10, 32, 36_479_194),
        ("wrn16_8", 10, 32, 10_961_370),
    ):
        with torch.device("meta"):
            model = build(name, num_outputs=outputs, in_shape=(3, size, size))
        assert sum(p.numel() for p in model.parameters()) == published, name


def test_resnet_names_are_torchvision_s_and_group_norm_takes_32_groups():
    with torch.device("meta"):
        names = set(build("resnet50", num_outputs=1000, in_shape=(3, 224, 224)).state_dict())
        grouped = build("resnet18", num_outputs=10, in_shape=(3, 32, 32), norm="group")
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.downsample.1.weight", "layer4.2.bn3.bias"} <= names
    assert len(names) == 320 + 2  # torchvision's, and the mean and std of layer zero
    assert {m.num_groups for m in grouped.modules() if isinstance(m, nn.GroupNorm)} == {32}


@pytest.mark.parametrize(("size", "stem_size", "shrinks"), [(32, 3, 1), (64, 3, 1), (96, 7, 4)])
def test_stem_follows_the_size_of_the_images(size, stem_size, shrinks):
    model: Any = build("resnet18", num_outputs=10, in_shape=(3, size, size), width=2)
    assert model.conv1.kernel_size == (stem_size, stem_size)
    seen: list[torch.Size] = []
    model.layer1.register_forward_hook(lambda m, i, o: seen.append(i[0].shape))
    model(torch.rand(2, 3, size, size))
    assert seen == [(2, 2, size // shrinks, size // shrinks)]


def build_without_memory(name: str, options: dict[str, Any]) -> None:
    with torch.device("meta"):
        build(name, **{"num_outputs": 3, "in_shape": (3, 8, 8), **options})


test_what_cannot_be_built_is_said_in_one_line = refusals(
    ("resnet81", {}, "but got 'resnet81'; did you mean 'resnet18'?"),
    ("resnet18", {"dropout": 0.1}, "an option of resnet18 to be one of .. , but got 'dropout'"),
    ("resnet18", {"in_shape": (10,)}, "take 'mlp' for tables"),
    ("small_cnn", {"in_shape": (1, 3, 3)}, "at least 4x4 pixels, but got 3x3; take 'mlp'"),
    ("resnet18", {"weights": "nowhere.pt"}, "found none at nowhere.pt; that of a run is runs/ID/model.safe"),
    ("resnet18", {"weights": "pretrained"}, "expected a file of weights for resnet18, but got 'pretrained'"),
    ("timm:resnet18", {"norm": "group"}, "an option of timm:resnet18 to be one of .. , but got 'norm'"),
    of=build_without_memory,
)


def net(seed: int, num_outputs: int = 3, width: int = 4) -> Model:
    torch.manual_seed(seed)
    return build("resnet18", num_outputs=num_outputs, in_shape=(3, 8, 8), width=width, mean=(0.1 * seed,) * 3)


def load(target: Model, content: Any, folder: Path) -> None:
    torch.save(content, folder / "w.pt")
    load_weights(target, folder / "w.pt")


@pytest.mark.parametrize("wraps", [[], ["state_dict"], ["model"], ["net"], ["state_dict", "model"]])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_state_dict_round_trip(tmp_path, wraps, prefix):
    source, target = net(1), net(2)
    content: Any = {prefix + k: v for k, v in source.state_dict().items()}
    for wrap in wraps:
        content = {wrap: content, "epoch": 3}
    load(target, content, tmp_path)
    same_parameters(source, target)
    save_file(source.state_dict(), tmp_path / "model.safetensors")
    load_weights(again := net(3), tmp_path)  # the folder of a run
    same_parameters(source, again)


def test_a_last_layer_for_other_classes_starts_anew(tmp_path, caplog):
    source, target = net(1, num_outputs=7), net(2)
    expected = {**source.state_dict(), "fc.weight": target.fc.weight.clone(), "fc.bias": target.fc.bias.clone()}
    with fails_in_one_line(match="'conv1.weight' of shape"):
        load(target, net(1, num_outputs=7, width=8).state_dict(), tmp_path)
    assert caplog.text == ""  # nor is it told of weights that do not fit
    load(target, source.state_dict(), tmp_path)
    torch.testing.assert_close(dict(target.state_dict()), expected, rtol=0.0, atol=0.0)
    load(target, source.state_dict(), tmp_path)
    assert caplog.text.count("has 7 outputs, but 3 are needed: the last layer starts anew") == 1


@pytest.mark.parametrize("own_statistics", [True, False])
def test_colours_are_summed_for_grey_images(tmp_path, caplog, own_statistics):
    source = net(1).eval()
    lacking = () if own_statistics else ("normalize", "num_batches")  # as files of other programs are
    content = {key: value for key, value in source.state_dict().items() if not any(word in key for word in lacking)}
    target = build("resnet18", num_outputs=3, in_shape=(1, 8, 8), width=4, mean=(0.1,)).eval()
    load(target, content, tmp_path)
    x = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(target(x), source(x.expand(-1, 3, -1, -1)))
    assert "its first layer is summed over the colours for grey ones" in caplog.text
    with fails_in_one_line(match=OTHER_IMAGES):
        load(target, {**content, "conv1.weight": torch.zeros(4, 3, 7, 7)}, tmp_path)


OTHER_IMAGES = r"ImageNet's first layer for images above 64 pixels \(--size 224\)$"
MISSING = r"'layer2.0.conv1.weight' of a ResNet in .*w.pt, but it is missing; .* \(--model\)"
SPARSE = "dense tensors of real numbers in .*w.pt, but got another kind under 'fc.weight'"
PREFIXED = r"'conv1.weight' of a ResNet.*every name begins with 'model.' there; save it without: \{k\."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda saved: {f"model.{key}": value for key, value in saved.items()}, PREFIXED),
        ({"conv1.weight": torch.full((4, 3, 3, 3), torch.nan)}, "finite numbers in .* has others; name another file"),
        ({"layer2.0.conv1.weight": None}, MISSING),
        ({"extra.weight": torch.zeros(1)}, r"but got 'extra.weight' as well"),
        ({"conv1.weight": torch.zeros(8, 3, 3, 3)}, r"'conv1.weight' of shape \(4, 3, 3, 3\).*got \(8, 3, 3, 3\)$"),
        ({"conv1.weight": torch.zeros(4, 3, 7, 7)}, OTHER_IMAGES),
        ({"conv1.weight": torch.zeros(4, 1, 3, 3)}, r"the file's network takes images of 1 channels$"),
        ({"fc.weight": torch.zeros(())}, r"of shape \(3, .*, but got \(\)"),
        ({"fc.weight": 3}, "tensors by name in .*w.pt, but got int under 'fc.weight'"),
        ({3: torch.zeros(2)}, "but got Tensor under 3"),
        ({"fc.weight": torch.zeros(2, 2).to_sparse()}, SPARSE),
        ({"fc.weight": torch.zeros(2, device="meta")}, SPARSE),
        ({"fc.weight": torch.full((3, 32), torch.nan).to(torch.float8_e4m3fn)}, "expected finite numbers in"),
    ],
)
def test_the_first_key_that_does_not_fit_is_named(tmp_path, changes, message):
    target, saved = net(2), net(1).state_dict()
    content = changes(saved) if callable(changes) else {**saved, **changes}
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if value is not None}
    with fails_in_one_line(match=message):
        load(target, content, tmp_path)
    same_parameters(target, net(2))  # an error leaves the model as it was


class Malicious(PosixPath):
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_code_is_refused(tmp_path, zipped):
    path = tmp_path / "w.pt"
    torch.save({"x": Malicious(tmp_path / "owned")}, path, _use_new_zipfile_serialization=zipped)
    with fails_in_one_line(match="tensors only"):
        load_weights(net(1), path)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(("name", "save"), [("w.pt", torch.save), ("w.safetensors", save_file)])
def test_broken_files(tmp_path, name, save):
    path = tmp_path / name
    save(net(1).state_dict(), path)
    for damaged in (path.read_bytes()[: path.stat().st_size // 2], b"hello", b""):
        path.write_bytes(damaged)
        with fails_in_one_line(match=f"expected .*{name} to"):
            load_weights(net(1), path)
