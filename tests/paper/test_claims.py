"""Claims: paired by seed, silent where the data are; ours are told from the paper's. test_tables judges them."""

from __future__ import annotations

import pytest

from rcad.paper.claims import CONTROLS, Claim, Seeds, Side, gain_of, judge_all
from rcad.paper.record import Study
from rcad.paper.tables import SUITES
from rcad.study.statistics import paired

RANDOM = "RCAD is more accurate than a random direction"
PLANNED = SUITES["T3"].claims
ERM = {0: 30.0, 1: 30.5, 2: 30.2, 3: 30.4}
WHERE = "CIFAR-100-2k"
OVER_ERM = "RCAD is more accurate than ERM"


def column(**rows: Seeds) -> dict[Side, Seeds]:
    base: dict[Side, Seeds] = {(row, WHERE): ERM for row in ("ERM", "ME-ADA", "RCAD", "random direction")}
    return base | {(row, WHERE): seeds for row, seeds in rows.items()}


def over_erm(seeds: Seeds) -> Claim:
    return next(
        one for one in judge_all(PLANNED, column(RCAD=seeds)) if (one.where, one.statement) == (WHERE, OVER_ERM)
    )


def test_seeds_are_paired_by_number_and_not_by_place() -> None:
    shuffled = {seed: ERM[seed] + 1.0 + 0.01 * seed for seed in (3, 1, 0, 2)}
    gain, note = gain_of(shuffled, ERM)
    assert (note, gain) == ("", paired([31.0, 31.51, 31.22, 31.43], [30.0, 30.5, 30.2, 30.4]))
    lower, _ = gain_of(shuffled, ERM, higher_is_better=False)
    assert lower.mean == pytest.approx(-gain.mean)


@pytest.mark.parametrize(
    ("seeds", "note", "verdict"),
    [
        ({0: 32.0, 1: 32.5}, "too few seeds", "undecided"),
        ({0: 32.0, 1: None, 2: 31.0}, "a run diverged", "undecided"),
        ({}, "not run", "not run"),
        ({9: 1.0}, "not run", "not run"),
    ],
)
def test_silence_has_a_reason(seeds: Seeds, note: str, verdict: str) -> None:
    found = over_erm(seeds)
    assert (found.verdict, found.note) == (verdict, note)
    assert found.gain is found.p_holm is found.p_reverse_holm is None


def test_three_seeds_are_enough_for_a_p_value_and_the_scale_is_noted() -> None:
    cells = column(RCAD={0: 32.0, 1: 32.5, 2: 32.1})
    first, *_ = judge_all(PLANNED, cells, remark="small scale")
    assert (first.gain["df"], first.note) == (2, "small scale")
    assert {one.verdict for one in judge_all(PLANNED, cells, trial=True)} == {"a trial", "not run"}


def test_what_could_not_be_measured_is_not_called_diverged() -> None:
    first, *_ = judge_all(PLANNED, column(RCAD=dict.fromkeys(range(4))), not_measured=frozenset({("RCAD", WHERE)}))
    assert (first.verdict, first.note) == ("undecided", "not measured")


def test_verdicts_are_counted_on_either_side() -> None:
    found = [
        Claim("", name, verdict, published=1.0)
        for name, verdict in (("a", "reproduced"), ("b", "opposite"), ("c", "not run"), (RANDOM, "undecided"))
    ]
    assert Study("T8", controls=CONTROLS, claims=found).findings == (
        "3 claims of the paper: 1 reproduced, 1 opposite, 1 not run; 1 check of ours: 1 undecided"
    )
    assert Study("T8").findings == "0 claims of the paper"
    trial = Study("T8", claims=[Claim("", "a", "a trial", published=1.0)] * 3)
    assert trial.findings == "3 claims of the paper: a trial"
