"""F4: accuracy against alpha. Its other two panels are T3 and T7."""

from __future__ import annotations

from dataclasses import replace

from rcad.paper.benchmarks import CIFAR100_2K
from rcad.paper.claims import CONTROLS, RANDOM
from rcad.paper.published import T1
from rcad.paper.suite import Column, Curve, PlannedClaim, Suite

ALPHAS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
THRESHOLD = 0.5
"""The paper: effective only above it."""
NAMES = {alpha: f"alpha {alpha:g}" for alpha in ALPHAS}
COLUMNS = tuple(Column(NAMES[alpha], replace(CIFAR100_2K, alpha=alpha)) for alpha in ALPHAS)
ROWS = ("ERM", "RCAD", *CONTROLS)
# The one point of the curve whose numbers the paper prints.
PUBLISHED = {NAMES[CIFAR100_2K.alpha]: {row: T1[CIFAR100_2K.name][row] for row in ("ERM", "RCAD")}}


def _claims() -> tuple[PlannedClaim, ...]:
    found = []
    best = ("RCAD", NAMES[CIFAR100_2K.alpha])
    for alpha, name in NAMES.items():
        mine, erm, control = (("RCAD", name), ("ERM", name), (RANDOM, name))
        if alpha > THRESHOLD:
            printed = PUBLISHED.get(name)
            size = None if printed is None else round(printed["RCAD"].mean - printed["ERM"].mean, 10)
            found.append(PlannedClaim(name, "RCAD is more accurate than ERM", mine, erm, size))
            found.append(PlannedClaim(name, f"RCAD is more accurate than a {RANDOM}", mine, control, size))
        elif alpha < THRESHOLD:
            found.append(PlannedClaim(name, f"RCAD is less accurate than at {best[1]}", best, mine, None))
    return tuple(found)


SUITE = Suite(
    name="F4",
    title="Accuracy against the step size alpha, CIFAR-100-2k",
    about="test accuracy of RCAD and a random direction at seven step sizes; its other panels are T3 and T7",
    rows=ROWS,
    columns=COLUMNS,
    published=PUBLISHED,
    claims=_claims(),
    curves=tuple(Curve(row, "step size", row, tuple(NAMES.values()), ALPHAS) for row in ROWS),
    notes=(
        "The figure's left panel is T3 and its right panel T7. ERM and the entropy at x do not depend on alpha: "
        "their runs are the same in every column.",
    ),
)
