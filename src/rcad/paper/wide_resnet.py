"""T3: a wider network."""

from __future__ import annotations

from rcad.paper.benchmarks import WIDE
from rcad.paper.claims import CONTROLS
from rcad.paper.published import T3
from rcad.paper.suite import Suite, claims, columns_of

COLUMNS = columns_of(WIDE)

SUITE = Suite(
    name="T3",
    title="Wide ResNet 28-10",
    about="test accuracy of ERM, ME-ADA and RCAD with a wide network on CIFAR-100 and two subsets",
    rows=("ERM", "ME-ADA", "RCAD", *CONTROLS),
    columns=COLUMNS,
    published=T3,
    claims=claims(COLUMNS, T3, [("RCAD", "ERM"), ("RCAD", "ME-ADA")]),
    notes=(
        "The small scale runs a Wide ResNet 16-8 instead.",
        "Batches of 128 and no clipping for every set. The text's smaller batches for the subsets may be meant here "
        "too; the released program clips, and drops the learning rate at epochs 100, 150 and 180.",
    ),
)
