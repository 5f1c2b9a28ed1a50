"""Suites on runs: what they depend on, recorded once, next to the run, and refused in one line."""

import json
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from evaluate.saved_run.conftest import QUICK
from one_line import refusals
from rcad.errors import InputError
from rcad.evaluate.attack_search import draw_rows
from rcad.evaluate.saved_run import run as module
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.run import erm_config, erm_twin, evaluate, evaluate_all
from rcad.evaluate.saved_run.settings import EVALUATION, OWN, SUITES, Settings
from rcad.runs.configure import configure
from rcad.runs.files import sealed, unsealed
from rcad.runs.store import Store
from rcad.train.checkpoint import load_tensors, save_tensors
from trained import run_id


@pytest.fixture
def copy(trained_runs: Path, tmp_path: Path) -> Store:
    """A store that a test may write to."""
    shutil.copytree(trained_runs, tmp_path / "runs", ignore=shutil.ignore_patterns("evaluation"))
    return Store.open(tmp_path / "runs")


def test_every_suite_leaves_a_record_that_is_not_made_again(copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, run = RunLoader(copy, device="cpu"), run_id("rcad")
    first = evaluate(loader, run, SUITES, QUICK)
    files = sorted(path.name for path in (copy.folder(run) / "evaluation").iterdir())
    assert files == sorted(QUICK.file(suite) for suite in SUITES)
    for suite in SUITES:
        found = EVALUATION.read(copy.folder(run) / "evaluation" / QUICK.file(suite))
        assert found == first.evaluations[suite]
        assert (found.run, found.suite, found.examples) == (run, suite, 24)
        assert found.settings["limit"] == 24
        assert {"python", "torch", "rcad"} <= found.versions.keys()
    assert first.evaluations["attacks"].settings["twin"] == run_id("erm")
    monkeypatch.setattr(module, "_measure", Mock(side_effect=AssertionError("measured again")))
    again = evaluate(loader, run, SUITES, QUICK)
    assert again.evaluations == first.evaluations
    with pytest.raises(AssertionError):
        evaluate(loader, run, ("ood",), QUICK, again=True)
    with pytest.raises(AssertionError):
        evaluate(loader, run, ("ood",), replace(QUICK, seed=1))
    (copy.folder(run_id("erm")) / "evaluation").write_text("a file")  # which is found before measuring
    with pytest.raises(InputError, match="evaluation"):
        evaluate(loader, run_id("erm"), ("calibration",), QUICK)


def test_a_new_twin_makes_the_attacks_new(copy: Store) -> None:
    few = replace(QUICK, attacks=("fgsm",), limit=4)
    run, twin = run_id("rcad"), run_id("erm")
    shutil.move(copy.folder(twin), copy.path.parent / "away")
    alone = evaluate(RunLoader(copy, device="cpu"), run, ("attacks",), few)
    assert alone.evaluations["attacks"].settings["twin"] is None
    shutil.move(copy.path.parent / "away", copy.folder(twin))
    joined = evaluate(RunLoader(copy, device="cpu"), run, ("attacks",), few)
    assert joined.evaluations["attacks"].settings["twin"] == twin
    assert erm_twin(copy, copy.get(twin)) is None
    (copy.folder(twin) / "model.safetensors").write_bytes(b"junk")
    assert erm_twin(copy, copy.get(run)) is None


def test_erm_keeps_the_protocol_s_augmentation() -> None:
    rcad, erm = (configure("cifar100[:2000]", [(name, ())]) for name in ("rcad", "erm"))
    assert rcad.method[0][0] == "data_augmentation"
    assert erm_config(rcad) == erm
    assert erm_config(erm) == erm
    released, views = (configure("cifar100[:2000]", [(n, ())], recipe="released") for n in ("rcad", "erm"))
    assert erm_config(released) == erm_config(views) == views
    assert erm_config(replace(rcad, method=(("mixup", ()), ("rcad", ())))).method == (("erm", ()),)


def test_a_suite_may_fit_some_of_the_runs(copy: Store) -> None:
    table, images = run_id("erm", 0, "breast_cancer"), run_id("erm")
    found = evaluate_all(RunLoader(copy, device="cpu"), [table, images], ("corruptions",), QUICK)
    assert [bool(outcome.refused) for outcome in found] == [True, False]


def test_weights_that_are_not_the_run_s(copy: Store) -> None:
    run, other = run_id("erm"), run_id("erm", 1)
    path = copy.folder(run) / "model.safetensors"
    tensors, meta = load_tensors(path)
    advice = re.escape(f"; to make it again: rcad runs verify {run} --repair --runs {copy.path}") + "$"
    for spoil, says in (
        (lambda: save_tensors(path, {}, meta), f"but they are of another model{advice}"),
        (lambda: save_tensors(path, tensors, {**meta, "data": "0" * 64}), f"but got those of other data{advice}"),
        (lambda: shutil.copy(copy.folder(other) / path.name, path), f"but got those of run {other}{advice}"),
        (lambda: path.write_bytes(b"junk"), f"model.safetensors to be whole, but got: .*{advice}"),
        (path.unlink, f"but they are missing{advice}"),
    ):
        spoil()
        with pytest.raises(InputError, match=says):
            RunLoader(copy, device="cpu").load(run)


def test_a_damaged_evaluation_is_kept_aside_and_made_again(copy: Store, caplog: pytest.LogCaptureFixture) -> None:
    run = run_id("erm")
    first = evaluate(RunLoader(copy, device="cpu"), run, ("calibration",), Settings())
    path = copy.folder(run) / "evaluation" / "calibration.json"
    plain = unsealed(json.loads(path.read_text()))
    cases = {
        "{": "valid JSON",
        json.dumps({**plain, "examples": "many"}): "the evaluation.examples to be of type int, but got 'many'",
        json.dumps(sealed(plain) | {"seconds": 1}): "expected values that match their checksum",
        json.dumps({**plain, "run": "0" * 16}): "to belong to run",
    }
    for number, (text, says) in enumerate(cases.items(), 1):
        path.write_text(text)
        found = evaluate(RunLoader(copy, device="cpu"), run, ("calibration",), Settings())
        assert found.evaluations["calibration"].numbers == first.evaluations["calibration"].numbers
        assert says in caplog.messages[-1]
        aside = f"calibration.json.aside{'' if number == 1 else f'-{number}'}"
        assert f"kept as {aside}, and measured again" in caplog.messages[-1]
        assert path.with_name(aside).read_text() == text
    path.write_text(json.dumps({**plain, "schema": 2}))
    with pytest.raises(InputError, match="expected a record of schema 1, but got 2"):
        evaluate(RunLoader(copy, device="cpu"), run, ("calibration",), Settings())


def test_a_suite_s_record_depends_on_its_own_settings_only() -> None:
    plain, other = Settings(), Settings(attack_eps=(0.1,))
    assert {plain.file(suite) for suite in SUITES} == {f"{suite}.json" for suite in SUITES}
    assert other.file("attacks") != plain.file("attacks")
    assert other.file("ood") == plain.file("ood")
    names = {Settings(**one).file("attacks") for one in ({"limit": 3}, {"seed": 1}, {"masking": False}, {"steps": 9})}
    assert len(names | {other.file("attacks"), plain.file("attacks")}) == 6
    assert {"limit", "seed"}.union(*OWN.values()) == {field.name for field in fields(Settings)}  # none is forgotten


test_bad_settings = refusals(
    ({"limit": -1}, "limit"),
    ({"attack_eps": ()}, "attack_eps"),
    ({"attack_eps": (0.1, 0.1)}, "different"),
    ({"alphas": (-1.0,)}, "alphas"),
    ({"attacks": ("pdg",)}, "did you mean 'pgd'"),
    of=lambda fields: Settings(**fields),
)


def test_examples_are_drawn_once_and_for_all() -> None:
    rows = draw_rows(100, 10, seed=3).tolist()
    assert rows == sorted(set(rows)) == draw_rows(100, 10, seed=3).tolist() != draw_rows(100, 10, seed=4).tolist()
    assert draw_rows(5, 9, seed=0).tolist() == [0, 1, 2, 3, 4]
