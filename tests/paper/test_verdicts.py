"""Claims of a suite: paired by seed, Holm over those tested, silent where the data are."""

from __future__ import annotations

import pytest

from rcad.paper.sides import Side
from rcad.paper.tables import SUITES
from rcad.paper.verdicts import Seeds, compare, verdicts
from rcad.study.statistics import holm, paired

T3 = SUITES["T3"]
ERM = {0: 30.0, 1: 30.5, 2: 30.2, 3: 30.4}


def column(name: str, **rows: Seeds) -> dict[Side, Seeds]:
    base: dict[Side, Seeds] = {(row, name): ERM for row in ("ERM", "ME-ADA", "RCAD", "random direction")}
    return base | {(row.replace("_", " "), name): seeds for row, seeds in rows.items()}


def by_statement(cells: dict[Side, Seeds], where: str) -> dict[str, dict[str, object]]:
    return {one["statement"]: one for one in verdicts(T3, cells) if one["where"] == where}


def test_a_clear_gain_is_reproduced_and_its_reverse_opposite() -> None:
    better = {0: 32.0, 1: 32.6, 2: 32.1, 3: 32.5}
    found = by_statement(column("CIFAR-100-2k", RCAD=better), "CIFAR-100-2k")
    gain = found["RCAD is more accurate than ERM"]
    assert gain["verdict"] == "reproduced"
    assert gain["published"] == pytest.approx(2.1)
    worse = {0: 28.0, 1: 28.6, 2: 28.1, 3: 28.5}
    assert (
        by_statement(column("CIFAR-100-2k", RCAD=worse), "CIFAR-100-2k")["RCAD is more accurate than ERM"]["verdict"]
        == "opposite"
    )


def test_nothing_seen_is_not_reproduced_where_the_interval_is_below_the_printed_gain() -> None:
    same = {0: 30.1, 1: 30.4, 2: 30.3, 3: 30.3}
    found = by_statement(column("CIFAR-100-2k", RCAD=same), "CIFAR-100-2k")
    assert found["RCAD is more accurate than ERM"]["verdict"] == "not reproduced"


def test_seeds_are_paired_by_number_and_not_by_place() -> None:
    shuffled = {seed: ERM[seed] + 1.0 + 0.01 * seed for seed in (3, 1, 0, 2)}
    gain, note = compare(shuffled, ERM)
    assert (note, gain) == ("", paired([31.0, 31.51, 31.22, 31.43], [30.0, 30.5, 30.2, 30.4]))
    lower, _ = compare(shuffled, ERM, higher_is_better=False)
    assert lower is not None
    assert gain is not None
    assert lower.mean == pytest.approx(-gain.mean)


def test_holm_counts_what_was_tested() -> None:
    better = {0: 31.0, 1: 31.2, 2: 31.3, 3: 31.2}
    found = verdicts(T3, column("CIFAR-100-2k", RCAD=better))
    tested = [one for one in found if one["gain"] is not None]
    assert len(tested) == 3
    assert [one["p_holm"] for one in tested] == holm([one["gain"]["p_greater"] for one in tested])
    assert {one["note"] for one in found if one["where"] == "CIFAR-100"} == {"not run"}


@pytest.mark.parametrize(
    ("seeds", "note"),
    [
        ({0: 32.0, 1: 32.5}, "too few seeds"),
        ({0: 32.0, 1: None, 2: 31.0}, "a run diverged"),
        ({}, "not run"),
        ({9: 1.0}, "not run"),
    ],
)
def test_silence_has_a_reason(seeds: Seeds, note: str) -> None:
    found = by_statement(column("CIFAR-100-2k", RCAD=seeds), "CIFAR-100-2k")["RCAD is more accurate than ERM"]
    assert (found["verdict"], found["note"]) == ("undecided", note)
    assert found["gain"] is found["p_holm"] is found["p_reverse_holm"] is None


def test_three_seeds_are_enough_for_a_p_value_and_the_scale_is_noted() -> None:
    three = {0: 32.0, 1: 32.5, 2: 32.1}
    (found, *_) = verdicts(T3, column("CIFAR-100-2k", RCAD=three), said="small scale")
    assert found["gain"]["df"] == 2
    assert found["note"] == "small scale"


def test_what_could_not_be_measured_is_not_called_diverged() -> None:
    cells = column("CIFAR-100-2k", RCAD=dict.fromkeys(range(4)))
    (found, *_) = verdicts(T3, cells, frozenset({("RCAD", "CIFAR-100-2k")}))
    assert (found["verdict"], found["note"]) == ("undecided", "not measured")
