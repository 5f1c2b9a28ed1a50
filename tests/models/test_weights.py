from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from one_line import one_line
from rcad.errors import InputError
from rcad.models import Model, build, load_weights


def net(seed: int, num_outputs: int = 3, width: int = 4) -> Model:
    torch.manual_seed(seed)
    return build("resnet18", num_outputs=num_outputs, in_shape=(3, 8, 8), width=width, mean=(0.1 * seed,) * 3)


def state(model: Model) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("wrap", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_state_dict_round_trip(tmp_path: Path, wrap: str | None, prefix: str) -> None:
    source, target = net(1), net(2)
    content: Any = {prefix + k: v for k, v in source.state_dict().items()}
    torch.save({wrap: content, "epoch": 3} if wrap else content, tmp_path / "w.pt")
    loaded = load_weights(target, tmp_path / "w.pt")
    assert equal(state(source), state(target))
    assert set(loaded) == set(state(source))


def test_safetensors_round_trip_through_build(tmp_path: Path) -> None:
    source = net(1)
    save_file(state(source), tmp_path / "w.safetensors")
    target = build("resnet18", num_outputs=3, in_shape=(3, 8, 8), width=4, weights=tmp_path / "w.safetensors")
    assert equal(state(source), state(target))


def test_files_of_other_programs_may_lack_statistics_and_counters(tmp_path: Path) -> None:
    source, target = net(1), net(2)
    content = {k: v for k, v in state(source).items() if "normalize" not in k and "num_batches" not in k}
    torch.save(content, tmp_path / "w.pt")
    load_weights(target, tmp_path / "w.pt")
    assert torch.equal(target.get_buffer("normalize.mean"), torch.full((3,), 0.2))
    assert torch.equal(target.get_parameter("fc.weight"), source.get_parameter("fc.weight"))


def test_a_head_of_another_width_can_be_skipped(tmp_path: Path) -> None:
    torch.save(net(1, num_outputs=7).state_dict(), tmp_path / "w.pt")
    target = net(2)
    before = state(target)
    with pytest.raises(InputError, match=r"'fc.weight' of shape \(3, 32\).*got \(7, 32\); skip_head=True"):
        load_weights(target, tmp_path / "w.pt")
    assert equal(state(target), before), "an error must leave the model as it was"
    load_weights(target, tmp_path / "w.pt", skip_head=True)
    assert torch.equal(state(target)["fc.weight"], before["fc.weight"])
    assert torch.equal(state(target)["conv1.weight"], net(1, num_outputs=7).get_parameter("conv1.weight"))


def test_names_the_first_key_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    content = state(net(1))
    torch.save({k: v for k, v in content.items() if k != "layer2.0.conv1.weight"}, path)
    with pytest.raises(
        InputError, match=r"'layer2.0.conv1.weight' of a ResNet in .*w.pt, but it is missing; .* \(--model\)"
    ):
        load_weights(net(2), path)
    assert "layer2.0.conv1.weight" not in load_weights(net(2), path, strict=False)
    torch.save({**content, "extra.weight": torch.zeros(1)}, path)
    with pytest.raises(InputError, match=r"but got 'extra.weight' as well"):
        load_weights(net(2), path)
    load_weights(net(2), path, strict=False)
    torch.save(net(1, width=8).state_dict(), path)
    for strict in (True, False):
        with pytest.raises(InputError, match=r"'conv1.weight' of shape \(4, 3, 3, 3\).*got \(8, 3, 3, 3\)$"):
            load_weights(net(2), path, strict=strict)
    torch.save({"something": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="but got none"):
        load_weights(net(2), path, strict=False)


def test_a_first_layer_for_other_images_says_for_which(tmp_path: Path) -> None:
    path, content = tmp_path / "w.pt", state(net(1))
    torch.save({**content, "conv1.weight": torch.zeros(4, 3, 7, 7)}, path)
    with pytest.raises(InputError, match=r"ImageNet's first layer for images above 64 pixels \(--size 224\)$"):
        load_weights(net(2), path)
    torch.save({**content, "conv1.weight": torch.zeros(4, 1, 3, 3)}, path)
    with pytest.raises(InputError, match=r"the file's network takes images of 1 channels$"):
        load_weights(net(2), path)


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_code_is_refused(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "w.pt"
    torch.save({"x": Malicious(tmp_path / "owned")}, path, _use_new_zipfile_serialization=zipped)
    with one_line(match="tensors only"):
        load_weights(net(1), path)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@pytest.mark.parametrize("damage", ["empty", "text", "truncated"])
def test_broken_files(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    if name == "w.pt":
        torch.save(net(1).state_dict(), path)
    else:
        save_file(state(net(1)), path)
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"hello", "truncated": content[: len(content) // 2]}[damage])
    with one_line(match=f"expected .*{name} to"):
        load_weights(net(1), path)


@pytest.mark.parametrize(
    ("call", "error"),
    [(b"}(}K\x01u.", "unhashable type"), (b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01tR.", "missing 5 required")],
)
def test_a_pickle_of_something_that_cannot_be(tmp_path: Path, call: bytes, error: str) -> None:
    """The unpickler does what the file says, and ends in whatever Python says of it."""
    torch.save({}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as old, zipfile.ZipFile(tmp_path / "x.pt", "w") as new:
        for one in old.namelist():
            new.writestr(one, b"\x80\x02" + call if one.endswith("data.pkl") else old.read(one))
    with pytest.raises(InputError, match=f"expected .*x.pt to .*{error}"):
        load_weights(net(1), tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "but got list"),
        ({"fc.weight": 3}, "but got int under 'fc.weight'"),
        ({3: torch.zeros(2)}, "but got Tensor under 3"),
        ({"fc.weight": torch.zeros(2, 2).to_sparse()}, "dense tensors of real numbers, but got another kind under 'fc"),
        ({"fc.weight": torch.zeros(2, dtype=torch.complex64)}, "another kind under 'fc.weight'"),
        ({"fc.weight": torch.zeros(2, device="meta")}, "another kind under 'fc.weight'"),
    ],
)
def test_files_that_hold_something_else(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InputError, match=message):
        load_weights(net(1), tmp_path / "w.pt")


def test_missing_file_and_foreign_module(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found none at"):
        load_weights(net(1), tmp_path / "none.pt")
    torch.save(net(1).state_dict(), tmp_path / "w.pt")
    with pytest.raises(InputError, match="for skip_head, but got Linear"):
        load_weights(torch.nn.Linear(1, 1), tmp_path / "w.pt", skip_head=True)


def test_a_last_layer_for_other_classes_starts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    source, target = (build("small_cnn", num_outputs=n, in_shape=(1, 8, 8), width=4) for n in (7, 3))
    torch.save(source.state_dict(), tmp_path / "w.pt")
    head = target.state_dict()[f"{target.head_name}.weight"].clone()
    loaded = load_weights(target, tmp_path / "w.pt", skip_head=None)
    assert not any(name.startswith(f"{target.head_name}.") for name in loaded)
    assert torch.equal(target.state_dict()[f"{target.head_name}.weight"], head)
    assert "has 7 outputs, but 3 are needed: the last layer starts anew" in caplog.text
    again = build("small_cnn", num_outputs=7, in_shape=(1, 8, 8), width=4)
    load_weights(again, tmp_path / "w.pt", skip_head=None)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in source.state_dict().items())


def test_a_last_layer_without_a_shape_is_named(tmp_path: Path) -> None:
    model = net(1)
    save_file({**state(model), f"{model.head_name}.weight": torch.zeros(())}, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"of shape \(3, .*, but got \(\)"):
        load_weights(model, tmp_path / "w.safetensors", skip_head=None)
