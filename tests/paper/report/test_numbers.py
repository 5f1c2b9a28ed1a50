"""Means, intervals, gains and costs, and the tables and pictures made of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from paper_records import claim, suite, value, verdicts
from rcad.paper.record import Study
from rcad.paper.report import chapters, costs, curves
from rcad.paper.report.tables import Links, gain_over, grid, measure_table, run_table, side_by_side
from rcad.report.document import Cell, Table
from rcad.report.numbers import fixed


def study(**options: Any) -> Study:
    return Study.parse(suite(**options), Path("results/T4/T4.json"))


def row_of(table: Table, *start: str) -> dict[str, Cell]:
    (found,) = [row for row in table.cells if [cell.text for cell in row][: len(start)] == list(start)]
    return dict(zip(table.header, found, strict=True))


def test_gains_point_to_the_better_and_a_run_that_diverged_leaves_none() -> None:
    higher, lower = (gain_over(study(higher_is_better=one), "RCAD", "ERM", "n=500") for one in (True, False))
    assert lower.mean == -higher.mean < 0
    assert measure_table(study(rows=("ERM", "FGSM"))) is None  # without RCAD
    one = study(diverged=[("RCAD", "n=500", 2)])
    assert gain_over(one, "RCAD", "ERM", "n=500") is None
    assert gain_over(one, "FGSM", "ERM", "n=500") is not None
    assert gain_over(study(seeds=1), "RCAD", "ERM", "n=500") is None
    assert gain_over(study(absent=[("ERM", "n=500")]), "RCAD", "ERM", "n=500") is None


def test_every_number_leads_to_its_runs_and_these_say_where_they_are_and_whether_they_diverged() -> None:
    one = study(diverged=[("ERM", "n=500", 1)])
    one.places["RCAD", "n=500"].runs[0].metrics["ece"] = 0.1  # type: ignore[index]
    files = {one.places["ERM", "n=500"].runs[0].id: Path("results/T4/runs/a b:c/record.json")}
    runs = run_table(one, Links(Path("results/report"), files))
    anchors = {cell.anchor for row in runs.cells for cell in row if cell.anchor}
    tables = (grid(one), side_by_side(one))
    assert {cell.href[1:] for table in tables for row in table.cells for cell in row if cell.href} == anchors
    assert (len(anchors), len(runs.cells)) == (len(one.places), one.runs)
    first, second = (row_of(runs, "n=500", "ERM", seed) for seed in ("0", "1"))
    assert (first["record"].href, second["record"].href) == ("../T4/runs/a%20b%3Ac/record.json", "")
    assert first["test accuracy, %"].text == fixed(value("ERM", "n=500", 0), 4)
    assert second["test accuracy, %"].text == "diverged"
    assert (row_of(runs, "n=500", "RCAD", "0")["ECE"].text, first["ECE"].text) == ("0.1000", "-")


def test_columns_that_were_not_run_are_told_and_not_shown() -> None:
    not_run = claim("n=1,000", "RCAD is more accurate than ERM", "not run", note="not run")
    one = study(claims=[*verdicts()[:1], not_run], not_run=["n=1,000: no data."])
    places = {side: replace(place, runs=[]) if side[1] == "n=1,000" else place for side, place in one.places.items()}
    one = replace(one, places=places)
    assert grid(one).header == ["method", "n=500", "n=50,000"]
    assert {row[0].text for row in side_by_side(one).cells} == {"n=500", "n=50,000"}
    assert chapters.not_run(one) == ("n=1,000: no data. 1 claim about what was not run is neither judged nor counted.")
    assert chapters.verdict(one).startswith("1 claim: 1 reproduced")


ROOT = Path(__file__).parents[3]
F4 = Study.read(ROOT / "results/F4/F4.json")


def by_hand(row: str, base: str, column: str, metric: str) -> tuple[float, float, float]:
    """Mean and interval of the paired difference, positive for the first."""
    ours, theirs = ({run.seed: run.metrics[metric] for run in F4.places[name, column].runs} for name in (row, base))
    gain = np.array([ours[seed] - theirs[seed] for seed in ours])  # type: ignore[operator]
    gain = -gain if metric.endswith("nll") else gain
    half = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / np.sqrt(len(gain))
    return gain.mean(), gain.mean() - half, gain.mean() + half


@pytest.mark.parametrize(("metric", "epoch"), [("accuracy", ""), ("nll", "last_")])
def test_gains_by_step_size_are_those_of_the_runs(metric: str, epoch: str) -> None:
    found = curves.step_gains(F4, "RCAD", "ERM", metric, epoch)
    assert len(found) == 9
    for column, alpha in curves.step_sizes(F4).items():
        gain = found[alpha].mean, found[alpha].low, found[alpha].high
        assert gain == pytest.approx(by_hand("RCAD", "ERM", column, epoch + metric))


def record(**ratios: float) -> tuple[Path, dict[str, Any]]:
    same = {"model": "m", "batch": 32, "mode": "eager", "replicas": 1, "ms_per_seed_step": 1.0}
    methods = {name.replace("_10", " 10"): ratio for name, ratio in {"erm": 1.0, **ratios}.items()}
    rows = [{**same, "method": method, "ratio_to_erm": ratio} for method, ratio in methods.items()]
    return Path("benchmarks/a.json"), {"rows": rows}


@pytest.mark.parametrize(
    ("records", "verdicts"),
    [
        ([record(rcad=1.25, pgd_10=7.0, me_ada=2.5)], ["reproduced", "undecided", "reproduced"]),
        ([record(rcad=1.25, pgd_10=7.0)], ["reproduced", "reproduced", "not run"]),
        ([record(rcad=2.0, pgd_10=7.0, me_ada=2.0)], ["not reproduced"] * 3),
        ([record(rcad=1.2), record(rcad=2.0)], ["undecided", "not run", "not run"]),
    ],
)
def test_every_group_counts(records: list[Any], verdicts: list[str]) -> None:
    found = costs.judge(records)
    assert [claim.verdict for claim in found.claims] == verdicts
    if len(records) > 1:
        assert found.claims[0].ours == "1.20 to 2.00 in 2 groups"
    assert costs.judge([record(fgsm=1.5)]) is costs.judge([]) is None


def test_costs_that_leave_the_range_are_marked() -> None:
    path = ROOT / "results/benchmarks/scaling_h200.json"
    grown = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for row in costs.growth_table(grown).cells if row[1].text == "RCAD" and row[3].text != "-"]
    marked = [row[3].mark == "bad" for row in rows]
    assert marked == [not 1.6 <= float(row[3].text) <= 2.05 for row in rows]
    assert {*marked} == {True, False}
    panels = costs.growth_figure(path, grown).drawing.axes
    assert [ax.get_xlabel() for ax in panels[-5:]] == ["batch", "pixels a side", "classes", "network", "runs at once"]
