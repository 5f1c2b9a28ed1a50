"""New examples in every form that a model may get them in."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import rcad
from made import png
from predict.conftest import flats
from rcad.predict.predictor import Predictor
from trained import run_id


def test_images_in_memory_and_in_files_are_the_same(digits: Predictor, tmp_path: Path) -> None:
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
    forms = [torch.from_numpy(pixels), pixels[:, 0], pixels / 255, folder, str(folder.parent), tmp_path / "new.npy"]
    for form in forms:
        np.testing.assert_allclose(digits.predict_proba(form), wanted, atol=1e-5)
    np.testing.assert_allclose(digits.predict_proba(folder / "007.png"), wanted[7:8], atol=1e-5)
    examples = digits.preprocessing.read(folder.parent)
    parts = list(examples.parts)
    assert (examples.total, examples.headers, len(parts)) == (300, ("file",), 2)
    assert parts[1].names[0] == ("some/256.png",)


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros((4, 3, 8, 8), np.uint8), r"images of shape \(N, 1, 8, 8\), but got \(4, 3, 8, 8\)"),
        (np.zeros((0, 1, 8, 8), np.uint8), r"but got \(0, 1, 8, 8\)"),
        (np.full((4, 8, 8), -0.5), "uint8 pixels or numbers in .0, 1., but got values from -0.5 to -0.5"),
        (np.full((4, 8, 8), np.nan), "but got values from nan"),
        ([["a"]], "expected an array of numbers, a frame or a path"),
        ("nowhere", "expected an image or a folder with images, but found none at nowhere"),
    ],
)
def test_images_that_do_not_fit(digits: Predictor, x: object, says: str) -> None:
    with pytest.raises(rcad.InputError, match=says):
        digits.predict(x)


def test_files_of_another_size(digits: Predictor, own_runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(side=9))
    with pytest.raises(rcad.InputError, match=r"images of 8x8 as in training, but got 9x9 in .*a.png; .* --size 8"):
        digits.predict(tmp_path)
    resized = rcad.load(own_runs["images"], device="cpu")  # trained with a size
    assert "resized" in repr(resized)
    assert resized.predict(tmp_path).tolist()[0] in ("class0", "class1")
    (tmp_path / "b.png").write_bytes(png(keep=40))
    with pytest.raises(rcad.InputError, match=r"expected .*b.png to be an image"):
        resized.predict(tmp_path)
    (part,) = resized.preprocessing.read(tmp_path, skip_bad=True).parts
    assert part.names == [("a.png",)]
    assert "b.png" in part.bad[0]


def test_tables_in_every_form_are_the_same(prices: Predictor, tmp_path: Path) -> None:
    pandas, path = pytest.importorskip("pandas"), tmp_path / "new.csv"
    path.write_text(flats())
    wanted = prices.predict(path)
    frame = pandas.read_csv(path).drop(columns="price")[["sold", "floor", "city", "area", "id"]]
    np.testing.assert_allclose(prices.predict(frame), wanted)
    typed = frame.assign(sold=pandas.to_datetime(frame["sold"]), city=frame["city"].astype("category"))
    np.testing.assert_allclose(prices.predict(typed), wanted)
    typed.to_parquet(tmp_path / "new.parquet")
    np.testing.assert_allclose(prices.predict(tmp_path / "new.parquet"), wanted)
    examples = prices.preprocessing.read(path)
    assert examples.headers == ("row", "id")  # what names a row predicts nothing, and is kept
    assert next(examples.parts).names[:2] == [("1", "1000"), ("2", "1001")]
    assert prices.predict(frame.iloc[3:4])[0] == pytest.approx(wanted[3])  # a row alone
    with pytest.raises(rcad.InputError, match="expected one kind of values in each column"):
        prices.predict(frame.assign(area=["x", *range(59)]))
    with pytest.raises(rcad.InputError, match=r"each column of the frame, but got: Duplicate column names"):
        prices.predict(pandas.concat([frame, frame], axis=1))
    with pytest.raises(rcad.InputError, match="expected at least one row"):
        prices.predict(frame.iloc[:0])


def test_rows_of_numbers(own_runs: dict[str, Path], trained_runs: Path) -> None:
    diabetes = rcad.load(trained_runs / run_id("erm", 0, "diabetes"), device="cpu")
    rows = np.random.default_rng(0).normal(size=(7, 10))
    pandas = pytest.importorskip("pandas")
    names = [code.name for code in diabetes.preprocessing.encoder.codes]
    wanted = diabetes.predict(pandas.DataFrame(rows, columns=names))
    np.testing.assert_allclose(diabetes.predict(rows), wanted)
    np.testing.assert_allclose(diabetes.predict(torch.from_numpy(rows)), wanted)
    with pytest.raises(rcad.InputError, match=r"expected rows with 10 columns: age, .*; but got shape \(7, 9\)"):
        diabetes.predict(rows[:, 1:])
    floors = rcad.load(own_runs["floors"], device="cpu")
    assert floors.classes == ("0", "1", "2", "3", "4")


def test_what_a_table_lacks_or_adds(prices: Predictor, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, (header, first, *_) = tmp_path / "new.csv", flats().splitlines()
    with caplog.at_level(logging.WARNING, "rcad"):
        path.write_text(f"{header}\n{first}\n")
        known = prices.predict(path)
        assert not caplog.messages
        path.write_text(f"{header}\n{first.replace('Bonn', 'Ulm')}\n")
        unknown = prices.predict(path)
    assert caplog.messages == ["categories that training did not have count as unknown: 'city' ('Ulm')"]
    assert unknown != known
    path.write_text(f"{header}\n{first.replace('Bonn', '')}\n")
    assert prices.predict(path) == unknown  # as a missing one does
    path.write_text(f"{header.replace('city', 'town')}\n{first}\n")
    with pytest.raises(rcad.InputError, match=r"expected a column 'city' in .*new.csv, but it is missing"):
        prices.predict(path)
    path.write_text(f"{header}\n{first.replace('2020-01-01', 'today')}\n")
    with pytest.raises(rcad.InputError, match="expected a date in line 2, column 'sold'"):
        prices.predict(path)
