"""Predictions as a CSV file, written as they are made."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rcad.errors import InputError, expanded
from rcad.predict.predictor import Predictor, check_coverage, intervals
from rcad.runs.files import replacing


def write(
    predictor: Predictor,
    data: str | Path,
    out: Path,
    *,
    coverage: float = 0.9,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Write a row for each example: its file or number, the prediction, and how sure it is.

    For classes the probability of the predicted one and those of all (`p_NAME`); for regression the deviation and
    the interval that holds it with probability `coverage`. The file appears whole or not at all.

    Returns:
        A summary: how many examples there were, how many were skipped and why, and what was predicted.
    """
    if out.suffix.lower() != ".csv":
        raise InputError(f"expected --out to be a file that ends in .csv, but got {out}; rename it")
    if expanded(out).resolve() == expanded(data).resolve():
        raise InputError(f"expected --out to be another file than --data, but both are {out}; it would be replaced")
    check_coverage(coverage)
    classes, counts, means = predictor.classes, Counter[str](), list[float]()
    examples, bad = predictor.preprocessing.read(data, skip_bad=skip_bad), list[str]()
    own = ("probability", *(f"p_{name}" for name in classes)) if classes else ("deviation", "low", "high")
    with replacing(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*examples.headers, "prediction", *own])
        for part, found in predictor.answers(examples, progress):
            bad += part.bad
            if classes:
                labels = [classes[k] for k in found.argmax(1)]
                values = np.column_stack([found.max(1, initial=0), found])
                counts.update(labels)
            else:
                labels = [f"{mean:.8g}" for mean in found[:, 0]]
                values = np.column_stack([found[:, 1], intervals(found, coverage)])
                means += found[:, 0].tolist()
            for names, label, numbers in zip(part.names, labels, values, strict=True):
                writer.writerow([*names, label, *(f"{number:.8g}" for number in numbers)])
        if len(bad) == examples.total:
            raise InputError(f"expected images that can be read in {data}, but all are broken, e.g.: {bad[0]}")
    told: dict[str, Any] = {"examples": examples.total - len(bad), "skipped": bad}
    if classes:
        return {**told, "classes": {name: counts[name] for name in classes}}
    return {**told, "mean": float(np.mean(means)), "least": min(means), "most": max(means), "coverage": coverage}
