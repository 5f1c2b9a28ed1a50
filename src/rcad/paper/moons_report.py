"""The pages of T8 and F7, from their records alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rcad.paper.claims import FOR_A_CONTROL, Claim
from rcad.paper.moons_claims import LABELS, OTHER_NOISE, SEEN_BEFORE, printed
from rcad.paper.pages import judged_part, made_by, number, numbers_text, table
from rcad.study.statistics import interval_half, summary

Record = dict[str, Any]


def markdown(record: Record, claims: list[Claim]) -> str:
    """Claims, the table beside the published one, FGSM's step, choices, the study over n, the weights."""
    results, settings = record["results"], record["settings"]
    cells, protocol = results["cells"], settings["protocol"]
    budget = len(settings["arms"]["erm"]["candidates"])
    parts = [
        "# T8: two moons among noise dimensions",
        made_by(record, "moons"),
        f"A perceptron {tuple(protocol['hidden'])} with ReLU, SGD at {protocol['lr']:g} with momentum "
        f"{protocol['momentum']:g}, batches of {protocol['batch_size']}, {protocol['epochs']} epochs, n = "
        f"{settings['n']} (the paper's 20,000 are in the study over n). Every method chose "
        f"among {budget} configurations by {settings['n_validation']} validation examples of one draw, then met "
        f"{settings['seeds']} fresh draws with {settings['n_test']} test examples each. ERM's configurations are when "
        "to stop; 'ERM, last epoch' and 'FGSM linf, alpha 0.03' do not choose. Accuracy in percent ± half the 95% "
        "interval over draws. Where noise is on the d-2 others, only ERM, RCAD and the random direction were run. "
        f"{SEEN_BEFORE}",
        *judged_part("T8", claims, 1, "points"),
        f"{FOR_A_CONTROL} {OTHER_NOISE} Draws are independent: the ordinary paired t-test.",
        "![accuracies](moons.png)",
        "## Mean test accuracy, with the published number",
        _main_table(cells),
        "## Test NLL: mean (median)",
        _nll_table(cells),
        _impossible(cells),
        "## Validation accuracy by FGSM's step",
        _fgsm(cells, settings),
        "## What was chosen",
        _choices(cells, settings),
        "## Accuracy by the number of examples",
        _sweep(record),
        "## Weights on true and noise dimensions",
        _ratio(results["weight_ratio"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def boundaries_markdown(record: Record, claims: list[Claim]) -> str:
    """The numbers that go with the picture."""
    results, settings = record["results"], record["settings"]
    cell = settings["cell"]
    rows = [
        [
            LABELS[panel["method"]],
            str(panel["epoch"]),
            *(_spread(panel[name]) for name in ("validation_accuracy", "arc_accuracy")),
        ]
        for panel in results["panels"]
    ]
    parts = [
        "# F7: decision boundaries in the plane of the true features",
        made_by(record, "boundaries"),
        f"d = {cell['d']}, sigma = {cell['sigma']:g}, n = {settings['n']}; the other dimensions at 0; "
        f"{settings['draws']} draws, of which the first is shown (mean ± half the 95% interval). "
        f"RCAD with {numbers_text(results['chosen'])}, chosen on a draw of its own. The last "
        "column is the share of the half circles themselves, without any noise, that the boundary gives to the right "
        "class: whether it follows the moons.",
        table(["", "epoch", "accuracy on noisy validation examples", "on the half circles"], rows),
        *judged_part("F7", claims, 1, "points"),
        "![boundaries](boundaries.png)",
    ]
    return "\n\n".join(parts) + "\n"


def _spread(values: list[float]) -> str:
    return f"{number(float(np.mean(values)), 1)} ± {interval_half(values):.1f}"


def _main_table(cells: Mapping[str, Any]) -> str:
    rows = []
    for method, label in LABELS.items():
        rows.append([label, *(_accuracy(cell, method) for cell in cells.values())])
    bayes = ["Bayes, the best possible", *(number(cell["bayes"], 1) for cell in cells.values())]
    return table(["", *cells], [*rows, bayes])


def _accuracy(cell: Mapping[str, Any], method: str) -> str:
    if method not in cell["methods"]:
        return ""
    values = cell["methods"][method]["accuracy"]
    short = summary(values)
    if short["diverged"]:
        return f"{number(short['mean'], 1)} ({short['diverged']} of {short['runs']} diverged)"
    text = f"{number(short['mean'], 1)} ± {interval_half(values):.1f}"
    paper = (printed(cell) or {}).get(method)
    return text if paper is None else f"{text} (paper {paper:.1f})"


def _nll_table(cells: Mapping[str, Any]) -> str:
    rows = []
    for method, label in LABELS.items():
        found = [cell["methods"].get(method) for cell in cells.values()]
        rows.append([label, *("" if one is None else _nll(one["nll"]) for one in found)])
    return table(["", *cells], rows)


def _nll(values: list[float]) -> str:
    short = summary(values)
    return f"{number(short['mean'], 3)} ({number(short['median'], 3)})"


def _impossible(cells: Mapping[str, Any]) -> str:
    found = []
    for name, cell in cells.items():
        above = [f"{LABELS[m]} {v:.1f}" for m, v in (printed(cell) or {}).items() if v > cell["bayes"]]
        if above:
            found.append(f"{name}: {', '.join(above)}, while no classifier exceeds {cell['bayes']:.1f}")
    if not found:
        return ""
    return (
        "**Printed accuracies above the best possible**, if the noise is on all dimensions and the moons have radius "
        f"1: {'; '.join(found)}. The paper's noise, or its unit, must be another."
    )


def _fgsm(cells: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    blocks = []
    for method in ("fgsm_linf", "fgsm_l2"):
        steps = [one["alpha"] for one in settings["arms"][method]["candidates"]]
        rows = [
            [name, *(number(value, 1) for value in cell["methods"][method]["validation"])]
            for name, cell in cells.items()
            if method in cell["methods"]
        ]
        blocks.append(table([f"{LABELS[method]}, alpha", *(f"{step:g}" for step in steps)], rows))
    return "\n\n".join(blocks)


def _choices(cells: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    rows = []
    for method, arm in settings["arms"].items():
        found = [cell["methods"].get(method) for cell in cells.values()]
        texts = ["" if one is None else numbers_text(arm["candidates"][one["chosen"]]) for one in found]
        rows.append([LABELS[method], *texts])
    return table(["", *cells], rows)


def _sweep(record: Record) -> str:
    rows, names = record["results"]["sweep"], None
    lines = []
    for row in rows:
        names = names or list(row["accuracy"])
        means = [number(summary(row["accuracy"][name])["mean"], 1) for name in names]
        lines.append([f"{row['n']:,}", str(row["draws"]), str(row["epochs"]), *means])
    text = (
        "The first distribution; RCAD and the random direction as chosen at "
        f"n = {record['settings']['n']}, ERM at its last epoch. Fewer draws and epochs for large n."
    )
    return f"{text}\n\n{table(['n', 'draws', 'epochs', *(LABELS[name] for name in names or [])], lines)}"


def _ratio(found: Mapping[str, Any]) -> str:
    names = [name for name in found if name != "epochs"]
    rows = [
        [str(epoch), *(number(float(np.mean(found[name], axis=0)[k])) for name in names)]
        for k, epoch in enumerate(found["epochs"])
    ]
    text = (
        "Root mean square of the first layer's weights on the two true dimensions, divided by that on the noise "
        "dimensions; mean over draws of the first distribution."
    )
    return f"{text}\n\n{table(['epoch', *(LABELS[name] for name in names)], rows)}"
