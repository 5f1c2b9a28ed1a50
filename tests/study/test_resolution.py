"""How much a held-out split can tell apart, against the binomial law itself."""

from __future__ import annotations

import pytest

from rcad.study.resolution import FEW, HeldOut


@pytest.mark.parametrize(("examples", "seeds"), [(25, 1), (12, 3), (400, 1)])
def test_half_an_interval_of_an_accuracy(examples: int, seeds: int) -> None:
    scipy = pytest.importorskip("scipy.stats")
    held = HeldOut(examples, seeds, "accuracy")
    assert held.points is not None
    low, high = scipy.binom(examples * seeds, 0.5).interval(0.95)
    # The exact interval goes in steps of one example.
    assert held.points == pytest.approx(50 * (high - low) / (examples * seeds), abs=100 / (examples * seeds))


def test_it_is_said_in_one_sentence() -> None:
    text = str(HeldOut(12, 1, "accuracy"))
    assert text.startswith("chosen by 12 held-out examples: an accuracy over so many is known to within 28 points")
    assert "12 held-out examples on each of 3 seeds" in str(HeldOut(12, 3, "accuracy"))
    assert "within 1.4 points" in str(HeldOut(5000, 1, "accuracy"))
    assert str(HeldOut(1, 1, "nll")) == "chosen by 1 held-out example, so few that small differences may be chance"
    assert str(HeldOut(5000, 1, "nll")) == "chosen by 5,000 held-out examples"


def test_few_counts_all_seeds() -> None:
    assert HeldOut(FEW - 1, 1, "nll").few
    assert not HeldOut(FEW, 1, "nll").few
    assert not HeldOut(FEW // 2, 2, "nll").few
    assert HeldOut(3, 2, "accuracy").to_dict() == {
        "examples": 3,
        "seeds": 2,
        "points": pytest.approx(40.0, abs=0.1),
        "told": str(HeldOut(3, 2, "accuracy")),
    }
