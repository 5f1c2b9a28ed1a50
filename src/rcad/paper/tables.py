"""The paper's tables and figures on images, T1 to T6, F1 to F4 and F6, as data: rows, columns, numbers, claims.

It reads like the paper's table of contents; words and printed numbers are in paper.toml. T7 (uci), T8 and F7 (moons,
boundaries) and F5 (theory) are studies of their own, which write the same kind of record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rcad.data.corrupted import CORRUPTIONS
from rcad.paper import claims
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
    Benchmark,
)
from rcad.paper.claims import CONTROLS, ENTROPY, RANDOM, PlannedClaim, Side, Summary, plan_claims
from rcad.paper.suite import Column, Curve, Suite
from rcad.paper.targets import TARGETS, Table


def columns_of(*benchmarks: Benchmark) -> tuple[Column, ...]:
    """A column for each data set, under its own name."""
    return tuple(Column(benchmark.name, benchmark) for benchmark in benchmarks)


def against(method: str, *rivals: str) -> list[tuple[str, str]]:
    """The method first: who is better is as printed, or the first where nothing is."""
    return [(method, rival) for rival in rivals]


def suite(
    name: str,
    rows: Sequence[str],
    columns: Sequence[Column],
    pairs: Sequence[tuple[str, str]] = (),
    *,
    judged: Sequence[Column] | None = None,
    published: Table | None = None,
    controls: tuple[str, ...] = CONTROLS,
    further: tuple[PlannedClaim, ...] = (),
    summaries: Sequence[Summary] = (),
    curves: Sequence[Curve] = (),
    **how: Any,
) -> Suite:
    """A table with the words and numbers that paper.toml has for it.

    Args:
        rows: methods in order, to which the controls are added.
        pairs: of rows, which the paper compares; `how` has further arguments of `plan_claims`.
        judged: the columns in which it does, where not in all.
        published: the paper's numbers, where others than those of this table stand beside ours.
        further: claims beside those on pairs.
    """
    target = TARGETS[name]
    printed = target.printed if published is None else published
    names = [column.name for column in judged or columns]
    on_pairs = plan_claims(names, printed, pairs, p_values=target.p_values, **how) if pairs else ()
    rows, planned = (*rows, *controls), on_pairs + further
    return Suite(name, target.title, rows, columns, printed, planned, controls, curves, summaries)


RIVALS = ("ERM", "FGSM", "ADA", "ME-ADA")
PRINTED = {name: target.printed for name, target in TARGETS.items()}

SETS = columns_of(*SIX)
T1 = suite("T1", (*RIVALS, "RCAD"), SETS, against("RCAD", *RIVALS))

SMOOTHED_CONTROLS = (f"{RANDOM} + LS", f"{ENTROPY} + LS")
T2 = suite(
    "T2",
    ("LS", "ME-ADA + LS", "RCAD + LS"),
    SETS,
    against("RCAD + LS", "ME-ADA + LS", "LS"),
    controls=SMOOTHED_CONTROLS,
    control=("RCAD + LS", "LS", SMOOTHED_CONTROLS[0]),
)

WIDE = columns_of(*(replace(data, recipe=WRN) for data in (CIFAR100_2K, CIFAR100_10K, CIFAR100)))
T3 = suite("T3", ("ERM", "ME-ADA", "RCAD"), WIDE, against("RCAD", "ERM", "ME-ADA"))

SIZES = tuple(Column(name, benchmark) for name, benchmark in SUBSETS.items())
LESS = ("ERM", "LS", "FGSM", "ME-ADA")
T4 = suite("T4", (*LESS, "RCAD"), SIZES, [*against("RCAD", *LESS), ("ERM", "FGSM")])

TOP = (Column("top-1", IMAGENET), Column("top-5", IMAGENET, metric="top5"))
T5 = suite("T5", (PRETRAINED, "ERM", "RCAD"), TOP, against("RCAD", "ERM"), better="has more {} accuracy than")

ATTACK = "accuracy_under_fgsm_0.05"
"""Of all examples, also those that were wrong before: the attack may put them right, and the paper counts them."""
CLEAN = tuple(Column(f"{data.name}, clean", data) for data in (CIFAR100_2K, CIFAR100, CIFAR10))
ATTACKED = tuple(
    replace(column, name=f"{column.benchmark.name}, attacked", metric=ATTACK, evaluation="attacks") for column in CLEAN
)
T6 = suite(
    "T6",
    (*RIVALS, "RCAD"),
    [column for pair in zip(CLEAN, ATTACKED, strict=True) for column in pair],
    against("RCAD", *RIVALS),
    judged=ATTACKED,
    published={**PRINTED["T6"], **{column.name: PRINTED["T1"][column.benchmark.name] for column in CLEAN}},
    better="withstands the attack better than",
)

F1 = suite(
    "F1",
    ("DA", "LS", "FGSM", "ME-ADA", "RCAD"),
    columns_of(CIFAR100_2K),
    against("RCAD", "DA", "LS", "FGSM", "ME-ADA"),
    published={CIFAR100_2K.name: {row: mean for row, mean in PRINTED["T4"]["n=2,000"].items() if row != "ERM"}},
    control=("RCAD", "DA", RANDOM),
)

BASES = ("DA", "LS", "CutOut", "CutMix", "MixUp")
BASE_CONTROLS = (f"DA + {RANDOM}", f"DA + {ENTROPY}")
SAID = {(CIFAR100_2K.name, "LS"): 3.0}
"""The one gain of these bars that the text names."""
F2 = suite(
    "F2",
    [row for base in BASES for row in (base, f"{base} + RCAD")],
    SETS,
    controls=BASE_CONTROLS,
    further=tuple(
        PlannedClaim.of(column.name, first, "is more accurate than", second, SAID.get((column.name, second)))
        for column in SETS
        for first, second in [*((f"{base} + RCAD", base) for base in BASES), ("DA + RCAD", BASE_CONTROLS[0])]
    ),
    summaries=[
        claims.most_pairs(
            "all pairs",
            "RCAD makes the others more accurate, in 22 of 24 pairs",
            [((f"{base} + RCAD", column.name), (base, column.name)) for column in SETS for base in BASES],
            (22, 24),
        )
    ],
)

ON_ADVERSARIAL = ("LS on Adv, small step", "LS on Adv, large step")
LEFT = ("FGSM", *ON_ADVERSARIAL, "ADA", "ME-ADA", "RCAD", "ME-ADA + LS", "RCAD + LS")
RIGHT = ("LS", "FGSM", "ME-ADA", "RCAD", "RCAD + LS")
BY_SET = tuple(replace(column, rows=("ERM", *LEFT, *CONTROLS)) for column in SETS)
BY_SIZE = tuple(replace(column, rows=(UNAUGMENTED, "ERM", *RIGHT, *CONTROLS)) for column in SIZES)
NAMES, COUNTS = tuple(data.name for data in SIX), tuple(data.images("full") for data in SUBSETS.values())
# What T4 claims beyond T1: the three subsets that are one of T1's sets under another name count once.
BEYOND_T1 = tuple(c for c in T4.claims if SUBSETS[c.where] not in SIX or "LS" in (c.winner[0], c.loser[0]))
WITH_SMOOTHED = {name: {**PRINTED["T1"][name], **PRINTED["T2"][name]} for name in NAMES}
PRINTED_GAINS = {name: row["RCAD"].mean - row["LS"].mean for name, row in PRINTED["T4"].items()}
F3 = suite(
    "F3",
    (UNAUGMENTED, "ERM", "LS", *LEFT),
    BY_SET + BY_SIZE,
    published={**WITH_SMOOTHED, **PRINTED["T4"]},
    further=plan_claims(NAMES, {}, [("RCAD", ON_ADVERSARIAL[0])], control=None)
    + plan_claims(NAMES, PRINTED["T2"], [("RCAD + LS", "ME-ADA + LS")], control=None)
    + plan_claims(NAMES, WITH_SMOOTHED, [("RCAD + LS", "RCAD"), ("ME-ADA + LS", "ME-ADA")], control=None)
    + T1.claims
    + BEYOND_T1,
    summaries=[
        claims.as_good(
            "by data set",
            "RCAD is hardly better than LS on Adv with the large step on a few sets",
            [(("RCAD", name), (ON_ADVERSARIAL[1], name)) for name in NAMES],
        ),
        claims.steeper_trend(
            "by number of images",
            "RCAD's gain grows faster than LS's as there are fewer images",
            ("RCAD", "LS"),
            tuple(zip(SUBSETS, COUNTS, strict=True)),
            claims.fewer_is_more([*zip(COUNTS, PRINTED_GAINS.values(), strict=True)]),
        ),
    ],
    curves=[
        *(Curve(row, "by data set", row, NAMES, NAMES, "ERM") for row in (*LEFT, *CONTROLS)),
        *(Curve(row, "by number of images", row, tuple(SUBSETS), COUNTS, "ERM") for row in (*RIGHT, *CONTROLS)),
        Curve("DA, over ERM without it", "by number of images", "ERM", tuple(SUBSETS), COUNTS, UNAUGMENTED),
    ],
)

ALPHAS = {f"alpha {alpha:g}": alpha for alpha in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)}
THRESHOLD, LONGEST = 0.5, 5.0
"""The paper: effective only above the first. No claim of it is about steps longer than the second: they are shown."""
AT_PRINTED = f"alpha {CIFAR100_2K.alpha:g}"
"""The one point of the curve whose numbers the paper prints."""
AT_STEPS = tuple(Column(name, replace(CIFAR100_2K, alpha=alpha)) for name, alpha in ALPHAS.items())
PUBLISHED_F4 = {AT_PRINTED: {row: PRINTED["T1"][CIFAR100_2K.name][row] for row in ("ERM", "RCAD")}}
LESS_ACCURATE = f"RCAD is less accurate than at {AT_PRINTED}"
F4 = suite(
    "F4",
    ("ERM", "RCAD"),
    AT_STEPS,
    published=PUBLISHED_F4,
    further=tuple(
        PlannedClaim(name, LESS_ACCURATE, ("RCAD", AT_PRINTED), ("RCAD", name), None)
        for name, alpha in ALPHAS.items()
        if alpha < THRESHOLD
    )
    + plan_claims(
        [name for name, alpha in ALPHAS.items() if THRESHOLD < alpha <= LONGEST], PUBLISHED_F4, against("RCAD", "ERM")
    ),
    curves=[Curve(row, "step size", row, tuple(ALPHAS), tuple(ALPHAS.values())) for row in ("ERM", "RCAD", *CONTROLS)],
)

MEAN = "mean"
CORRUPTED = {
    (data.name, name): Column(f"{data.name}, {name}", data, f"corrupted_accuracy_{name}", "corruptions")
    for data in (CIFAR10, CIFAR100_2K, CIFAR100)
    for name in (MEAN, *CORRUPTIONS)
}
FAR_BEHIND = ("gaussian_noise", "glass_blur")
"""Where the text has both methods about 25 points above ERM."""
BETTER = "withstands corruption better than"


def pairs_by_corruption(first: str, second: str) -> list[tuple[Side, Side]]:
    """Two rows on CIFAR-10, the one set that the paper shows, by corruption."""
    columns = [CORRUPTED[CIFAR10.name, name].name for name in CORRUPTIONS]
    return [((first, column), (second, column)) for column in columns]


F6 = suite(
    "F6",
    ("ERM", "ME-ADA", "RCAD"),
    list(CORRUPTED.values()),
    [("RCAD", "ERM"), ("ME-ADA", "ERM")],
    judged=[column for (_, name), column in CORRUPTED.items() if name == MEAN],
    better=BETTER,
    further=tuple(
        PlannedClaim.of(CORRUPTED[CIFAR10.name, name].name, row, BETTER, "ERM", 25.0)
        for name in FAR_BEHIND
        for row in ("RCAD", "ME-ADA")
    ),
    summaries=[
        *(
            claims.most_pairs(
                CIFAR10.name,
                f"{row} is consistently more accurate than ERM, whatever the corruption",
                pairs_by_corruption(row, "ERM"),
                (len(CORRUPTIONS), len(CORRUPTIONS)),
            )
            for row in ("RCAD", "ME-ADA")
        ),
        claims.none_ahead(
            CIFAR10.name,
            "no systematic difference between RCAD and ME-ADA",
            pairs_by_corruption("RCAD", "ME-ADA"),
        ),
    ],
    curves=[
        Curve(row, data.name, row, tuple(f"{data.name}, {name}" for name in CORRUPTIONS), CORRUPTIONS)
        for data in (CIFAR10, CIFAR100_2K, CIFAR100)
        for row in ("ERM", "ME-ADA", "RCAD", *CONTROLS)
    ],
)

SUITES = {table.name: table for table in (T1, T2, T3, T4, T5, T6, F1, F2, F3, F4, F6)}
