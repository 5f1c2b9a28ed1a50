"""A finished run predicts what it did at its end, from new examples in every form; into a file; in other programs."""

import csv
import io
import json
import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

import rcad
from made import png
from predict.conftest import flats
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.predict import export as exporting
from rcad.predict.predictor import answer, write_csv
from rcad.runs.files import unsealed
from rcad.runs.store import WEIGHTS, Store
from rcad.train.checkpoint import load_tensors, save_tensors
from rcad.train.task import measure
from trained import run_id


def test_classes_are_those_of_the_run_s_own_test(trained_runs):
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
    with pytest.raises(rcad.InputError, match="predicts classes; use predict_proba"):
        predictor.predict_interval(x)


def test_a_real_target_is_in_its_own_unit(trained_runs):
    run = run_id("erm", 0, "diabetes")
    saved = RunLoader(Store.open(trained_runs), device="cpu").load(run)
    predictor = rcad.load(run[:12], runs=trained_runs, device="cpu")
    scales, (center, scale) = predictor.preprocessing.scales, predictor.target
    x, y = saved.problem.test
    raw = x.double().numpy() * scales.scale + scales.mean
    mean, deviation = predictor.predict(raw, return_std=True)
    assert (predictor.predict(raw) == mean).all()
    found, y = measure(saved.model, saved.problem, x, y), y.double() * scale + center
    assert np.sqrt(np.mean((mean - y.numpy()) ** 2)) == pytest.approx(found["rmse"], rel=1e-4)
    target = torch.distributions.Normal(torch.tensor(mean), torch.tensor(deviation))
    assert -target.log_prob(y).mean().item() == pytest.approx(found["nll"], rel=1e-4)
    low, high = predictor.predict_interval(raw, coverage=0.6827).T
    np.testing.assert_allclose(high - mean, deviation, rtol=1e-3)
    np.testing.assert_allclose(mean - low, deviation, rtol=1e-3)
    least = answer(torch.tensor([[0.5, -100.0], [-1.0, 2.0]], dtype=torch.float64), (10.0, 2.0))
    np.testing.assert_allclose(least.numpy(), [[11, 2 * np.exp(-10)], [8, 2 * np.e]])
    with pytest.raises(rcad.InputError, match="predicts a number"):
        predictor.predict_proba(raw)
    with pytest.raises(rcad.InputError, match="coverage to be a number between 0 and 1, but got 1"):
        predictor.predict_interval(raw, coverage=1)


def test_it_shows_itself(trained_runs, own_runs, digits):
    for text in (repr(digits), digits._repr_html_()):
        for words in (run_id("erm"), "grey images of 8x8", "10 classes: 0, 1, 2, 3, 4, 5, 6, 7, ...", "test_accuracy"):
            assert words in text
    table = repr(rcad.load(trained_runs / run_id("erm", 0, "diabetes"), device="cpu"))
    assert ("10 columns: age, sex, bmi" in table, "a number, with its deviation" in table) == (True, True)
    assert rcad.load(own_runs["floors"], device="cpu").classes == ("0", "1", "2", "3", "4")


def test_what_cannot_be_loaded_is_one_line(trained_runs, tmp_path):
    run = run_id("erm")
    folder = shutil.copytree(trained_runs / run, tmp_path / run)
    tensors, kept = load_tensors(folder / WEIGHTS)
    save_tensors(folder / WEIGHTS, tensors, {key: value for key, value in kept.items() if key != "shape"})
    with pytest.raises(rcad.InputError, match=r"trained by an earlier version; remove the run .* and train it again"):
        rcad.load(folder)
    name = next(name for name in tensors if name.endswith("weight"))
    save_tensors(folder / WEIGHTS, {**tensors, name: torch.zeros(1)}, kept)
    with pytest.raises(rcad.InputError, match="they are of another model"):
        rcad.load(folder)
    record = unsealed(json.loads((folder / "record.json").read_text()))
    (folder / "record.json").write_text(json.dumps(record | {"status": "interrupted", "finished": None}))
    with pytest.raises(rcad.InputError, match="expected a finished run"):
        rcad.load(folder)
    with pytest.raises(rcad.InputError, match="expected a folder of runs"):
        rcad.load("3f2a", runs=tmp_path / "nowhere")


def test_runs_of_before_on_tables_still_load(own_runs, tmp_path):
    old = tmp_path / own_runs["flats"].name
    shutil.copytree(own_runs["flats"], old)
    tensors, kept = load_tensors(old / WEIGHTS)
    save_tensors(old / WEIGHTS, tensors, {key: value for key, value in kept.items() if key != "shape"})
    assert rcad.load(old).target == rcad.load(own_runs["flats"]).target


def test_a_tilde_is_the_home_folder(own_runs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    run = own_runs["flats"].name
    shutil.copytree(own_runs["flats"], tmp_path / "runs" / run)
    (tmp_path / "new.csv").write_text(flats())
    write_csv(rcad.load(f"~/runs/{run}", device="cpu"), "~/new.csv", Path("~/out.csv"))
    rcad.load(run[:8], runs="~/runs", device="cpu").export("~/model.pt2")
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "new.csv", "out.csv", "model.pt2"}


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_file_of_a_real_target(own_runs, tmp_path):
    predictor, data, out = rcad.load(own_runs["flats"]), tmp_path / "new.csv", tmp_path / "out.csv"
    data.write_text(flats())
    told = []
    found = write_csv(predictor, data, out, coverage=0.8, progress=lambda *now: told.append(now))
    mean, deviation = predictor.predict(data, return_std=True)
    low, high = predictor.predict_interval(data, coverage=0.8).T
    table = rows(out)
    assert list(table[0]) == ["row", "id", "prediction", "deviation", "low", "high"]
    for name, wanted in {"prediction": mean, "deviation": deviation, "low": low, "high": high}.items():
        np.testing.assert_allclose([float(row[name]) for row in table], wanted, rtol=1e-6)
    assert (found["examples"], found["skipped"], found["mean"]) == (60, [], pytest.approx(mean.mean()))
    assert told == [(0, 60), (60, 60)]


def test_the_file_of_classes_and_broken_images(own_runs, tmp_path):
    predictor, folder, out = rcad.load(own_runs["images"]), tmp_path / "new", tmp_path / "out.csv"
    folder.mkdir()
    (folder / "b, c.png").write_bytes(png())
    (folder / "d.png").write_bytes(png(keep=30))
    with pytest.raises(rcad.InputError, match=r"d.png"):
        write_csv(predictor, folder, out)
    assert not out.exists()
    found = write_csv(predictor, folder, out, skip_bad=True)
    (row,) = rows(out)
    assert list(row) == ["file", "prediction", "probability", "p_class0", "p_class1"]
    assert (row["file"], row["prediction"]) == ("b, c.png", predictor.predict(folder / "b, c.png")[0])
    assert float(row["probability"]) == max(float(row["p_class0"]), float(row["p_class1"]))
    assert (found["examples"], len(found["skipped"]), sum(found["classes"].values())) == (1, 1, 1)
    (folder / "b, c.png").unlink()
    with pytest.raises(rcad.InputError, match="but all are broken"):
        write_csv(predictor, folder, tmp_path / "none.csv", skip_bad=True)


def test_images_in_memory_and_in_files_are_the_same(digits, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (300, 1, 8, 8), dtype=np.uint8)
    wanted = digits.predict_proba(pixels)
    folder = tmp_path / "new" / "some"
    (folder / ".thumbs").mkdir(parents=True)
    for i, image in enumerate(pixels[:, 0]):
        grey = Image.fromarray(image)
        (grey.convert("RGB") if i % 2 else grey).save(folder / f"{i:03}.png")  # grey either way
    Image.fromarray(pixels[0, 0]).save(folder / ".thumbs" / "0.png")
    (folder / "notes.txt").write_text("no image")
    np.save(tmp_path / "new.npy", pixels)
    for form in (torch.from_numpy(pixels), pixels[:, 0], pixels / 255, str(folder.parent), tmp_path / "new.npy"):
        np.testing.assert_allclose(digits.predict_proba(form), wanted, atol=1e-5)
    np.testing.assert_allclose(digits.predict_proba(folder / "007.png"), wanted[7:8], atol=1e-5)
    parts = list(digits.preprocessing.read(folder.parent).parts)
    assert (len(parts), parts[1].names[0]) == (2, ("some/256.png",))


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros((4, 3, 8, 8), np.uint8), r"images of shape \(N, 1, 8, 8\) in the array, but got \(4, 3, 8, 8\)"),
        (np.full((4, 8, 8), -0.5), "numbers in .0, 1. in the array, but got values from -0.5 to -0.5"),
        (np.full((4, 8, 8), np.nan), "but got values from nan"),
        ("nowhere", "expected an image or a folder with images at nowhere, but found nothing"),
        ("words.npy.csv", "at words.npy.csv, but found a file of another kind; the run was trained on images"),
        ("deep.npy", "in deep.npy, but got values from 4e.04 to 4e.04; divide pixels by the largest there can be"),
        ("words.npy", r"expected an array of numbers, a frame or a path, but got array\(\['a'\], dtype='<U1'\)$"),
    ],
)
def test_images_that_do_not_fit(digits, x, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("deep.npy", np.full((4, 8, 8), 40000, np.uint16))
    np.save("words.npy", np.array(["a"]))
    Path("words.npy.csv").write_text("x,y\n1,2\n")
    with pytest.raises(rcad.InputError, match=says):
        digits.predict(x)


def test_files_of_another_size(digits, own_runs, tmp_path, caplog):
    (tmp_path / "a.png").write_bytes(png(side=9))
    with pytest.raises(rcad.InputError, match=r"images of 8x8 as in training, but got 9x9 in .*a.png; .* --size 8"):
        digits.predict(tmp_path)
    resized = rcad.load(own_runs["images"], device="cpu")  # trained with a size
    assert "resized" in repr(resized)
    assert resized.predict(tmp_path).tolist()[0] in ("class0", "class1")
    (tmp_path / "b.png").write_bytes(png(keep=40))
    with pytest.raises(rcad.InputError, match=r"expected .*b.png to be an image"):
        resized.predict(tmp_path)
    assert resized.predict(tmp_path, skip_bad=True).shape == (1,)
    assert "1 of 2 images left out: expected" in caplog.text


def test_images_of_another_size_in_memory(digits, own_runs, tmp_path):
    """Resized as the file of the same picture is, turned as its EXIF says, and left as they were."""
    resized, path = rcad.load(own_runs["images"], device="cpu"), tmp_path / "a.jpg"
    pixels = np.random.default_rng(0).integers(0, 256, (14, 20, 3), dtype=np.uint8)
    turned = Image.Exif()
    turned[274] = 6
    Image.fromarray(pixels).save(path, exif=turned)
    wanted = resized.predict_proba(path)
    with Image.open(path) as image:
        np.testing.assert_allclose(resized.predict_proba([image, image]), np.concatenate([wanted] * 2), atol=1e-6)
        assert image.size == (20, 14)
        with pytest.raises(rcad.InputError, match=r"8x8 as in training, but got 14x20 in image 1; .* --size 8"):
            digits.predict(image)
    Image.fromarray(pixels).save(tmp_path / "b.png")
    wanted, array = resized.predict_proba(tmp_path / "b.png"), pixels.transpose(2, 0, 1)[None]
    for form in (array, torch.from_numpy(array) / 255, Image.fromarray(pixels)):
        np.testing.assert_allclose(resized.predict_proba(form), wanted, atol=1e-6)
    with pytest.raises(rcad.InputError, match="values from 0 to 255"):
        resized.predict(array.astype(float) - array.min())


def test_tables_in_every_form_are_the_same(prices, tmp_path):
    (path := tmp_path / "new.csv").write_text(flats())
    wanted = prices.predict(path)
    frame = pandas.read_csv(path).drop(columns="price")[["sold", "floor", "city", "area", "id"]]
    typed = frame.assign(sold=pandas.to_datetime(frame["sold"]), city=frame["city"].astype("category"))
    typed.to_parquet(tmp_path / "new.parquet")
    for form in (frame, typed, tmp_path / "new.parquet"):
        np.testing.assert_allclose(prices.predict(form), wanted)
    examples = prices.preprocessing.read(path)
    assert examples.headers == ("row", "id")  # what names a row predicts nothing, and is kept
    assert next(examples.parts).names[:2] == [("1", "1000"), ("2", "1001")]
    assert prices.predict(frame.iloc[3:4])[0] == pytest.approx(wanted[3])  # a row alone
    twice = pandas.concat([frame, frame], axis=1)
    for bad, says in (
        (frame.assign(area=["x", *range(59)]), "expected one kind of values in each column"),
        (twice, r"each column of the frame, but got: Duplicate column names"),
        (frame.iloc[:0], "expected at least one row"),
    ):
        with pytest.raises(rcad.InputError, match=says):
            prices.predict(bad)


def test_rows_of_numbers(trained_runs):
    diabetes = rcad.load(trained_runs / run_id("erm", 0, "diabetes"), device="cpu")
    rows = np.random.default_rng(0).normal(size=(7, 10))
    names = [code.name for code in diabetes.preprocessing.encoder.codes]
    wanted = diabetes.predict(pandas.DataFrame(rows, columns=names))
    for form in (rows, torch.from_numpy(rows)):
        np.testing.assert_allclose(diabetes.predict(form), wanted)
    with pytest.raises(rcad.InputError, match=r"expected rows with 10 columns: age, .*; but got shape \(7, 9\)"):
        diabetes.predict(rows[:, 1:])


def test_what_a_table_lacks_or_adds(prices, tmp_path, caplog):
    path, (header, first, *_) = tmp_path / "new.csv", flats().splitlines()

    def predicted(row):
        path.write_text(f"{header}\n{row}\n")
        return prices.predict(path)

    with caplog.at_level(logging.WARNING, "rcad"):
        known = predicted(first)
        assert not caplog.messages
        unknown = predicted(first.replace("Bonn", "Ulm"))
    assert caplog.messages == ["categories that training did not have count as unknown: 'city' ('Ulm')"]
    assert predicted(first.replace("Bonn", "")) == unknown != known  # as a missing one does
    with pytest.raises(rcad.InputError, match="expected a table, but found a folder at"):
        prices.predict(tmp_path)
    with pytest.raises(rcad.InputError, match=r"a date in line 2, column 'sold' .*; correct it, or leave it empty if"):
        predicted(first.replace("2020-01-01", "today"))


@pytest.fixture(params=["torch", "onnx"])
def program(request, tmp_path):
    """Exports a run; gives the file as a function of arrays, and its description."""
    if request.param == "onnx":
        for package in ("onnx", "onnxscript"):
            pytest.importorskip(package, reason=f"{package} is not installed: extra onnx")
        runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: extra onnx")

    def make(predictor):
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


def test_images(program, digits):
    run, described = program(digits)
    for count in (1, 7):
        x = np.random.default_rng(0).random((count, 1, 8, 8), np.float32)
        np.testing.assert_allclose(run(x), digits.predict_proba(x), atol=1e-5)
    assert described == {"run": run_id("erm"), "shape": [1, 8, 8], "columns": [], "output": list("0123456789")}


def test_a_table_with_gaps(program, prices, tmp_path):
    run, described = program(prices)
    (tmp_path / "new.csv").write_text(flats())
    encoder = prices.preprocessing.encoder
    x = encoder.transform(prices.preprocessing._table(tmp_path / "new.csv")).astype(np.float32)
    assert np.isnan(x).any()
    wanted = np.column_stack(prices.predict(tmp_path / "new.csv", return_std=True))
    np.testing.assert_allclose(run(x), wanted, rtol=1e-4)
    assert described["columns"] == list(encoder.features)
    assert described["output"] == ["mean", "deviation"]


def test_formats(digits, tmp_path):
    for name, to, says in (
        ("model.bin", None, r"a file that ends in .pt2 or .onnx, but got .*model.bin"),
        ("model.onnx", "torch", r"a file that ends in .pt2, but got .*model.onnx"),
        ("model.pt2", "torhc", "did you mean 'torch'"),
    ):
        with pytest.raises(rcad.InputError, match=says):
            digits.export(tmp_path / name, to)


def test_a_file_that_is_off_is_not_written(digits, tmp_path, monkeypatch):
    content, output = exporting._torch(exporting.Whole(digits).eval(), exporting._example(digits)[0], "{}")
    monkeypatch.setattr(exporting, "_torch", lambda *given: (content, output + 0.01))
    with pytest.raises(rcad.InputError, match=r"those of torch are 0.01 off; nothing is written"):
        digits.export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_names_its_extra(digits, tmp_path, monkeypatch):
    for name in ("onnx", "onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None if name == "onnxscript" else io)
    with pytest.raises(rcad.MissingExtraError, match=r"expected onnxscript to be installed: .*-e '\.\[onnx\]'"):
        digits.export(tmp_path / "model.onnx")
