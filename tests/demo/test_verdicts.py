"""The rule that decides who wins, on numbers made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from rcad.demo.verdicts import Comparison, compare, contest_sentence, linear_outcome, linear_sentence, verdicts
from rcad.study.statistics import holm, paired

pytest.importorskip("scipy")
WOBBLE = [0.0, 0.4, -0.3, 0.2, -0.1, 0.3, -0.4, 0.1, -0.2, 0.05]


def around(level: float, scale: float = 1.0, turn: int = 0) -> list[float]:
    return [level + scale * value for value in WOBBLE[turn:] + WOBBLE[:turn]]


def contest(**levels: float) -> dict[str, Any]:
    """Accuracies near the given levels, each with its own wobble; NLLs that rank the other way round."""
    base = {"erm": 80.0, "fgsm": 80.0, "rcad": 80.0, "rcad_random": 80.0, "confidence_penalty": 80.0, **levels}
    methods = {
        name: {"accuracy": around(level, turn=k), "nll": around(level / 100, 0.01, k)}
        for k, (name, level) in enumerate(base.items())
    }
    return {"title": "made up", "primary": "accuracy", "test_ratio": 0.0, "methods": methods}


def outcomes(one: dict[str, Any], metric: str = "accuracy") -> dict[str, str]:
    return {found.rival: found.outcome for found in compare([one]) if found.metric == metric}


def test_higher_accuracy_and_lower_nll_win() -> None:
    one = contest(rcad=90.0, fgsm=95.0)
    assert outcomes(one) == {"erm": "wins", "fgsm": "loses", "rcad_random": "wins", "confidence_penalty": "wins"}
    assert outcomes(one, "nll") == {
        "erm": "loses",
        "fgsm": "wins",
        "rcad_random": "loses",
        "confidence_penalty": "loses",
    }


def test_equal_methods_are_undecided() -> None:
    assert set(outcomes(contest()).values()) == {"undecided"}


def test_p_values_are_holm_s_over_all_comparisons_of_the_act() -> None:
    first, second = contest(rcad=80.2, fgsm=79.9), {**contest(rcad=85.0), "title": "another"}
    found = compare([first, second])
    assert len(found) == 16
    plain = []
    for one in (first, second):
        for rival, metric in [(r, m) for r in one["methods"] if r != "rcad" for m in ("accuracy", "nll")]:
            plain.append(paired(one["methods"]["rcad"][metric], one["methods"][rival][metric]).p_two)
    assert [one.p for one in found] == pytest.approx(holm(plain))
    for one in found:
        assert one.gain is not None
        assert (one.outcome == "undecided") == (one.p >= 0.05)


def test_overlapping_splits_are_less_sure() -> None:
    apart, overlapping = contest(rcad=80.3), {**contest(rcad=80.3), "test_ratio": 5.0}
    (near,), (far,) = (
        [x for x in compare([c]) if (x.rival, x.metric) == ("erm", "accuracy")] for c in (apart, overlapping)
    )
    assert near.gain is not None
    assert far.gain is not None
    assert far.gain.mean == near.gain.mean
    assert far.gain.se == pytest.approx(near.gain.se * (51**0.5))


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ({"rcad": 90.0}, "it helps, and more than either control"),
        ({"rcad": 90.0, "rcad_random": 90.0}, "it helps, but random direction may do as well"),
        (
            {"rcad": 90.0, "rcad_random": 95.0, "confidence_penalty": 90.0},
            "it helps, but random direction and entropy at x may do as well",
        ),
        ({"rcad": 70.0}, "it does harm here"),
        ({}, "no gain is shown here"),
    ],
)
def test_the_sentence_says_what_the_controls_say(levels: dict[str, float], says: str) -> None:
    one = contest(**levels)
    assert contest_sentence(one, compare([one])).endswith(f": {says}")


def test_the_sentence_names_everyone() -> None:
    one = contest(rcad=90.0, fgsm=95.0)
    text = contest_sentence(one, compare([one]))
    assert text.startswith("RCAD wins against ERM in accuracy (+10.0 [")
    assert "and loses to ERM in NLL (-0.100 [" in text
    assert "in accuracy it wins against random direction and entropy at x, loses to FGSM: " in text


def test_a_run_that_diverged_decides_nothing() -> None:
    one = contest(rcad=90.0)
    one["methods"]["erm"]["accuracy"][3] = None
    found = next(x for x in compare([one]) if (x.rival, x.metric) == ("erm", "accuracy"))
    assert (found.gain, found.p, found.outcome, found.numbers) == (None, 1.0, "undecided", "a run diverged")
    assert contest_sentence(one, compare([one])).endswith("a run diverged, so nothing is shown")
    one["methods"]["rcad"]["accuracy"][0] = float("nan")
    assert set(outcomes(one).values()) == {"undecided"}


def linear(better: int, worse: int, draws: int = 20) -> dict[str, Any]:
    gains = [1.0] * better + [-1.0] * worse + [0.0] * (draws - better - worse)
    rcad = {"accuracy": [60.0 + gain for gain in gains], "w1": [0.9] * draws, "w2": [0.25] * draws}
    erm = {"accuracy": [60.0] * draws, "w1": [0.7] * draws, "w2": [0.75] * draws}
    return {
        "alpha": 0.7,
        "alpha_small": 0.01,
        "draws": draws,
        "classifiers": {"erm": erm, "rcad": rcad, "rcad_small": erm},
    }


@pytest.mark.parametrize(
    ("better", "worse", "outcome"),
    [
        (20, 0, "wins"),
        (19, 1, "wins"),
        (18, 2, "undecided"),
        (1, 19, "loses"),
        (2, 18, "undecided"),
        (0, 0, "undecided"),
    ],
)
def test_the_linear_rule(better: int, worse: int, outcome: str) -> None:
    assert linear_outcome(linear(better, worse)) == (better, outcome)


def test_the_linear_sentence() -> None:
    text = linear_sentence(linear(20, 0))
    assert "alpha 0.7 wins against ERM: it is more accurate in 20 of 20 draws (60.0% to 61.0% on average)" in text
    assert "noise goes from 0.75 to 0.25; with alpha 0.01 it is undecided, more accurate in 0 of 20" in text
    assert "loses to ERM: it is more accurate in 0 of 20" in linear_sentence(linear(0, 20))


def test_one_verdict_for_each_act() -> None:
    few = {"digits": {"contests": [contest(rcad=90.0)]}, "diabetes": {"contests": [{**contest(), "title": "other"}]}}
    sentences, found = verdicts({"linear": linear(20, 0), "moons": contest(), "few_labels": few})
    assert list(sentences) == ["linear", "moons", "few_labels"]
    assert sentences["few_labels"].count("\n") == 2
    assert len(found) == 3 * 8
    assert all(isinstance(one, Comparison) for one in found)
