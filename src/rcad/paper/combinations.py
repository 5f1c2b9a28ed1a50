"""F2: RCAD on top of each common regulariser."""

from __future__ import annotations

from rcad.paper.benchmarks import PLAIN_DIRECTION, SIX
from rcad.paper.claims import ENTROPY, RANDOM
from rcad.paper.suite import PlannedClaim, Suite, columns_of

BASES = ("DA", "LS", "CutOut", "MixUp")
COLUMNS = columns_of(SIX)
BASE_CONTROLS = (f"DA + {RANDOM}", f"DA + {ENTROPY}")


def _claims() -> tuple[PlannedClaim, ...]:
    found = []
    for column in COLUMNS:
        pairs = [(f"{base} + RCAD", base) for base in BASES] + [("DA + RCAD", BASE_CONTROLS[0])]
        for first, second in pairs:
            text = f"{first} is more accurate than {second}"
            found.append(PlannedClaim(column.name, text, (first, column.name), (second, column.name), None))
    return tuple(found)


SUITE = Suite(
    name="F2",
    title="RCAD on top of augmentation, label smoothing, CutOut and MixUp",
    about="24 pairs of bars: six image sets, four regularisers, each with and without RCAD",
    rows=tuple(row for base in BASES for row in (base, f"{base} + RCAD")) + BASE_CONTROLS,
    columns=COLUMNS,
    published={},
    claims=_claims(),
    controls=BASE_CONTROLS,
    notes=(
        "The paper draws these bars without numbers and says that RCAD is better in 22 of 24 pairs.",
        "The paper's third pair is labelled CutOut/CutMix without saying which set had which; CutOut is run here.",
        PLAIN_DIRECTION,
    ),
)
