"""Means, intervals, gains, and the tables and pictures made of them; what each measure is worth on few labels."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from paper_records import claim, suite, value, verdicts
from rcad.paper.record import Place, Run, Study
from rcad.paper.report import chapters, curves, verdict_table
from rcad.paper.report.few_labels import best, gains, section
from rcad.paper.report.pictures import dots
from rcad.paper.report.tables import Links, gain_over, grid, measure_table, run_table, side_by_side
from rcad.paper.targets import Printed
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
    (line,) = verdict_table([one, study()]).cells
    assert [cell.text for cell in line] == ["made up, T4", "full", "1", "0", "0", "0"]


def test_published_numbers_far_from_ours_are_inside_the_picture() -> None:
    runs = [Run(seed, {"accuracy": 8.0 + 0.1 * seed}) for seed in range(10)]
    places = {(row, "n=500"): Place(row, "n=500", Printed(far), runs) for row, far in (("ERM", 3.0), ("RCAD", 14.8))}
    drawn = dots(Study("T4", rows=["ERM", "RCAD"], columns=["n=500"], places=places))
    low, high = drawn.drawing.axes[0].get_xlim()
    assert low < 3.0 < 14.8 < high


def test_wide_intervals_of_few_seeds_are_inside_the_picture() -> None:
    runs = [Run(seed, {"accuracy": value}) for seed, value in enumerate((35.0, 36.0, 38.5))]
    drawn = dots(
        Study("T4", rows=["ERM"], columns=["n=500"], places={("ERM", "n=500"): Place("ERM", "n=500", None, runs)})
    )
    low, high = drawn.drawing.axes[0].get_xlim()
    interval = stats.t(2, np.mean([35.0, 36.0, 38.5]), stats.sem([35.0, 36.0, 38.5])).interval(0.95)
    assert low < interval[0] < interval[1] < high


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


def test_what_does_not_depend_on_the_step_is_a_line_across() -> None:
    ax = curves.by_step(F4).drawing.axes[0]
    dashed = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert [line.get_label() for line in dashed] == ["entropy at x"]
    assert dashed[0].get_ydata()[0] == pytest.approx(by_hand("entropy at x", "ERM", "alpha 1", "accuracy")[0])


ERM = {"accuracy": [10.0, 12.0, 11.0], "nll": [5.0, 5.2, 5.1]}


def place(row: str, points: float = 0.0, nats: float = 0.0, column: str = "n=500") -> Place:
    """Better than ERM by this much on average at the last epoch, and by nothing at the chosen one."""
    runs = [
        Run(seed, {"accuracy": one, "nll": two, "last_accuracy": one + k * points, "last_nll": two - k * nats})
        for seed, k, one, two in zip(range(3), (0.9, 1.0, 1.1), ERM["accuracy"], ERM["nll"], strict=True)
    ]
    return Place(row, column, None, runs)


def few_labels(*places: Place) -> Study:
    cells = {(one.row, one.column): one for one in places}
    sides = {"rows": ["ERM", "RCAD"], "columns": ["n=500", "n=50,000"], "places": cells}
    return Study("T4", "Low data: subsets of CIFAR-100, ResNet-18", **sides)  # type: ignore[arg-type]


PUBLISHED = few_labels(place("ERM"), place("RCAD", 0.5, 0.3), place("RCAD", 9.0, 9.0, "n=50,000"))


def test_a_trial_says_nothing_and_a_diverged_run_has_no_gain() -> None:
    assert section([replace(PUBLISHED, scale="smoke")]) is None
    broken = replace(PUBLISHED.places["RCAD", "n=500"], runs=[Run(0, {"last_accuracy": None, "last_nll": None})])
    shown = section([few_labels(place("ERM"), broken)])
    (table,) = [part for part in shown.parts if isinstance(part, Table)]
    assert [cell.text for cell in table.cells[1]][3:] == ["-", "-", "-", "-"]


def test_the_best_measures_are_named_and_guessing_is_told() -> None:
    assert best(gains([PUBLISHED])) == [
        "n=500, ResNet-18, paper's setting: best by accuracy: RCAD (+0.50 points); by NLL: RCAD (+0.300 nats)."
    ]
    constant = Place("RCAD", "n=500", None, [Run(seed, {"last_accuracy": 1.0, "last_nll": 4.605}) for seed in range(3)])
    found = gains([few_labels(place("ERM"), constant)])
    assert found[1].name == "RCAD (no better than guessing)"
    assert best(found) == [
        "n=500, ResNet-18, paper's setting: best by accuracy: nothing shown to be better; by NLL: nothing shown to be "
        "better."
    ]
