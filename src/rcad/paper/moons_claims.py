"""What T8 claims, judged: differences of test accuracy, paired over fresh draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcad.paper.claims import TRIAL, Claim, Draft, judged, oriented
from rcad.paper.published import MOONS
from rcad.study.statistics import Paired, paired

LABELS = {
    "erm": "ERM",
    "erm_fixed": "ERM, last epoch",
    "fgsm_l2": "FGSM l2",
    "fgsm_linf": "FGSM linf",
    "fgsm_linf at 0.03": "FGSM linf, alpha 0.03",
    "me_ada": "ME-ADA",
    "rcad": "RCAD",
    "rcad_random": "random direction",
    "confidence_penalty": "entropy at x",
}
SEEN_BEFORE = (
    "The lists of configurations had six entries at first; all were made longer once, since at sigma = 0.75 choices "
    "lay on their edges. That was after a first full run, whose test numbers had been seen."
)
OTHER_NOISE = "Rows without a published number try the claim on another noise."
Cell = Mapping[str, Any]


def printed(cell: Cell) -> dict[str, float] | None:
    """The paper's row, where the noise is on all dimensions; its FGSM is the sign of the gradient."""
    row = MOONS.get((cell["d"], cell["sigma"])) if cell["noise"] == "all" else None
    return None if row is None else {"fgsm_linf" if name == "fgsm" else name: value for name, value in row.items()}


def compare(cell: Cell, first: str, second: str) -> Paired | None:
    """First minus second in points; draws are independent. None where a run diverged."""
    a, b = (cell["methods"][name]["accuracy"] for name in (first, second))
    return None if None in (*a, *b) else paired(a, b)


def claims(cells: Mapping[str, Cell], *, trial: bool = False) -> list[Claim]:
    """Who is more accurate, as printed; and that RCAD beats a random direction, which is how the paper explains it."""
    drafts = []
    for name, cell in cells.items():
        shown = printed(cell)
        pairs = [("rcad", "erm"), ("rcad", "me_ada"), ("rcad", "fgsm_linf"), ("fgsm_linf", "erm")]
        for first, second in pairs:
            if first in cell["methods"] and second in cell["methods"]:
                winner, loser, size = oriented(shown, first, second, lower=False)
                text = f"{LABELS[winner]} is more accurate than {LABELS[loser]}"
                drafts.append(Draft(name, text, compare(cell, winner, loser), size))
        size = None if shown is None else shown["rcad"] - shown["erm"]
        gain = compare(cell, "rcad", "rcad_random")
        drafts.append(Draft(name, "RCAD is more accurate than a random direction", gain, size))
    return judged(drafts, trial=trial)


def boundary_claims(panels: Sequence[Mapping[str, Any]], *, trial: bool = False) -> list[Claim]:
    """F7: at every epoch RCAD's boundary gives more of the half circles themselves to the right class than ERM's.

    And what the text says of ERM: it fits its training set entirely, and more epochs make it worse.
    """
    found = {(panel["method"], panel["epoch"]): panel["arc_accuracy"] for panel in panels}
    epochs = list(dict.fromkeys(panel["epoch"] for panel in panels))
    text = "RCAD's boundary follows the moons more closely than ERM's"
    drafts = [Draft(f"epoch {e}", text, paired(found["rcad", e], found["erm", e]), None) for e in epochs]
    erm = {panel["epoch"]: panel for panel in panels if panel["method"] == "erm"}
    fallen = paired(*(erm[e]["validation_accuracy"] for e in (epochs[0], epochs[-1])))
    longer = f"epochs {epochs[0]} to {epochs[-1]}"
    drafts.append(Draft(longer, "more epochs of ERM lower its accuracy on fresh examples", fallen, None))
    fitted = erm[epochs[-1]].get("training_accuracy")
    level = [] if fitted is None else [_fits_all(f"epoch {epochs[-1]}", fitted, trial=trial)]
    return judged(drafts, trial=trial) + level


def _fits_all(where: str, fitted: Sequence[float], *, trial: bool) -> Claim:
    """That ERM ends with every training example on its right side, in every draw."""
    perfect = sum(value == 100 for value in fitted)
    return Claim(
        where,
        "ERM's training accuracy is 100%",
        None,
        None,
        None,
        None,
        TRIAL if trial else "reproduced" if perfect == len(fitted) else "not reproduced",
        f"in {perfect} of {len(fitted)} draws, {min(fitted):.2f}% at least",
        "reproduced: in every draw",
    )
