"""What the acts compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rcad.data.embedded import load
from rcad.demo import few_labels, linear, moons
from rcad.demo.settings import FAST, FULL, LABELS, Digits, rivals, sign_step
from rcad.paper import moons as table

pytest.importorskip("scipy")
pytest.importorskip("sklearn")


def quiet(what: str, share: float) -> None:
    pass


def test_training_sets_share_no_image_and_the_test_set_shares_none_with_them() -> None:
    data = load("digits")
    split = few_labels.disjoint_sets(data, Digits())
    trains, tests = zip(*split.standard_splits, strict=True)
    assert len(trains) == 10
    together = np.concatenate([*trains, tests[0]])
    assert sorted(together.tolist()) == list(range(len(data.train)))
    assert all(np.array_equal(test, tests[0]) for test in tests)
    for train in trains:
        assert np.bincount(data.train.y[train]).tolist() == [10] * 10


def test_the_controls_are_rcad_without_direction_and_without_step() -> None:
    found = rivals(0.7, 0.3, sign_step(0.05, pixels=True), 0.2)
    assert list(found) == [*LABELS]
    (direction,), (step,), (none,) = (
        [term for term in found[name].terms if term.measure == "negative_entropy"]
        for name in ("rcad", "rcad_random", "confidence_penalty")
    )
    assert direction.weight == step.weight == none.weight == 0.3
    assert direction.where.alpha == step.where.alpha == 0.7  # type: ignore[union-attr]
    assert none.where is None
    assert "label_smoothing" not in rivals(0.7, 0.3, sign_step(0.05, pixels=False))
    assert sign_step(0.05, pixels=True).terms[0].where.bounds == (0.0, 1.0)  # type: ignore[union-attr]
    assert sign_step(0.05, pixels=False).terms[0].where.bounds is None  # type: ignore[union-attr]


def test_the_moons_are_the_table_s() -> None:
    """Its numbers come from T8: the same distribution, protocol and draws, and the settings chosen there."""
    cell, chosen = table.Settings().cells[0], FULL.moons
    assert (cell.d, cell.sigma, cell.noise) == (chosen.d, chosen.sigma, "all")
    assert (table.Settings().n, table.Settings().n_test, table.Settings().seeds) == (
        chosen.n,
        chosen.n_test,
        chosen.draws,
    )
    assert chosen.protocol == table.PROTOCOL


def test_linear_numbers() -> None:
    found = linear.run(replace(FULL, draws=50), quiet)
    erm, rcad = found["classifiers"]["erm"], found["classifiers"]["rcad"]
    assert np.mean(rcad["accuracy"]) - np.mean(erm["accuracy"]) > 20
    assert np.mean(rcad["w2"]) < 0.5 * np.mean(erm["w2"])
    assert np.allclose(np.square(erm["w1"]) + np.square(erm["w2"]), 1)
    slopes = found["plane"]["slopes"]
    assert abs(slopes["rcad"]) < abs(slopes["erm"])
    assert len(found["plane"]["x1"]) == 20


@pytest.fixture(scope="module")
def few() -> dict[str, Any]:
    return few_labels.run(FAST, quiet)


def test_few_labels(few: dict[str, Any]) -> None:
    contests = [*few["digits"]["contests"], *few["diabetes"]["contests"]]
    assert [one["title"] for one in contests] == ["digits, small CNN", "digits, perceptron", "diabetes, perceptron"]
    assert [one["primary"] for one in contests] == ["accuracy", "accuracy", "nll"]
    assert [list(one["methods"]["rcad"]) for one in contests] == [["accuracy", "nll"]] * 2 + [["nll", "rmse"]]
    assert contests[0]["test_ratio"] == contests[1]["test_ratio"] == 0
    assert contests[2]["test_ratio"] == pytest.approx(88 / 354)
    for one in contests:
        assert ("label_smoothing" in one["methods"]) == one["title"].startswith("digits")
        for numbers in one["methods"].values():
            for values in numbers.values():
                assert len(values) == 2
                assert np.isfinite(values).all()
    assert all(1.0 < alpha < 1.2 for alpha in few["digits"]["alphas"])


def test_the_same_each_time(few: dict[str, Any]) -> None:
    assert few_labels.run(FAST, quiet) == few


def test_moons_planes_and_progress() -> None:
    told: list[tuple[str, float]] = []
    found = moons.run(FAST, lambda what, share: told.append((what, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert set(found["planes"]) == set(found["methods"]) == set(LABELS) - {"label_smoothing"}
    for plane in found["planes"].values():
        assert len(plane["probability"]) == 15 * 10
        assert len(plane["on_the_curves"]) == 2
    assert found["bayes"] == pytest.approx(99.94, abs=0.01)
