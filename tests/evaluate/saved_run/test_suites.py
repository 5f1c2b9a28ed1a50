"""Every suite against numbers that are computed in another way."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluate.saved_run.conftest import QUICK
from paper_records import silent
from rcad.data.corrupted import CORRUPTIONS
from rcad.errors import InputError
from rcad.evaluate.attacks import FGSM, accuracy_under, attacked_accuracy
from rcad.evaluate.classification import fit_temperature
from rcad.evaluate.conformal import conformal_classes, conformal_values
from rcad.evaluate.corruptions import evaluate_corruptions
from rcad.evaluate.saved_run.loading import RunLoader, SavedRun, as_images, foreign_inputs
from rcad.evaluate.saved_run.settings import Settings
from rcad.evaluate.saved_run.suites import NotApplicable, attacks, calibration, corruptions, ood, published_set
from rcad.runs.store import Store
from trained import DIGITS, run_id


@pytest.fixture
def saved(loader: RunLoader) -> SavedRun:
    return loader.load(run_id("erm"))


def test_calibration_repeats_what_the_run_reported(loader: RunLoader, store: Store) -> None:
    """The weights, the splits and the units are those of the run, or these could not agree."""
    for run, names in ((run_id("rcad"), ("accuracy", "nll", "brier")), (run_id("erm", 0, "diabetes"), ("nll", "rmse"))):
        found, record = calibration(loader.load(run), Settings(), silent), store.get(run)
        for name in names:
            assert found.numbers[name] == pytest.approx(record.metrics[f"test_{name}"], rel=1e-6, abs=1e-6)
        if "accuracy" in names:
            assert found.numbers["val_nll"] == pytest.approx(record.metrics["val_nll"], abs=1e-6)
            assert found.examples == sum(found.curves["reliability"]["count"]) == 359
    assert found.numbers["rmse"] > 10  # not in units of the deviation


@pytest.mark.parametrize("data", [DIGITS, "diabetes"])
def test_sets_and_temperature_are_fitted_on_the_validation_split(data: str, loader: RunLoader) -> None:
    saved = loader.load(run_id("erm", 0, data))
    found = calibration(saved, Settings(), silent)
    held, test = ((saved.outputs(x), y) for x, y in (saved.problem.val, saved.problem.test))
    if data == DIGITS:
        expected = conformal_classes(held, test)
        assert expected != conformal_classes(test, test)
        assert found.numbers["temperature"] == fit_temperature(*held).value != fit_temperature(*test).value
    else:
        expected = conformal_values(held, test, saved.problem.target_scale or 1.0)
        assert expected["conformal_width_90"] > 50  # in the target's own unit
    assert expected.items() <= found.numbers.items()
    x, y = saved.problem.val
    few = calibration(replace(saved, problem=replace(saved.problem, val=(x[:12], y[:12]))), Settings(), silent)
    assert "conformal_coverage_90" in few.numbers
    assert "conformal_coverage_95" not in few.numbers
    assert "12 validation examples are too few for conformal sets of 95% or 99%." in few.notes


def test_no_temperature_without_a_validation_split_or_with_a_perfect_one(saved: SavedRun, loader: RunLoader) -> None:
    run = run_id("label_smoothing", 0, DIGITS, "data.validation=0", "train.selection=last")
    found = calibration(loader.load(run), Settings(), silent)
    assert not any("temperature" in name or "scaled" in name or "conformal" in name for name in found.numbers)
    assert found.notes == ("No validation split was held out, so no temperature is fitted.",)
    x, _ = saved.problem.val
    perfect = replace(saved, problem=replace(saved.problem, val=(x, saved.outputs(x).argmax(1))))
    found = calibration(perfect, Settings(), silent)
    assert "temperature" not in found.numbers
    assert "every validation example is right" in found.notes[0]


def test_attacks_on_images_have_the_radius_and_the_bounds_of_pixels(saved: SavedRun) -> None:
    found = attacks(saved, replace(QUICK, masking=False), silent)
    x, y = saved.examples("attacks", QUICK)
    alone = attacked_accuracy(saved.model, x, y, {"fgsm": FGSM(0.1)}).accuracies()
    assert found.numbers["attacked_accuracy_fgsm_0.1"] == alone["fgsm"] < alone["clean"]
    assert found.numbers["attacked_accuracy_clean"] == alone["clean"]
    assert found.numbers["accuracy_under_fgsm_0.1"] == accuracy_under(saved.model, x, y, FGSM(0.1))
    for eps in ("0.05", "0.1"):
        each = [found.numbers[f"attacked_accuracy_{name}_{eps}"] for name in ("fgsm", "pgd", "apgd_ce", "apgd_dlr")]
        assert found.numbers[f"attacked_accuracy_worst_{eps}"] <= min(each)
    assert found.curves["accuracy"]["worst"][1] == found.numbers["attacked_accuracy_worst_0.1"]


def test_masking_and_the_twin(loader: RunLoader) -> None:
    saved, twin = loader.load(run_id("rcad")), loader.load(run_id("erm"))
    few = replace(QUICK, attacks=("fgsm",), limit=8)
    alone = attacks(saved, few, silent)
    with_twin = attacks(saved, few, silent, twin)
    names = [check["name"] for check in with_twin.curves["masking"]]
    assert names == [check["name"] for check in alone.curves["masking"]] + ["transfer"]
    failed = sum(not check["passed"] for check in with_twin.curves["masking"])
    assert with_twin.numbers["masking_signs"] == failed
    assert "masking_signs" not in attacks(saved, replace(few, masking=False), silent).numbers


def test_attacks_on_a_table_have_no_bounds(loader: RunLoader) -> None:
    saved = loader.load(run_id("erm", 0, "breast_cancer"))
    found = attacks(saved, replace(QUICK, masking=False, attack_eps=(5.0,)), silent)
    assert found.numbers["attacked_accuracy_worst_5"] < 20  # rows clipped to [0, 1] could not be moved so far
    assert "attacked_accuracy_apgd_dlr_5" not in found.numbers
    assert len(found.notes) == 2


def test_corruptions_by_hand(saved: SavedRun) -> None:
    found = corruptions(saved, QUICK, silent)
    x, y = saved.examples("corruptions", QUICK)
    chosen = {"corruptions": QUICK.corruptions, "severities": QUICK.severities, "seed": QUICK.seed}
    scores = evaluate_corruptions(saved.model, x, y, **chosen)
    assert found.curves == scores.to_dict()
    fog, pixelate = ([cell.accuracy for cell in scores.scores[name]] for name in QUICK.corruptions)
    assert found.numbers["corrupted_accuracy_fog"] == pytest.approx(sum(fog) / 2)
    assert found.numbers["corrupted_accuracy_mean"] == pytest.approx(sum([*fog, *pixelate]) / 4)
    assert found.numbers["corrupted_accuracy_severity_5"] == pytest.approx((fog[1] + pixelate[1]) / 2)
    assert found.examples == 24


def published(folder: Path, loader: RunLoader, names: tuple[str, ...] = CORRUPTIONS, classes: int = 10) -> Path:
    """The clean test images in the place of corrupted ones."""
    folder.mkdir()
    x, y = (part.numpy() for part in loader.load(run_id("erm")).problem.test)
    np.save(folder / "labels.npy", np.tile(y % classes, 5))
    for name in names:
        np.save(folder / f"{name}.npy", np.tile(x.transpose(0, 2, 3, 1), (5, 1, 1, 1)))
    return folder


def test_published_images_are_read(saved: SavedRun, loader: RunLoader, tmp_path: Path) -> None:
    chosen = replace(QUICK, corrupted=str(published(tmp_path / "c", loader)))
    found = corruptions(saved, chosen, silent)
    assert found.curves["provenance"] == "published"
    # The same images of the test split are looked at: they are those of `draw_rows`.
    assert found.numbers["corrupted_accuracy_mean"] == pytest.approx(found.numbers["corrupted_accuracy_clean"])
    assert found.numbers["corrupted_nll_mean"] == pytest.approx(found.numbers["corrupted_nll_clean"])


def test_a_published_set_must_fit(saved: SavedRun, loader: RunLoader, tmp_path: Path) -> None:
    part, few = (published(tmp_path / f"{classes}", loader, ("fog",), classes) for classes in (10, 7))
    np.save(part / "fog.npy", np.zeros((5 * 359, 32, 32, 3), np.uint8))
    for folder, names, says in (
        (part, QUICK.corruptions, "expected pixelate in .*10, but it is missing"),
        (few, ("fog",), "expected 10 classes in .*7, as the run has, but got 7"),
        (part, ("fog",), r"expected images of shape \(1, 8, 8\)"),
    ):
        with pytest.raises(InputError, match=says):
            published_set(saved, replace(QUICK, corrupted=str(folder), corruptions=names))


def test_entropy_at_no_distance_is_that_of_the_test_split_and_the_curve_has_the_area_printed(loader: RunLoader) -> None:
    saved = loader.load(run_id("rcad"))
    found = ood(saved, replace(QUICK, limit=0), silent)
    clean = calibration(saved, Settings(), silent).numbers["entropy"]
    assert found.numbers["entropy_adversarial_0"] == pytest.approx(clean, abs=1e-6)
    assert found.numbers["entropy_random_0"] == pytest.approx(clean, abs=1e-6)
    assert found.numbers["entropy_adversarial_1"] != found.numbers["entropy_random_1"]
    assert {name.split("_")[1] for name in found.numbers if name.startswith("ood_")} == {"noise", "perturbed"}
    for one in found.curves["foreign"].values():
        assert (sum(one["histogram"]["known"]), one["count"]) == (pytest.approx(1), 359)
    curve = found.curves["foreign"]["noise"]["roc"]
    area = np.trapezoid(curve["known"], curve["foreign"])
    assert area == pytest.approx(found.numbers["ood_noise_entropy_auroc"], abs=0.02)


def test_a_real_target_has_one_score(loader: RunLoader) -> None:
    found = ood(loader.load(run_id("erm", 0, "diabetes")), QUICK, silent)
    assert 0 <= found.numbers["ood_noise_entropy_auroc"] <= 1
    assert found.numbers["entropy_adversarial_0"] == pytest.approx(found.numbers["entropy_random_0"])
    assert not [name for name in found.numbers if "msp" in name or "perturbed" in name]


def test_foreign_images_are_brought_to_the_shape() -> None:
    colour = torch.zeros(2, 3, 16, 16, dtype=torch.uint8)
    colour[:, 1] = 255
    torch.testing.assert_close(as_images(colour, (1, 8, 8)), torch.full((2, 1, 8, 8), 0.587))
    back = as_images(torch.full((2, 1, 4, 4), 51, dtype=torch.uint8), (3, 8, 8))
    torch.testing.assert_close(back, torch.full((2, 3, 8, 8), 0.2))


def test_foreign_images_of_any_size_need_no_labels(saved: SavedRun, tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    for side in (8, 20):
        pil.fromarray(np.full((side, side + 2), 51, np.uint8)).save(tmp_path / f"{side}.png")
    torch.testing.assert_close(foreign_inputs(saved, str(tmp_path), 9, 0), torch.full((2, 1, 8, 8), 0.2))
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"broken.png to be an image, .*; replace or remove it$"):
        foreign_inputs(saved, str(tmp_path), 9, 0)


def test_what_makes_no_sense_is_said(saved: SavedRun) -> None:
    x, y = saved.problem.test

    flat = replace(saved, problem=replace(saved.problem, test=(x[:, :, :3], y)))
    real, table = (saved.loader.load(run_id("erm", 0, data)) for data in ("diabetes", "breast_cancer"))
    for suite, unfit, says in (
        (corruptions, flat, "at least 4 pixels a side; this run's are 8x3"),
        (corruptions, table, "images"),
        (attacks, real, "regression target"),
    ):
        with pytest.raises(NotApplicable, match=says):
            suite(unfit, QUICK, silent)


def test_foreign_data_must_fit(loader: RunLoader) -> None:
    images, table = loader.load(run_id("erm")), loader.load(run_id("erm", 0, "breast_cancer"))
    with pytest.raises(InputError, match=r"a column 'mean radius' in diabetes, but its columns are age, sex, bmi"):
        foreign_inputs(table, "diabetes", 4, 0)
    with pytest.raises(InputError, match=r"expected a table .* but digits holds images"):
        foreign_inputs(table, "digits", 4, 0)
    noise = foreign_inputs(images, "noise", 50, 0)
    assert noise.shape == (50, 1, 8, 8)
    assert 0 <= noise.min() < 0.1 < 0.9 < noise.max() <= 1
    assert foreign_inputs(table, "noise", 50, 0).std() == pytest.approx(1, abs=0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("data", [DIGITS, "breast_cancer", "diabetes"])
def test_a_gpu_finds_the_same(data: str, store: Store) -> None:
    """Where no attack or random draw differs between devices."""
    settings = replace(QUICK, corruptions=("contrast", "pixelate"))
    found = []
    for device in ("cpu", "cuda"):
        loader = RunLoader(store, device=device)
        saved = loader.load(run_id("erm", 0, data))
        numbers = dict(calibration(saved, QUICK, silent).numbers)
        foreign_data = ood(saved, QUICK, silent).numbers
        numbers |= {name: value for name, value in foreign_data.items() if "noise" in name}
        numbers |= corruptions(saved, settings, silent).numbers if saved.is_image else {}
        found.append(numbers)
        if saved.problem.classes:
            attacks(saved, replace(QUICK, limit=8), silent, saved)
    assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-3)
