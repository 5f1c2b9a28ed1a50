"""What each measure is worth on few labels."""

from __future__ import annotations

from dataclasses import replace

from rcad.paper.record import Place, Run, Study
from rcad.paper.report.few_labels import best, gains, section
from rcad.report.document import Table

ERM = {"accuracy": [10.0, 12.0, 11.0], "nll": [5.0, 5.2, 5.1]}


def place(row: str, points: float = 0.0, nats: float = 0.0, column: str = "n=500") -> Place:
    """Better than ERM by this much at the last epoch, and by nothing at the chosen one."""
    runs = [
        Run(seed, {"accuracy": one, "nll": two, "last_accuracy": one + points + 0.1 * seed, "last_nll": two - nats})
        for seed, (one, two) in enumerate(zip(ERM["accuracy"], ERM["nll"], strict=True))
    ]
    return Place(row, column, None, runs)


def study(*places: Place) -> Study:
    cells = {(one.row, one.column): one for one in places}
    sides = {"rows": ["ERM", "RCAD"], "columns": ["n=500", "n=50,000"], "places": cells}
    return Study("T4", "Low data: subsets of CIFAR-100, ResNet-18", **sides)  # type: ignore[arg-type]


PUBLISHED = study(place("ERM"), place("RCAD", 0.5, 0.3), place("RCAD", 9.0, 9.0, "n=50,000"))


def test_a_trial_says_nothing_and_a_diverged_run_has_no_gain() -> None:
    assert section([replace(PUBLISHED, scale="smoke")]) is None
    broken = replace(PUBLISHED.places["RCAD", "n=500"], runs=[Run(0, {"last_accuracy": None, "last_nll": None})])
    shown = section([study(place("ERM"), broken)])
    (table,) = [part for part in shown.parts if isinstance(part, Table)]
    assert [cell.text for cell in table.cells[1]][3:] == ["-", "-", "-", "-"]


def test_the_best_measures_are_named_and_guessing_is_told() -> None:
    assert best(gains([PUBLISHED])) == [
        "n=500, ResNet-18, paper's setting: best by accuracy: RCAD (+0.50 points); by NLL: RCAD (+0.300 nats)."
    ]
    constant = Place("RCAD", "n=500", None, [Run(seed, {"last_accuracy": 1.0, "last_nll": 4.605}) for seed in range(3)])
    found = gains([study(place("ERM"), constant)])
    assert found[1].name == "RCAD (no better than guessing)"
    assert best(found) == [
        "n=500, ResNet-18, paper's setting: best by accuracy: nothing shown to be better; by NLL: nothing shown to be "
        "better."
    ]
