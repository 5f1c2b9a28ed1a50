"""What other programs run gives the run's own predictions, from inputs nobody has scaled."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rcad
from predict.conftest import flats
from rcad.predict import export as exporting
from rcad.predict.predictor import Predictor
from trained import run_id


@pytest.fixture(params=["torch", "onnx"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Exports a run; gives the file as a function of arrays, and its description."""
    if request.param == "onnx":
        for package in ("onnx", "onnxscript"):
            pytest.importorskip(package, reason=f"{package} is not installed: extra onnx")
        runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: extra onnx")

    def make(predictor: Predictor) -> Any:
        path = tmp_path / ("model.onnx" if request.param == "onnx" else "model.pt2")
        assert predictor.export(path) < 1e-5
        if request.param == "onnx":
            session = runtime.InferenceSession(path)
            described = session.get_modelmeta().custom_metadata_map["rcad.json"]
            return (lambda x: session.run(None, {"x": x})[0]), json.loads(described)
        extra = {"rcad.json": ""}
        module = torch.export.load(path, extra_files=extra).module()
        return (lambda x: module(torch.from_numpy(x)).detach().numpy()), json.loads(extra["rcad.json"])

    return make


def test_images(program: Any, digits: Predictor) -> None:
    run, described = program(digits)
    for count in (1, 7):
        x = np.random.default_rng(0).random((count, 1, 8, 8), np.float32)
        np.testing.assert_allclose(run(x), digits.predict_proba(x), atol=1e-5)
    assert described == {
        "run": run_id("erm"),
        "shape": [1, 8, 8],
        "columns": [],
        "output": [str(k) for k in range(10)],
    }


def test_a_table_with_gaps(program: Any, prices: Predictor, tmp_path: Path) -> None:
    run, described = program(prices)
    (tmp_path / "new.csv").write_text(flats())
    encoder = prices.preprocessing.encoder
    x = encoder.transform(prices.preprocessing._table(tmp_path / "new.csv")).astype(np.float32)
    assert np.isnan(x).any()
    wanted = np.column_stack(prices.predict(tmp_path / "new.csv", return_std=True))
    np.testing.assert_allclose(run(x), wanted, rtol=1e-4)
    assert described["columns"] == list(encoder.features)
    assert described["output"] == ["mean", "deviation"]


@pytest.mark.parametrize(
    ("name", "to", "says"),
    [
        ("model.bin", None, r"a file that ends in .pt2 or .onnx, but got .*model.bin"),
        ("model.onnx", "torch", r"a file that ends in .pt2, but got .*model.onnx"),
        ("model.pt2", "torhc", "did you mean 'torch'"),
    ],
)
def test_formats(name: str, to: str | None, says: str, digits: Predictor, tmp_path: Path) -> None:
    with pytest.raises(rcad.InputError, match=says):
        digits.export(tmp_path / name, to)


def test_a_file_that_is_off_is_not_written(digits: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, output = exporting._torch(exporting.Whole(digits).eval(), exporting._example(digits)[0], "{}")
    monkeypatch.setattr(exporting, "_torch", lambda *given: (content, output + 0.01))
    with pytest.raises(rcad.InputError, match=r"those of torch are 0.01 off; nothing is written"):
        digits.export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_exported(digits: Predictor, tmp_path: Path) -> None:
    class Undecided(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.eye(10)[: len(x)] if x.sum().item() > 0 else x

    with pytest.raises(rcad.InputError, match="expected a model that torch can export, but Undecided is not"):
        dataclasses.replace(digits, model=Undecided()).export(tmp_path / "model.pt2")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_names_its_extra(
    package: str, digits: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in ("onnx", "onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, io if name != package else None)  # type: ignore[arg-type]
    with pytest.raises(rcad.MissingExtraError, match=rf"expected {package} to be installed: .*-e '\.\[onnx\]'"):
        digits.export(tmp_path / "model.onnx")
