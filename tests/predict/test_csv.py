"""The file of predictions holds what Python predicts, appears whole or not at all."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import rcad
from made import png
from predict.conftest import flats
from rcad.predict.predictor import write_csv


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_real_target(own_runs: dict[str, Path], tmp_path: Path) -> None:
    predictor, data, out = rcad.load(own_runs["flats"]), tmp_path / "new.csv", tmp_path / "out.csv"
    data.write_text(flats())
    told: list[tuple[int, int]] = []
    found = write_csv(predictor, data, out, coverage=0.8, progress=lambda *now: told.append(now))
    mean, deviation = predictor.predict(data, return_std=True)
    low, high = predictor.predict_interval(data, coverage=0.8).T
    table = rows(out)
    assert list(table[0]) == ["row", "id", "prediction", "deviation", "low", "high"]
    for name, wanted in {"prediction": mean, "deviation": deviation, "low": low, "high": high}.items():
        np.testing.assert_allclose([float(row[name]) for row in table], wanted, rtol=1e-6)
    assert found == {
        "examples": 60,
        "skipped": [],
        "mean": pytest.approx(mean.mean()),
        "least": mean.min(),
        "most": mean.max(),
        "coverage": 0.8,
    }
    assert told == [(0, 60), (60, 60)]


def test_classes_and_broken_images(own_runs: dict[str, Path], tmp_path: Path) -> None:
    predictor, folder, out = rcad.load(own_runs["images"]), tmp_path / "new", tmp_path / "out.csv"
    folder.mkdir()
    (folder / "b, c.png").write_bytes(png())
    (folder / "d.png").write_bytes(png(keep=30))
    with pytest.raises(rcad.InputError, match=r"d.png"):
        write_csv(predictor, folder, out)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    found = write_csv(predictor, folder, out, skip_bad=True)
    (row,) = rows(out)
    assert list(row) == ["file", "prediction", "probability", "p_class0", "p_class1"]
    assert row["file"] == "b, c.png"
    assert row["prediction"] == predictor.predict(folder / "b, c.png")[0]
    assert float(row["probability"]) == max(float(row["p_class0"]), float(row["p_class1"]))
    assert found["examples"] == 1
    assert "d.png" in found["skipped"][0]
    assert sum(found["classes"].values()) == 1
    (folder / "b, c.png").unlink()
    with pytest.raises(rcad.InputError, match="but all are broken"):
        write_csv(predictor, folder, tmp_path / "none.csv", skip_bad=True)
    assert not (tmp_path / "none.csv").exists()
