"""What the cells of a comparison say: differences, families, verdicts. A cell is what `compete` gives for a method."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rcad.study.compare_page import sentences
from rcad.study.judge import QUESTION_RULE, compare_groups, judge_questions
from rcad.study.statistics import describe
from rcad.study.study import HIGHER_IS_BETTER

Cells = dict[str, dict[str, Any]]
"""By the method's name."""


def judged(cells: Cells, metrics: Sequence[str], test_ratio: float) -> dict[str, Any]:
    """The part of a record that follows from the results alone.

    Args:
        cells: by method, as `compete` gives them.
        metrics: the one that the question is about comes first.
        test_ratio: n_test / n_train where splits overlap.
    """
    pairs = compared(cells, metrics, test_ratio)
    record = {
        "metric": metrics[0],
        "metrics": list(metrics),
        "seeds": [int(seed) for seed in next(iter(cells.values()))["seeds"]],
        "seconds": sum(cell["seconds"] for cell in cells.values()),
        "base": next(name for name, cell in cells.items() if cell["role"] == "base"),
        "rule": QUESTION_RULE,
        "methods": {
            name: {**cell, "chosen": {key: typical(some) for key, some in chosen(cell).items()}}
            for name, cell in cells.items()
        },
        "results": summaries(cells, metrics),
        "question": pairs[0],
        "differences": pairs,
    }
    return {**record, "sentences": sentences(record)}


def compared(cells: Cells, metrics: Sequence[str], test_ratio: float) -> list[dict[str, Any]]:
    """The question, judged alone; then every method against ERM, the user's own against RCAD, and RCAD against its
    controls, by every metric."""
    base = next(name for name, cell in cells.items() if cell["role"] == "base")
    controls = [name for name, cell in cells.items() if cell["role"] == "control"]
    asked = [name for name, cell in cells.items() if cell["role"] == "asked"]
    first = next((name for name in asked if _has_rcad(name)), asked[0])
    pairs = [(first, base), *((name, base) for name in cells if name not in (base, first))]
    pairs += [(name, rcad) for name in asked if ":" in name for rcad in asked if _has_rcad(rcad) and rcad != name]
    pairs += [(name, control) for name in asked if _has_rcad(name) for control in controls]
    every = [(*pair, metric) for metric in metrics for pair in pairs]
    found = [
        compare_groups(
            results(cells[ours], metric),
            results(cells[theirs], metric),
            higher_is_better=HIGHER_IS_BETTER[metric],
            test_ratio=test_ratio,
        )
        for ours, theirs, metric in every
    ]
    judged = [*judge_questions(found[:1]), *judge_questions(found[1:])]
    return [
        {"method": ours, "against": theirs, "metric": metric, **one.to_dict()}
        for (ours, theirs, metric), one in zip(every, judged, strict=True)
    ]


def results(cell: Mapping[str, Any], metric: str) -> dict[int, float | None]:
    """A method's test results by seed."""
    return {int(seed): (one["test"] or {}).get(metric) for seed, one in cell["seeds"].items()}


def summaries(cells: Cells, metrics: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Mean, deviation and interval of every method and metric; the values by seed; how many runs diverged."""
    found: dict[str, dict[str, Any]] = {}
    for name, cell in cells.items():
        found[name] = {}
        for metric in metrics:
            values = results(cell, metric)
            good = [value for value in values.values() if value is not None]
            summary = asdict(describe(good)) if good else None
            found[name][metric] = {"values": values, "summary": summary, "diverged": len(values) - len(good)}
    return found


def _has_rcad(name: str) -> bool:
    return "rcad" in [part.strip().partition("(")[0] for part in name.split(" + ")]


def chosen(cell: Mapping[str, Any]) -> dict[str, list[Any]]:
    """By key, what each split chose."""
    rows = [one["chosen"] for one in cell["seeds"].values()]
    return {key: [row[key] for row in rows] for key in rows[0]}


def are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def typical(values: Sequence[Any]) -> str:
    """Chosen numbers over the splits: the median and the ends."""
    if not are_numbers(values):
        return ", ".join(dict.fromkeys(map(str, values)))
    low, high = min(values), max(values)
    return f"{low:.3g}" if low == high else f"{statistics.median(values):.3g} ({low:.3g} to {high:.3g})"
