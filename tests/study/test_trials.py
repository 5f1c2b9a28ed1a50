"""Which trial is the best, and that test numbers have no say in it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from rcad.errors import InputError
from rcad.runs.record import RunRecord
from rcad.study import search_record as records
from rcad.study.resolution import HeldOut
from rcad.study.trials import Goal, Trial, best, held_out, trial

Make = Callable[..., RunRecord]
HELD = HeldOut(50, 1, "nll")


def one(number: int, metrics: dict[str, float] | None) -> Trial:
    return Trial(number, {"lam": number}, metrics, ("a",), 1.0)


def test_the_best_by_accuracy_then_nll_then_order() -> None:
    goal = Goal("accuracy")
    trials = [
        one(1, {"accuracy": 90.0, "nll": 0.5}),
        one(2, {"accuracy": 91.0, "nll": 0.4}),
        one(3, {"accuracy": 91.0, "nll": 0.3}),
        one(4, {"accuracy": 91.0, "nll": 0.3}),
        one(5, None),
        one(6, {"accuracy": math.nan, "nll": 0.1}),
    ]
    assert best(trials, goal) == trials[2]
    assert best(trials[:5], Goal("nll")) == trials[2]
    assert best([one(1, None)], goal) is None
    assert best([], goal) is None
    assert best([one(1, {"rmse": 3.0, "nll": 1.0}), one(2, {"rmse": 2.0, "nll": 2.0})], Goal("rmse")).number == 2  # type: ignore[union-attr]


def test_test_numbers_have_no_say(make_record: Make) -> None:
    metrics = {"val_accuracy": 90.0, "val_nll": 0.5, "test_accuracy": 99.0, "test_nll": 0.1, "epochs": 3.0}
    assert held_out(make_record(metrics=metrics)) == {"accuracy": 90.0, "nll": 0.5}
    assert held_out(make_record(metrics={k: v for k, v in metrics.items() if "test" not in k})) == held_out(
        make_record(metrics=metrics)
    )


def test_a_trial_is_the_mean_over_its_seeds(make_record: Make) -> None:
    runs = [
        make_record(seed=s, metrics={"val_nll": s, "val_rmse": 2.0 * s}, timings={"train_seconds": 1.5}) for s in (1, 3)
    ]
    found = trial(1, {"lam": 1}, runs)
    assert found.metrics == {"nll": 2.0, "rmse": 4.0}
    assert found.runs == tuple(run.id for run in runs)
    assert found.seconds == 3.0


def test_one_diverged_seed_loses_the_trial(make_record: Make) -> None:
    runs = [make_record(seed=0, metrics={"val_nll": 1.0}), make_record(seed=1, status="diverged", metrics={})]
    assert trial(1, {}, runs).metrics is None


def test_a_run_without_a_held_out_split_is_refused(make_record: Make) -> None:
    with pytest.raises(InputError, match="held-out split"):
        held_out(make_record(metrics={"test_nll": 1.0}))


def test_the_record_holds_no_test_number(make_record: Make, tmp_path: Path) -> None:
    runs = [make_record(metrics={"val_nll": 1.0, "test_nll": 0.5})]
    path = tmp_path / "rcad.json"
    records.write(
        path,
        records.build({"data": "digits"}, Goal("nll"), [trial(1, {"lam": 1}, runs)], HELD, planned=1, command="x"),
    )
    text = path.read_text()
    assert "test" not in text
    assert json.loads(text)["best"] == 1


def test_another_search_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rcad.json"
    records.refuse_other(path, {"data": "digits"})
    records.write(path, records.build({"data": "digits"}, Goal("nll"), [], HELD, planned=1, command=None))
    records.refuse_other(path, {"data": "digits"})
    with pytest.raises(InputError, match="other settings"):
        records.refuse_other(path, {"data": "wine"})
    path.write_text("[]")
    with pytest.raises(InputError, match="something else"):
        records.refuse_other(path, {"data": "digits"})
