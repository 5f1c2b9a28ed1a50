"""Files that are whole, or said not to be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from rcad.errors import InputError
from rcad.train import checkpoint
from rcad.train.checkpoint import load_tensors, save_tensors
from rcad.train.optim import optimizer_tensors, restore_optimizer


def test_tensors_and_meta_come_back(tmp_path: Path) -> None:
    base = torch.randn(4, 6)
    tensors = {"a": base[:, ::2], "b": base, "c": torch.tensor(3), "d": torch.zeros(0, dtype=torch.uint8)}
    save_tensors(tmp_path / "file", tensors, {"epoch": 3, "rows": [{"loss": 0.1}]})
    found, meta = load_tensors(tmp_path / "file")
    assert meta == {"epoch": 3, "rows": [{"loss": 0.1}]}
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    assert all(found[name].dtype == value.dtype for name, value in tensors.items())


def save_often(folder: Path, times: int) -> None:
    tensors = {f"layer.{i}": torch.arange(float(i)) for i in range(9)}
    tensors |= {"step": torch.tensor(3), "b": torch.ones(2).bool()}
    meta = {"columns": ["weight", "height"], "classes": {"no": 0, "yes": 1}, "mean": [0.1, 1 / 3]}
    for i in range(times):
        save_tensors(folder / str(i), tensors, meta)


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    save_often(tmp_path / "here", 12)
    code = f"from pathlib import Path; from test_checkpoint import save_often; save_often(Path({str(tmp_path)!r}), 3)"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 15
    assert len({path.read_bytes() for path in files}) == 1


def test_a_file_of_the_first_form_still_loads(tmp_path: Path) -> None:
    for version in ("1", "0"):
        meta = {"version": version, "meta": json.dumps({"epoch": 3})}
        save_file({"a": torch.ones(3)}, tmp_path / version, metadata=meta)
    tensors, meta = load_tensors(tmp_path / "1")
    assert meta == {"epoch": 3}
    assert torch.equal(tensors["a"], torch.ones(3))
    with pytest.raises(InputError, match=r"^expected a checkpoint of version 1 in .*, but got '0'$"):
        load_tensors(tmp_path / "0")
    save_file({"a": torch.ones(3)}, tmp_path / "weights alone")
    with pytest.raises(InputError, match=r"^expected a checkpoint of version 1 in .*weights alone, but got None$"):
        load_tensors(tmp_path / "weights alone")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version": "2"}', "expected a checkpoint of version 1 in .*, but got '2'"),
        ('{"version": "1"}', "expected a whole checkpoint in .*, but got: 'meta'; remove it to start over"),
        ("[1]", "expected a whole checkpoint in .*; remove it to start over"),
        ("{", "expected a whole checkpoint in .*; remove it to start over"),
    ],
)
def test_a_header_that_is_not_ours_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_tensors(path, {"a": torch.ones(3)}, {})
    with safe_open(str(path), framework="pt") as file:
        (key,) = file.metadata()
    save_file({"a": torch.ones(3)}, path, metadata={key: text})
    with pytest.raises(InputError, match=rf"^{message}$") as error:
        load_tensors(path)
    assert "\n" not in str(error.value)


def test_a_full_disk_is_told_in_one_line_and_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tensors(tmp_path / "file", {"a": torch.ones(3)}, {"epoch": 1})

    def full(*words: object, **options: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(
        InputError, match=r"^expected .*file to be writable, but got: .*No space left on device.*; check"
    ):
        save_tensors(tmp_path / "file", {"a": torch.zeros(3)}, {"epoch": 2})
    assert load_tensors(tmp_path / "file")[1] == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "missing"])
def test_a_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_tensors(path, {"a": torch.randn(100)}, {})
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"cut": content[:-50], "empty": b"", "noise": b"\xff" * 300}[damage])
    with pytest.raises(InputError, match="expected a whole checkpoint in") as error:
        load_tensors(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_an_optimizer_goes_on(kind: str) -> None:
    def make() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        if kind == "sgd":
            return net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)
        return net, torch.optim.AdamW(net.parameters(), 0.1)

    def step(net: torch.nn.Linear, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        net(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()

    one, first = make()
    two, second = make()
    for _ in range(3):
        step(one, first)
        step(two, second)
    fresh, third = make()
    fresh.load_state_dict(two.state_dict())
    restore_optimizer(third, {name: value.clone() for name, value in optimizer_tensors(second).items()})
    for _ in range(3):
        step(one, first)
        step(fresh, third)
    assert torch.equal(one.weight, fresh.weight)
