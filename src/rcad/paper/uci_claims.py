"""What T7 claims, judged: differences of test likelihood, paired over the standard splits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rcad.paper.claims import Claim, Draft, judged, oriented
from rcad.paper.published import UCI_NLL
from rcad.study.statistics import Paired, holm, paired

LABELS = {
    "erm": "ERM",
    "erm_fixed": "ERM, last epoch",
    "erm_weight_decay": "ERM, weight decay",
    "ada": "ADA",
    "me_ada": "ME-ADA",
    "adversarial_training": "adversarial training",
    "rcad": "RCAD",
    "rcad_random": "random direction",
    "confidence_penalty": "entropy at x",
}
REFERENCES = ("erm", "rcad_random")
SEEN_BEFORE = (
    "ADA and ME-ADA climb a loss that has no upper limit in x: their steps were made smaller once, after every step "
    "from 0.01 on had diverged on validation rows. That was after a first full run, whose test numbers had been seen."
)
Table = Mapping[str, Any]


def compare(table: Table, first: str, second: str) -> Paired | None:
    """First minus second over the splits of one data set, with the correction; None where a run diverged."""
    a, b = (table["methods"][name]["nll"] for name in (first, second))
    if not all(value is not None and math.isfinite(value) for value in (*a, *b)):
        return None
    return paired(a, b, test_ratio=table["rows"]["test"] / table["rows"]["train"])


def claims(datasets: Mapping[str, Table], *, trial: bool = False) -> list[Claim]:
    """Who is lower, as printed; and that RCAD beats a random direction, which is how the paper explains it.

    The paper shows no random direction: the difference that it credits to the direction is RCAD's gain over ERM.
    """
    drafts = []
    for name, table in datasets.items():
        shown = UCI_NLL.get(name)
        printed = None if shown is None else {method: mean for method, (mean, _) in shown.items()}
        for rival in ("erm", "me_ada"):
            winner, loser, size = oriented(printed, "rcad", rival, lower=True)
            text = f"{LABELS[winner]} has lower NLL than {LABELS[loser]}"
            drafts.append(Draft(name, text, compare(table, loser, winner), size))
        size = None if printed is None else max(0.0, round(printed["erm"] - printed["rcad"], 10)) or None
        gain = compare(table, "rcad_random", "rcad")
        drafts.append(Draft(name, "RCAD has lower NLL than a random direction", gain, size))
    return judged(drafts, trial=trial)


def tests(datasets: Mapping[str, Table]) -> dict[str, list[dict[str, Any]]]:
    """Every method against each reference on every data set; Holm over all rows of a reference, two-sided."""
    found: dict[str, list[dict[str, Any]]] = {}
    for reference in REFERENCES:
        rows: list[dict[str, Any]] = []
        for name, table in datasets.items():
            for method in table["methods"]:
                if method != reference:
                    result = compare(table, method, reference)
                    rows.append({"dataset": name, "method": method, "test": result and result.to_dict()})
        adjusted = holm([1.0 if row["test"] is None else row["test"]["p_two"] for row in rows])
        found[reference] = [{**row, "p_two_holm": p} for row, p in zip(rows, adjusted, strict=True)]
    return found
