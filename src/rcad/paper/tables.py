"""The paper's tables and figures on images, T1 to T6, F1 to F4 and F6, as data: rows, columns, numbers, claims.

It reads like the paper's table of contents; words and printed numbers are in paper.toml. T7 (uci), T8 and F7 (moons,
boundaries) and F5 (theory) are studies of their own, which write the same kind of record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rcad.data.corrupted import CORRUPTIONS
from rcad.paper import published
from rcad.paper.benchmarks import (
    CIFAR10,
    CIFAR100,
    CIFAR100_2K,
    CIFAR100_10K,
    IMAGENET,
    PRETRAINED,
    SIX,
    SUBSETS,
    UNAUGMENTED,
    WRN,
)
from rcad.paper.claims import CONTROLS, ENTROPY, RANDOM, PlannedClaim, Side
from rcad.paper.suite import Column, Curve, Suite, claims, columns_of
from rcad.paper.summaries import AsGood, MostPairs, NoneAhead, SteeperTrend, fewer_is_more
from rcad.paper.targets import TARGETS

RIVALS = ("ERM", "FGSM", "ADA", "ME-ADA")


def suite(name: str, **parts: Any) -> Suite:
    """The suite with the words that paper.toml has for it."""
    target = TARGETS[name]
    return Suite(name, target.title, target.shows, notes=target.notes, **parts)


SETS = columns_of(SIX)

T1 = suite(
    "T1",
    rows=(*RIVALS, "RCAD", *CONTROLS),
    columns=SETS,
    published=published.T1,
    claims=claims(SETS, published.T1, [("RCAD", rival) for rival in RIVALS], p_values=published.P_VALUES),
)

SMOOTHED_CONTROLS = (f"{RANDOM} + LS", f"{ENTROPY} + LS")
T2 = suite(
    "T2",
    rows=("LS", "ME-ADA + LS", "RCAD + LS", *SMOOTHED_CONTROLS),
    columns=SETS,
    published=published.T2,
    claims=claims(
        SETS,
        published.T2,
        [("RCAD + LS", "ME-ADA + LS"), ("RCAD + LS", "LS")],
        control=("RCAD + LS", "LS", SMOOTHED_CONTROLS[0]),
        p_values=published.P_VALUES,
    ),
    controls=SMOOTHED_CONTROLS,
)

WIDE = columns_of(replace(data, recipe=WRN) for data in (CIFAR100_2K, CIFAR100_10K, CIFAR100))
T3 = suite(
    "T3",
    rows=("ERM", "ME-ADA", "RCAD", *CONTROLS),
    columns=WIDE,
    published=published.T3,
    claims=claims(WIDE, published.T3, [("RCAD", "ERM"), ("RCAD", "ME-ADA")]),
)

SIZES = tuple(Column(name, benchmark) for name, benchmark in SUBSETS.items())
T4 = suite(
    "T4",
    rows=("ERM", "LS", "FGSM", "ME-ADA", "RCAD", *CONTROLS),
    columns=SIZES,
    published=published.T4,
    claims=claims(
        SIZES, published.T4, [*(("RCAD", rival) for rival in ("ERM", "LS", "FGSM", "ME-ADA")), ("ERM", "FGSM")]
    ),
)

TOP = (Column("top-1", IMAGENET), Column("top-5", IMAGENET, metric="top5"))
T5 = suite(
    "T5",
    rows=(PRETRAINED, "ERM", "RCAD", *CONTROLS),
    columns=TOP,
    published=published.T5,
    claims=claims(TOP, published.T5, [("RCAD", "ERM")], better=lambda column: f"has more {column} accuracy than"),
)

ATTACK = "accuracy_under_fgsm_0.05"
"""Of all examples, also those that were wrong before: the attack may put them right, and the paper counts them."""
CLEAN = tuple(Column(f"{data.name}, clean", data) for data in (CIFAR100_2K, CIFAR100, CIFAR10))
ATTACKED = tuple(
    replace(column, name=f"{column.benchmark.name}, attacked", metric=ATTACK, evaluation="attacks") for column in CLEAN
)
T6 = suite(
    "T6",
    rows=(*RIVALS, "RCAD", *CONTROLS),
    columns=tuple(column for pair in zip(CLEAN, ATTACKED, strict=True) for column in pair),
    published=published.T6,
    claims=claims(
        ATTACKED,
        published.T6,
        [("RCAD", rival) for rival in RIVALS],
        better=lambda column: "withstands the attack better than",
    ),
)

PUBLISHED_F1 = {CIFAR100_2K.name: {row: mean for row, mean in published.T4["n=2,000"].items() if row != "ERM"}}
F1 = suite(
    "F1",
    rows=("DA", "LS", "FGSM", "ME-ADA", "RCAD", *CONTROLS),
    columns=columns_of((CIFAR100_2K,)),
    published=PUBLISHED_F1,
    claims=claims(
        columns_of((CIFAR100_2K,)),
        PUBLISHED_F1,
        [("RCAD", rival) for rival in ("DA", "LS", "FGSM", "ME-ADA")],
        control=("RCAD", "DA", RANDOM),
    ),
)

BASES = ("DA", "LS", "CutOut", "CutMix", "MixUp")
BASE_CONTROLS = (f"DA + {RANDOM}", f"DA + {ENTROPY}")
SAID = {(CIFAR100_2K.name, "LS"): 3.0}
"""The one gain of these bars that the text names."""
F2 = suite(
    "F2",
    rows=tuple(row for base in BASES for row in (base, f"{base} + RCAD")) + BASE_CONTROLS,
    columns=SETS,
    published={},
    claims=tuple(
        PlannedClaim.of(column.name, first, "is more accurate than", second, SAID.get((column.name, second)))
        for column in SETS
        for first, second in [*((f"{base} + RCAD", base) for base in BASES), ("DA + RCAD", BASE_CONTROLS[0])]
    ),
    controls=BASE_CONTROLS,
    summaries=(
        MostPairs(
            "all pairs",
            "RCAD makes the others more accurate, in 22 of 24 pairs",
            tuple(((f"{base} + RCAD", column.name), (base, column.name)) for column in SETS for base in BASES),
            (22, 24),
        ),
    ),
)

ON_ADVERSARIAL = ("LS on Adv, small step", "LS on Adv, large step")
BOTH_SMOOTHED = ("ME-ADA + LS", "RCAD + LS")
LEFT = ("FGSM", *ON_ADVERSARIAL, "ADA", "ME-ADA", "RCAD", *BOTH_SMOOTHED, *CONTROLS)
RIGHT = ("LS", "FGSM", "ME-ADA", "RCAD", "RCAD + LS", *CONTROLS)
BY_SET = tuple(replace(column, rows=("ERM", *LEFT)) for column in SETS)
BY_SIZE = tuple(replace(column, rows=(UNAUGMENTED, "ERM", *RIGHT)) for column in SIZES)
NAMES, COUNTS = tuple(data.name for data in SIX), tuple(data.images("full") for data in SUBSETS.values())
# What T4 claims beyond T1: the three subsets that are one of T1's sets under another name count once.
BEYOND_T1 = tuple(c for c in T4.claims if SUBSETS[c.where] not in SIX or "LS" in (c.winner[0], c.loser[0]))
WITH_SMOOTHED = {name: {**published.T1[name], **published.T2[name]} for name in NAMES}


def printed_gain(first: str, second: str, size: str) -> float:
    """How much better one is than the other, as T4 prints them."""
    row = published.T4[size]
    return row[first].mean - row[second].mean


F3 = suite(
    "F3",
    rows=(UNAUGMENTED, "ERM", "LS", *LEFT),
    columns=BY_SET + BY_SIZE,
    published={**WITH_SMOOTHED, **published.T4},
    claims=claims(BY_SET, {}, [("RCAD", ON_ADVERSARIAL[0])], control=None)
    + claims(BY_SET, published.T2, [("RCAD + LS", "ME-ADA + LS")], control=None)
    + claims(BY_SET, WITH_SMOOTHED, [("RCAD + LS", "RCAD"), ("ME-ADA + LS", "ME-ADA")], control=None)
    + T1.claims
    + BEYOND_T1,
    summaries=(
        AsGood(
            "by data set",
            "RCAD is hardly better than LS on Adv with the large step on a few sets",
            tuple((("RCAD", name), (ON_ADVERSARIAL[1], name)) for name in NAMES),
        ),
        SteeperTrend(
            "by number of images",
            "RCAD's gain grows faster than LS's as there are fewer images",
            "RCAD",
            "LS",
            tuple(zip(SUBSETS, COUNTS, strict=True)),
            fewer_is_more([(n, printed_gain("RCAD", "LS", name)) for name, n in zip(SUBSETS, COUNTS, strict=True)]),
        ),
    ),
    curves=tuple(Curve(row, "by data set", row, NAMES, NAMES, "ERM") for row in LEFT)
    + tuple(Curve(row, "by number of images", row, tuple(SUBSETS), COUNTS, "ERM") for row in RIGHT)
    + (Curve("DA, over ERM without it", "by number of images", "ERM", tuple(SUBSETS), COUNTS, UNAUGMENTED),),
)

ALPHAS = {alpha: f"alpha {alpha:g}" for alpha in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)}
LONGEST = 5.0
"""No claim of the paper is about longer steps: they are shown and not judged."""
THRESHOLD = 0.5
"""The paper: effective only above it."""
AT_PRINTED = ALPHAS[CIFAR100_2K.alpha]
"""The one point of the curve whose numbers the paper prints."""
PUBLISHED_F4 = {AT_PRINTED: {row: published.T1[CIFAR100_2K.name][row] for row in ("ERM", "RCAD")}}


def _step_claims() -> tuple[PlannedClaim, ...]:
    """Above the threshold RCAD beats ERM and a random step of that length; below it falls behind its own best."""
    planned: list[PlannedClaim] = []
    for alpha, name in ALPHAS.items():
        if THRESHOLD < alpha <= LONGEST:
            column = Column(name, CIFAR100_2K)
            planned += claims((column,), PUBLISHED_F4, [("RCAD", "ERM")])
        elif alpha < THRESHOLD:
            text = f"RCAD is less accurate than at {AT_PRINTED}"
            planned.append(PlannedClaim(name, text, ("RCAD", AT_PRINTED), ("RCAD", name), None))
    return tuple(planned)


F4 = suite(
    "F4",
    rows=("ERM", "RCAD", *CONTROLS),
    columns=tuple(Column(name, replace(CIFAR100_2K, alpha=alpha)) for alpha, name in ALPHAS.items()),
    published=PUBLISHED_F4,
    claims=_step_claims(),
    curves=tuple(
        Curve(row, "step size", row, tuple(ALPHAS.values()), tuple(ALPHAS)) for row in ("ERM", "RCAD", *CONTROLS)
    ),
)

MEAN = "mean"
CORRUPTED = {
    (data.name, name): Column(f"{data.name}, {name}", data, f"corrupted_accuracy_{name}", "corruptions")
    for data in (CIFAR10, CIFAR100_2K, CIFAR100)
    for name in (MEAN, *CORRUPTIONS)
}
FAR_BEHIND = ("gaussian_noise", "glass_blur")
"""Where the text has both methods about 25 points above ERM."""


def _corrupted(row: str) -> tuple[Side, ...]:
    """A row's cells on CIFAR-10, the one set that the paper shows, by corruption."""
    return tuple((row, CORRUPTED[CIFAR10.name, name].name) for name in CORRUPTIONS)


F6 = suite(
    "F6",
    rows=("ERM", "ME-ADA", "RCAD", *CONTROLS),
    columns=tuple(CORRUPTED.values()),
    published={},
    claims=claims(
        [column for (_, name), column in CORRUPTED.items() if name == MEAN],
        {},
        [("RCAD", "ERM"), ("ME-ADA", "ERM")],
        better=lambda column: "withstands corruption better than",
    )
    + tuple(
        PlannedClaim.of(CORRUPTED[CIFAR10.name, name].name, row, "withstands corruption better than", "ERM", 25.0)
        for name in FAR_BEHIND
        for row in ("RCAD", "ME-ADA")
    ),
    summaries=(
        *(
            MostPairs(
                CIFAR10.name,
                f"{row} is consistently more accurate than ERM, whatever the corruption",
                tuple(zip(_corrupted(row), _corrupted("ERM"), strict=True)),
                (len(CORRUPTIONS), len(CORRUPTIONS)),
            )
            for row in ("RCAD", "ME-ADA")
        ),
        NoneAhead(
            CIFAR10.name,
            "no systematic difference between RCAD and ME-ADA",
            tuple(zip(_corrupted("RCAD"), _corrupted("ME-ADA"), strict=True)),
        ),
    ),
    curves=tuple(
        Curve(row, data.name, row, tuple(f"{data.name}, {name}" for name in CORRUPTIONS), CORRUPTIONS)
        for data in (CIFAR10, CIFAR100_2K, CIFAR100)
        for row in ("ERM", "ME-ADA", "RCAD", *CONTROLS)
    ),
)

SUITES = {table.name: table for table in (T1, T2, T3, T4, T5, T6, F1, F2, F3, F4, F6)}
