"""F3: gains over ERM, by data set for the adversarial rivals and by the number of images."""

from __future__ import annotations

from rcad.paper import adversarial_rivals, low_data
from rcad.paper.benchmarks import SIX, SUBSETS
from rcad.paper.claims import CONTROLS
from rcad.paper.published import T1, T4
from rcad.paper.suite import Column, Curve, Suite, claims

ON_ADVERSARIAL = ("LS on Adv, small step", "LS on Adv, large step")
LEFT = ("FGSM", *ON_ADVERSARIAL, "ADA", "ME-ADA", "RCAD", *CONTROLS)
RIGHT = ("LS", "FGSM", "ME-ADA", "RCAD", *CONTROLS)
SETS = tuple(Column(one.name, one, rows=("ERM", *LEFT)) for one in SIX)
SIZES = tuple(Column(name, one, rows=("ERM", *RIGHT)) for name, one in SUBSETS.items())
NAMES, COUNTS = tuple(one.name for one in SIX), tuple(one.images("full") for one in SUBSETS.values())
# What T4 claims beyond T1: the three subsets that are one of T1's sets under another name count once.
MORE = tuple(
    one for one in low_data.SUITE.claims if SUBSETS[one.where] not in SIX or "LS" in (one.winner[0], one.loser[0])
)

SUITE = Suite(
    name="F3",
    title="Gain over ERM: adversarial rivals, and by the number of images",
    about="T1 and T4 as gains over ERM, with label smoothing on adversarial examples",
    rows=("ERM", "LS", *LEFT),
    columns=SETS + SIZES,
    published={**T1, **T4},
    claims=claims(SETS, {}, [("RCAD", ON_ADVERSARIAL[0])], control=None) + adversarial_rivals.SUITE.claims + MORE,
    curves=tuple(Curve(row, "by data set", row, NAMES, NAMES, "ERM") for row in LEFT)
    + tuple(Curve(row, "by number of images", row, tuple(SUBSETS), COUNTS, "ERM") for row in RIGHT),
    notes=(
        "It shares its runs with T1 and T4 where all are given the same --runs folder.",
        "The right panel's caption names data augmentation and RCAD with label smoothing as well; neither is run here.",
    ),
)
