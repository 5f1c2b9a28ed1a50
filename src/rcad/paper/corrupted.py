"""F6: accuracy on corrupted test images."""

from __future__ import annotations

from rcad.data.corruption_names import CORRUPTIONS
from rcad.paper.benchmarks import CIFAR10, CIFAR100_2K, Benchmark
from rcad.paper.claims import CONTROLS
from rcad.paper.suite import Column, Curve, Suite, claims

MEAN = "mean"
ROWS = ("ERM", "ME-ADA", "RCAD", *CONTROLS)


def _column(one: Benchmark, corruption: str) -> Column:
    return Column(f"{one.name}, {corruption}", one, f"corrupted_accuracy_{corruption}", "corruptions")


SETS = (CIFAR10, CIFAR100_2K)
MEANS = tuple(_column(one, MEAN) for one in SETS)
COLUMNS = tuple(_column(one, corruption) for one in SETS for corruption in (MEAN, *CORRUPTIONS))

SUITE = Suite(
    name="F6",
    title="Accuracy on corrupted test images",
    about="accuracy of ERM, ME-ADA and RCAD on fifteen corruptions of the test images, at five severities each",
    rows=ROWS,
    columns=COLUMNS,
    published={},
    claims=claims(
        MEANS, {}, [("RCAD", "ERM"), ("ME-ADA", "ERM")], better=lambda column: "withstands corruption better than"
    ),
    curves=tuple(
        Curve(row, one.name, row, tuple(f"{one.name}, {name}" for name in CORRUPTIONS), CORRUPTIONS)
        for one in SETS
        for row in ROWS
    ),
    notes=(
        "The paper draws this figure without numbers, and for CIFAR-10 only; CIFAR-100-2k is ours.",
        "The corruptions are generated from the test images with the published recipes and strengths.",
    ),
)
