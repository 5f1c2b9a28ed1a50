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
    load_weights(target, tmp_path / "w.pt")
    assert equal(state(source), state(target))


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


def test_a_last_layer_for_other_classes_starts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, target = net(1, num_outputs=7), net(2)
    torch.save(source.state_dict(), tmp_path / "w.pt")
    before = state(target)
    load_weights(target, tmp_path / "w.pt")
    for name, value in state(target).items():
        assert torch.equal(value, before[name] if name.startswith("fc.") else source.state_dict()[name])
    assert "has 7 outputs, but 3 are needed: the last layer starts anew" in caplog.text


OTHER_IMAGES = r"ImageNet's first layer for images above 64 pixels \(--size 224\)$"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layer2.0.conv1.weight": None},
            r"'layer2.0.conv1.weight' of a ResNet in .*w.pt, but it is missing; .* \(--model\)",
        ),
        ({"extra.weight": torch.zeros(1)}, r"but got 'extra.weight' as well"),
        ({"conv1.weight": torch.zeros(8, 3, 3, 3)}, r"'conv1.weight' of shape \(4, 3, 3, 3\).*got \(8, 3, 3, 3\)$"),
        ({"conv1.weight": torch.zeros(4, 3, 7, 7)}, OTHER_IMAGES),
        ({"conv1.weight": torch.zeros(4, 1, 3, 3)}, r"the file's network takes images of 1 channels$"),
        ({"fc.weight": torch.zeros(())}, r"of shape \(3, .*, but got \(\)"),
    ],
)
def test_the_first_key_that_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    content = {key: value for key, value in {**state(net(1)), **changes}.items() if value is not None}
    torch.save(content, tmp_path / "w.pt")
    target = net(2)
    before = state(target)
    with pytest.raises(InputError, match=message):
        load_weights(target, tmp_path / "w.pt")
    assert equal(state(target), before), "an error must leave the model as it was"


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
        for name in old.namelist():
            new.writestr(name, b"\x80\x02" + call if name.endswith("data.pkl") else old.read(name))
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
