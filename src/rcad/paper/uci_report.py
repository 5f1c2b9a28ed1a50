"""The page of T7, from its record alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rcad.paper.claims import FOR_A_CONTROL, Claim
from rcad.paper.pages import judged_part, made_by, number, numbers_text, p_value, signed, table
from rcad.paper.published import UCI_NLL
from rcad.paper.uci_claims import LABELS, REFERENCES, SEEN_BEFORE
from rcad.study.statistics import summary

Record = dict[str, Any]


def markdown(record: Record, claims: list[Claim], tests: Mapping[str, list[dict[str, Any]]]) -> str:
    """Claims, the table beside the published one, spread, paired tests, choices, the uncapped entropy."""
    datasets, settings = record["results"]["datasets"], record["settings"]
    protocol = settings["protocol"]
    budget = len(settings["arms"]["erm"]["candidates"])
    parts = [
        "# T7: test likelihood on UCI regression",
        made_by(record, "uci"),
        f"A perceptron {tuple(protocol['hidden'])} with ReLU, Adam at {protocol['lr']:g}, batches of "
        f"{protocol['batch_size']}, {protocol['epochs']} epochs; a Gaussian head; inputs and targets standardised on "
        f"the training rows; {settings['splits']} standard splits. Every method chose among {budget} configurations "
        f"by the likelihood of {settings['validation']:.0%} of the training rows, was refitted on all of them, and "
        "read the test rows once. ERM's configurations are when to stop; 'ERM, last epoch' does not choose. "
        f"Entropy is capped at log-variance {settings['cap']}. NLL in nats, in the target's own unit; lower is better.",
        *judged_part("T7", claims, 3, "nats"),
        FOR_A_CONTROL,
        "![differences from ERM](uci.png)",
        "## Mean test NLL, with the published number and our difference from it",
        f"A mean leaves out the runs that diverged, which flatters their method. {SEEN_BEFORE}",
        _main_table(datasets),
        "## Median and standard deviation over splits",
        _spread_table(datasets),
        *(part for reference in REFERENCES for part in _test_section(reference, tests[reference])),
        "## What was chosen",
        _choices(datasets, settings),
        "## The entropy without its cap",
        _uncapped(record["results"]["uncapped"]),
    ]
    return "\n\n".join(parts) + "\n"


def _main_table(datasets: Mapping[str, Any]) -> str:
    rows = []
    for method, label in LABELS.items():
        cells = [label]
        for name, found in datasets.items():
            short = summary(found["methods"][method]["nll"])
            text = number(short["mean"])
            if short["diverged"]:
                text = f"{text} ({short['diverged']} of {short['runs']} diverged)"
            printed = UCI_NLL.get(name, {}).get(method)
            if printed is not None and short["mean"] is not None:
                text += f" (paper {printed[0]:.2f}±{printed[1]:.2f}, {signed(short['mean'] - printed[0])})"
            cells.append(text)
        rows.append(cells)
    return table(["", *datasets], rows)


def _spread_table(datasets: Mapping[str, Any]) -> str:
    rows = []
    for method, label in LABELS.items():
        shorts = [summary(found["methods"][method]["nll"]) for found in datasets.values()]
        rows.append([label, *(f"{number(short['median'])} (sd {number(short['sd'])})" for short in shorts)])
    return table(["", *datasets], rows)


def _test_section(reference: str, rows: list[dict[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    by = {(row["dataset"], row["method"]): row for row in rows}
    lines = []
    for method, label in LABELS.items():
        if method == reference:
            continue
        lines.append([label, *(_test_cell(by[name, method]) for name in names)])
    return [
        f"## Against {LABELS[reference]}",
        f"Mean difference (negative: lower than {LABELS[reference]}); one-sided p that it is lower / two-sided p / "
        "two-sided p after Holm over this table. Paired over splits, variance factor 1/k + n_test/n_train "
        "(Nadeau and Bengio).",
        table(["", *names], lines),
    ]


def _test_cell(row: dict[str, Any]) -> str:
    test = row["test"]
    if test is None:
        return "a run diverged"
    values = " / ".join(p_value(p) for p in (test["p_less"], test["p_two"], row["p_two_holm"]))
    return f"{signed(test['mean'], 3)}; {values}"


def _choices(datasets: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    rows = []
    for method, label in LABELS.items():
        if method not in settings["arms"]:
            continue
        candidates = settings["arms"][method]["candidates"]
        cells = [label]
        for found in datasets.values():
            one = found["methods"][method]
            (choice, times), *_ = Counter(one["chosen"]).most_common(1)
            text = f"{numbers_text(candidates[choice])} ({times}x)"
            if one["tuning_diverged"]:
                text += f"; {one['tuning_diverged']} trial runs diverged"
            cells.append(text)
        rows.append(cells)
    return "The most frequent choice over splits.\n\n" + table(["", *datasets], rows)


def _uncapped(found: Mapping[str, Any]) -> str:
    rows = []
    for k, lam in enumerate(found["lambdas"]):
        cells = [f"{lam:g}"]
        for name in ("capped", "uncapped"):
            short = summary(found[name]["validation_nll"][k])
            cells += [number(short["median"]), str(found[name]["diverged"][k])]
        rows.append(cells)
    header = ["lambda", "capped: median NLL", "not finite", "uncapped: median NLL", "not finite"]
    return (
        f"RCAD (alpha {found['alpha']:g}) on inner validation rows of {found['dataset']}. Without a cap the reward for "
        "variance has no end, so the likelihood is lost long before a number overflows. A study that asks for "
        "cap=None with lambda >= 0.9 is stopped; this table asks for it on purpose.\n\n" + table(header, rows)
    )
