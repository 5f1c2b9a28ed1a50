"""Means, intervals, gains, and the tables made of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from paper_records import claim, suite, value, verdicts
from rcad.paper.published import Printed
from rcad.paper.record import Place, Run, Study
from rcad.paper.report import chapters
from rcad.paper.report.grids import dots
from rcad.paper.report.numbers import (
    as_printed,
    beside_published,
    counts,
    digits,
    gain_over,
    mean_of,
    place_mean,
    printed_gain,
    reference,
)
from rcad.paper.report.overview import verdict_table
from rcad.paper.report.tables import Links, claim_table, grid, measure_table, run_table, side_by_side
from rcad.report.document import Cell, Table
from rcad.report.numbers import fixed


def study(**options: Any) -> Study:
    return Study.parse(suite(**options), Path("results/T4/T4.json"))


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.cells]


def row_of(table: Table, *start: str) -> dict[str, Cell]:
    (found,) = [row for row in table.cells if [cell.text for cell in row][: len(start)] == list(start)]
    return dict(zip(table.header, found, strict=True))


def test_means_have_students_interval() -> None:
    values = [1.0, 2.0, 4.0, 4.5]
    mean = mean_of(values)
    assert mean is not None
    low, high = stats.t.interval(0.95, 3, loc=2.875, scale=stats.sem(values))
    assert (mean.value, mean.n) == (2.875, 4)
    assert mean.half == pytest.approx((high - low) / 2)
    assert mean_of([]) is None
    assert mean_of([3.0]) == type(mean)(3.0, None, 1)
    wide = mean_of(values, 0.25)  # splits that overlap
    assert wide is not None
    assert wide.half == pytest.approx((mean.half or 0) * math.sqrt((1 / 4 + 0.25) / (1 / 4)))


def test_gains_pair_by_seed_and_point_to_the_better() -> None:
    one = study()
    found = gain_over(one, "RCAD", "ERM", "n=500")
    differences = [value("RCAD", "n=500", k) - value("ERM", "n=500", k) for k in range(4)]
    assert found is not None
    assert found.mean == pytest.approx(sum(differences) / 4)
    assert found.p_greater == pytest.approx(stats.ttest_1samp(differences, 0, alternative="greater").pvalue)
    lower = gain_over(study(higher_is_better=False), "RCAD", "ERM", "n=500")
    assert lower is not None
    assert lower.mean == pytest.approx(-found.mean)
    assert printed_gain(one, "RCAD", "ERM", "n=500") == pytest.approx(
        value("RCAD", "n=500", 0) - value("ERM", "n=500", 0)
    )
    assert printed_gain(one, "FGSM", "ERM", "n=500") is None


def test_a_run_that_diverged_leaves_no_gain() -> None:
    one = study(diverged=[("RCAD", "n=500", 2)])
    assert gain_over(one, "RCAD", "ERM", "n=500") is None
    assert gain_over(one, "FGSM", "ERM", "n=500") is not None
    assert gain_over(study(seeds=1), "RCAD", "ERM", "n=500") is None
    assert gain_over(study(absent=[("ERM", "n=500")]), "RCAD", "ERM", "n=500") is None


def test_the_number_of_a_column_may_have_its_own_name() -> None:
    one = study(metrics={"n=500": "attacked"})
    changed = one.places["ERM", "n=500"]
    for run in changed.runs:
        run.metrics["attacked"] = 7.0  # type: ignore[index]
    assert place_mean(one, changed).value == 7.0  # type: ignore[union-attr]
    assert place_mean(one, one.places["ERM", "n=1,000"]).value > 50  # type: ignore[union-attr]


def test_ours_is_tested_against_the_published_number() -> None:
    found = beside_published(study(), study().places["RCAD", "n=500"])
    assert found is not None
    assert found.test is not None
    values = study().places["RCAD", "n=500"].values("accuracy")
    sd = 0.12 * math.sqrt(10) / stats.t.ppf(0.975, 9)
    expected = stats.ttest_ind_from_stats(
        sum(values) / 4, stats.tstd(values), 4, value("RCAD", "n=500", 0) + 1, sd, 10, equal_var=False
    )
    assert found.test.p_two == pytest.approx(expected.pvalue)
    lost = study(diverged=[("RCAD", "n=500", 2)])
    assert beside_published(lost, lost.places["RCAD", "n=500"]).test is None  # type: ignore[union-attr]
    assert beside_published(study(), study().places["FGSM", "n=500"]) is None


def test_the_reference_is_erm_or_what_f1_calls_it() -> None:
    assert reference(study()) == "ERM"
    assert reference(study(rows=("LS", "DA", "RCAD"))) == "DA"
    assert reference(study(rows=("LS", "RCAD"))) is None


def test_words_for_numbers() -> None:
    assert as_printed(Printed(2.6, 0.05), "nats") == "2.60 ± 0.05"
    assert [as_printed(Printed(mean), "%") for mean in (72.0, 61.15)] == ["72.0", "61.15"]
    assert (digits("%"), digits("nats")) == (1, 3)


def test_the_grid_has_ours_and_the_published_number() -> None:
    one = study(seeds=1, absent=[("FGSM", "n=1,000")], diverged=[("ERM", "n=500", 0)])
    found = grid(one)
    assert found.header == ["method", "n=500", "n=1,000", "n=50,000"]
    rcad = row_of(found, "RCAD")["n=1,000"]
    assert rcad.text == fixed(value("RCAD", "n=1,000", 0), 1)
    assert rcad.note == "paper 71.0 ± 0.12; one seed"
    assert row_of(found, "FGSM")["n=1,000"].text == ""
    assert row_of(found, "ERM")["n=500"].text == "-"
    assert "1 of 1 diverged" in row_of(found, "ERM")["n=500"].note
    control = row_of(found, "random direction")["method"]
    assert (control.note, control.mark) == ("control", "aside")


def test_all_metrics_and_the_cost_stand_side_by_side() -> None:
    table = side_by_side(study())
    line = row_of(table, "n=500", "RCAD")
    assert line["published, %"].text.endswith("± 0.12")
    assert line["n"].text == "4"
    assert line["ours \N{MINUS SIGN} published"].text == "\N{MINUS SIGN}0.8 [\N{MINUS SIGN}1.7, 0.0]"
    assert float(line["p, two-sided"].text) < 0.05
    assert line["NLL, nats"].text.startswith("1.3")
    assert line["Brier score"].text == "0.400 ± 0.000"
    assert "ECE" not in table.header
    assert (line["seconds a run"].text, line["times ERM"].text) == ("20.0", "2.00")
    assert row_of(table, "n=500", "FGSM")["published, %"].text == "-"


def test_the_last_epoch_stands_beside_the_one_that_was_chosen() -> None:
    one = study()
    place = one.places["RCAD", "n=500"]
    last = {"last_accuracy": 31.25, "last_nll": 2.5, "last_brier": 0.3}
    runs = [replace(run, metrics={**run.metrics, **last}) for run in place.runs]
    table = side_by_side(replace(one, places={**one.places, ("RCAD", "n=500"): replace(place, runs=runs)}))
    line = row_of(table, "n=500", "RCAD")
    assert line["last epoch: accuracy, %"].text == "31.2 ± 0.0"
    assert line["last epoch: NLL, nats"].text == "2.500 ± 0.000"
    assert line["last epoch: Brier score"].text == "0.300 ± 0.000"


def test_every_number_leads_to_its_runs_and_these_to_their_records() -> None:
    one = study()
    files = {one.places["ERM", "n=500"].runs[0].id: Path("results/T4/runs/a b:c/record.json")}
    runs = run_table(one, Links(Path("results/report"), files))
    anchors = {cell.anchor for row in runs.cells for cell in row if cell.anchor}
    links = {
        cell.href[1:] for table in (grid(one), side_by_side(one)) for row in table.cells for cell in row if cell.href
    }
    assert links == anchors
    assert len(links) == len(one.places)
    records = [row[-1] for row in runs.cells]
    assert len(records) == one.runs == 48
    assert records[0].href == "../T4/runs/a%20b%3Ac/record.json"
    assert {record.href for record in records[1:]} == {""}
    assert row_of(runs, "n=500", "ERM", "0")["test accuracy, %"].text == fixed(value("ERM", "n=500", 0), 4)


def test_runs_that_diverged_say_so_and_unmeasured_ones_do_not() -> None:
    one = study(diverged=[("ERM", "n=500", 1)])
    one.places["RCAD", "n=500"].runs[0].metrics["ece"] = 0.1  # type: ignore[index]
    runs = run_table(one, Links(Path(), {}))
    assert (row_of(runs, "n=500", "RCAD", "0")["ECE"].text, row_of(runs, "n=500", "ERM", "0")["ECE"].text) == (
        "0.1000",
        "-",
    )
    assert row_of(runs, "n=500", "ERM", "1")["test accuracy, %"].text == "diverged"
    assert "diverged" not in {cell.text for cell in row_of(runs, "n=500", "ERM", "0").values()}


def test_claims_tell_their_verdict_their_test_and_their_home() -> None:
    one = study(claims=verdicts())
    table = claim_table([(one, each) for each in one.claims], "c", {one.title: "home"}, choose="verdict")
    first, last = table.cells[0], table.cells[-1]
    assert [cell.text for cell in first][:6] == [
        "T4",
        "reproduced",
        "n=500",
        "RCAD is more accurate than ERM",
        "+1.5",
        "+2.1 [1.8, 2.5]",
    ]
    assert first[0].href == "#home"
    assert [cell.mark for cell in (row[1] for row in table.cells)] == ["good", "bad", "bad", "open", "open"]
    assert [cell.text for cell in last][5:] == ["no test", "-", "-", "-"]
    assert last[3].note == "a run diverged"
    assert table.choices == {"reproduced": 1, "not reproduced": 1, "opposite": 1, "undecided": 2}
    assert counts(one.claims) == table.choices


def test_a_claim_is_judged_at_the_last_epoch_too() -> None:
    twice = verdicts()[0]
    last = {**verdicts()[2], "where": "n=500"}
    one = study(claims=[{**twice, "last": last}, verdicts()[1]])
    table = claim_table([(one, each) for each in one.claims], "", {})
    first, second = (dict(zip(table.header, row, strict=True)) for row in table.cells)
    assert (first["verdict"].text, first["at the last epoch"].text) == ("reproduced", "opposite")
    assert first["at the last epoch"].note.startswith("\N{MINUS SIGN}2.1 [")
    assert second["at the last epoch"].text == "-"


def test_every_measure_is_a_question_at_both_epochs() -> None:
    one = study()
    places = {
        side: replace(
            place, runs=[replace(run, metrics={**run.metrics, "last_nll": run.metrics["nll"]}) for run in place.runs]
        )
        for side, place in one.places.items()
    }
    table = measure_table(replace(one, places=places))
    assert table is not None
    line = row_of(table, "n=500", "RCAD against ERM", "chosen")
    assert line["accuracy, %"].text.startswith("+3.")
    assert line["accuracy, %"].note.startswith("better, p ")
    assert line["NLL, nats"].text.startswith("+0.03")  # lower is better, so positive speaks for RCAD
    assert line["NLL, nats"].mark == "good"
    assert line["ECE"].text == "-"
    assert row_of(table, "n=500", "RCAD against ERM", "last")["NLL, nats"].text == line["NLL, nats"].text
    pairs = [row[1].text for row in table.cells if row[0].text == "n=500" and row[2].text == "chosen"]
    assert pairs == ["RCAD against ERM", "RCAD against random direction", "random direction against ERM"]
    assert measure_table(study(rows=("ERM", "FGSM"))) is None


def test_columns_that_were_not_run_are_told_and_not_shown() -> None:
    not_run = claim("n=1,000", "RCAD is more accurate than ERM", "not run", note="not run")
    one = study(claims=[*verdicts()[:1], not_run], not_run=["n=1,000: no data."])
    places = {side: replace(place, runs=[]) if side[1] == "n=1,000" else place for side, place in one.places.items()}
    one = replace(one, places=places)
    assert grid(one).header == ["method", "n=500", "n=50,000"]
    assert {row[0].text for row in side_by_side(one).cells} == {"n=500", "n=50,000"}
    assert chapters.not_run(one) == ("n=1,000: no data. 1 claim about what was not run is neither judged nor counted.")
    assert chapters.verdict(one).startswith("1 claim: 1 reproduced")
    (line,) = verdict_table([one, study()]).cells
    assert [cell.text for cell in line] == ["made up, T4", "full", "1", "0", "0", "0"]


def test_published_numbers_far_from_ours_are_inside_the_picture() -> None:
    runs = [Run(seed, {"accuracy": 8.0 + 0.1 * seed}) for seed in range(10)]
    places = {(row, "n=500"): Place(row, "n=500", Printed(far), runs) for row, far in (("ERM", 3.0), ("RCAD", 14.8))}
    drawn = dots(
        Study(target="T4", title="", about="", scale="full", rows=["ERM", "RCAD"], columns=["n=500"], places=places)
    )
    assert drawn is not None
    low, high = drawn.drawing.axes[0].get_xlim()
    assert low < 3.0 < 14.8 < high
