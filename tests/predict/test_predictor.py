"""A finished run predicts what it predicted at its end, without the data it was trained on; into a file too."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import rcad
from made import png
from predict.conftest import flats
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.predict.predictor import Predictor, answer, write_csv
from rcad.runs.files import unsealed
from rcad.runs.store import WEIGHTS, Store
from rcad.train.checkpoint import load_tensors, save_tensors
from rcad.train.task import measure
from trained import run_id

pytest.importorskip("sklearn")


def test_classes_are_those_of_the_run_s_own_test(trained_runs: Path) -> None:
    run = run_id("rcad")
    saved = RunLoader(Store.open(trained_runs), device="cpu").load(run)
    predictor = rcad.load(trained_runs / run, device="cpu")
    x, y = saved.problem.test
    p = predictor.predict_proba(x)
    assert p.shape == (len(y), 10)
    np.testing.assert_allclose(p.sum(1), 1)
    labels = predictor.predict(x)
    assert labels.tolist() == [predictor.classes[k] for k in p.argmax(1)]
    right = np.mean(labels == np.asarray(predictor.classes)[y.numpy()])
    assert 100 * right == pytest.approx(measure(saved.model, saved.problem, x, y)["accuracy"], abs=1e-4)
    assert not predictor.model.training
    assert not any(p.requires_grad for p in predictor.model.parameters())
    with pytest.raises(rcad.InputError, match="predicts classes; use predict_proba"):
        predictor.predict_interval(x)


def test_a_real_target_is_in_its_own_unit(trained_runs: Path) -> None:
    run = run_id("erm", 0, "diabetes")
    saved = RunLoader(Store.open(trained_runs), device="cpu").load(run)
    predictor = rcad.load(run[:12], runs=trained_runs, device="cpu")
    scales, (center, scale) = predictor.preprocessing.scales, predictor.target
    x, y = saved.problem.test
    raw = x.double().numpy() * scales.scale + scales.mean
    mean, deviation = predictor.predict(raw, return_std=True)
    error = np.sqrt(np.mean((mean - (y.numpy() * scale + center)) ** 2))
    found = measure(saved.model, saved.problem, x, y)
    assert error == pytest.approx(found["rmse"], rel=1e-4)
    target = torch.distributions.Normal(torch.tensor(mean), torch.tensor(deviation))
    assert -target.log_prob(y.double() * scale + center).mean().item() == pytest.approx(found["nll"], rel=1e-4)
    low, high = predictor.predict_interval(raw, coverage=0.6827).T
    np.testing.assert_allclose(high - mean, deviation, rtol=1e-3)
    np.testing.assert_allclose(mean - low, deviation, rtol=1e-3)
    assert (predictor.predict(raw) == mean).all()
    with pytest.raises(rcad.InputError, match="predicts a number"):
        predictor.predict_proba(raw)
    with pytest.raises(rcad.InputError, match="coverage to be a number between 0 and 1, but got 1"):
        predictor.predict_interval(raw, coverage=1)


def test_a_deviation_is_as_small_as_the_likelihood_lets_it_be() -> None:
    found = answer(torch.tensor([[0.5, -100.0], [-1.0, 2.0]], dtype=torch.float64), (10.0, 2.0))
    np.testing.assert_allclose(found.numpy(), [[11, 2 * np.exp(-10)], [8, 2 * np.e]])


def test_it_shows_itself(trained_runs: Path, digits: Predictor) -> None:
    for text in (repr(digits), digits._repr_html_()):
        assert run_id("erm") in text
        assert "grey images of 8x8" in text
        assert "10 classes: 0, 1, 2, 3, 4, 5, 6, 7, ..." in text
        assert "test_accuracy" in text
    table = rcad.load(trained_runs / run_id("erm", 0, "diabetes"), device="cpu")
    assert "10 columns: age, sex, bmi" in repr(table)
    assert "a number, with its deviation" in repr(table)


def test_what_cannot_be_loaded_is_one_line(trained_runs: Path, tmp_path: Path) -> None:
    run = run_id("erm")
    shutil.copytree(trained_runs / run, tmp_path / run)
    weights = tmp_path / run / WEIGHTS
    tensors, kept = load_tensors(weights)
    save_tensors(weights, tensors, {key: value for key, value in kept.items() if key != "shape"})
    with pytest.raises(rcad.InputError, match=r"trained by an earlier version; remove the run .* and train it again"):
        rcad.load(tmp_path / run)
    name = next(name for name in tensors if name.endswith("weight"))
    save_tensors(weights, {**tensors, name: torch.zeros(1)}, kept)
    with pytest.raises(rcad.InputError, match="they are of another model"):
        rcad.load(tmp_path / run)
    record = unsealed(json.loads((tmp_path / run / "record.json").read_text()))
    (tmp_path / run / "record.json").write_text(json.dumps(record | {"status": "interrupted", "finished": None}))
    with pytest.raises(rcad.InputError, match="expected a finished run"):
        rcad.load(tmp_path / run)
    with pytest.raises(rcad.InputError, match="expected a folder of runs"):
        rcad.load("3f2a", runs=tmp_path / "nowhere")


def test_runs_of_before_on_tables_still_load(own_runs: dict[str, Path], tmp_path: Path) -> None:
    old = tmp_path / own_runs["flats"].name
    shutil.copytree(own_runs["flats"], old)
    tensors, kept = load_tensors(old / WEIGHTS)
    save_tensors(old / WEIGHTS, tensors, {key: value for key, value in kept.items() if key != "shape"})
    assert rcad.load(old).target == rcad.load(own_runs["flats"]).target


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_file_of_a_real_target(own_runs: dict[str, Path], tmp_path: Path) -> None:
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


def test_the_file_of_classes_and_broken_images(own_runs: dict[str, Path], tmp_path: Path) -> None:
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
