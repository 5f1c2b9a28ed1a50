"""The verdicts of a comparison from its cells; a cell holds the results of a method, as `compete` gives them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
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
    differences = compared(cells, metrics, test_ratio)
    record = {
        "metric": metrics[0],
        "metrics": list(metrics),
        "seeds": [int(seed) for seed in next(iter(cells.values()))["seeds"]],
        "seconds": sum(cell["seconds"] for cell in cells.values()),
        "base": _named(cells, "base")[0],
        "rule": QUESTION_RULE,
        "methods": {
            name: {**cell, "chosen": {key: typical(values) for key, values in chosen(cell).items()}}
            for name, cell in cells.items()
        },
        "results": summaries(cells, metrics),
        "question": differences[0],
        "differences": differences,
    }
    return {**record, "sentences": sentences(record)}


def compared(cells: Cells, metrics: Sequence[str], test_ratio: float) -> list[dict[str, Any]]:
    """The question, judged alone; then every method against ERM, the user's own against RCAD, and RCAD against its
    controls, by every metric."""
    (base,), controls, methods = (_named(cells, role) for role in ("base", "control", "asked"))
    rcads = [name for name in methods if "rcad" in [part.strip().partition("(")[0] for part in name.split(" + ")]]
    first = (rcads or methods)[0]
    pairs = [(first, base), *((name, base) for name in cells if name not in (base, first))]
    pairs += [(name, rcad) for name in methods if ":" in name for rcad in rcads if rcad != name]
    pairs += [(rcad, control) for rcad in rcads for control in controls]
    questions = [(*pair, metric) for metric in metrics for pair in pairs]
    differences = [
        compare_groups(
            results(cells[ours], metric),
            results(cells[theirs], metric),
            higher_is_better=HIGHER_IS_BETTER[metric],
            test_ratio=test_ratio,
        )
        for ours, theirs, metric in questions
    ]
    judged = [*judge_questions(differences[:1]), *judge_questions(differences[1:])]
    return [
        {"method": ours, "against": theirs, "metric": metric, **difference.to_dict()}
        for (ours, theirs, metric), difference in zip(questions, judged, strict=True)
    ]


def _named(cells: Cells, role: str) -> list[str]:
    return [name for name, cell in cells.items() if cell["role"] == role]


def results(cell: Mapping[str, Any], metric: str) -> dict[int, float | None]:
    """A method's test results by seed."""
    return {int(seed): (run["test"] or {}).get(metric) for seed, run in cell["seeds"].items()}


def summaries(cells: Cells, metrics: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Mean, deviation and interval of every method and metric; the values by seed; how many runs diverged."""
    by_method: dict[str, dict[str, Any]] = {}
    for name, metric in product(cells, metrics):
        values = results(cells[name], metric)
        finite = [value for value in values.values() if value is not None]
        summary = asdict(describe(finite)) if finite else None
        numbers = {"values": values, "summary": summary, "diverged": len(values) - len(finite)}
        by_method.setdefault(name, {})[metric] = numbers
    return by_method


def chosen(cell: Mapping[str, Any]) -> dict[str, list[Any]]:
    """By key, what each split chose."""
    rows = [run["chosen"] for run in cell["seeds"].values()]
    return {key: [row[key] for row in rows] for key in rows[0]}


def are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def typical(values: Sequence[Any]) -> str:
    """Chosen numbers over the splits: the median and the ends."""
    if not are_numbers(values):
        return ", ".join(dict.fromkeys(map(str, values)))
    low, high = min(values), max(values)
    return f"{low:.3g}" if low == high else f"{statistics.median(values):.3g} ({low:.3g} to {high:.3g})"
