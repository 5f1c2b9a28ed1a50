"""The figures of an evaluation, from its summary alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rcad.evaluate.saved_run.tables import evaluations
from rcad.report.document import Figure
from rcad.report.drawing import blank, inline

Group = Mapping[str, Any]
# Okabe and Ito's colours, which stay apart for colour-blind readers; black is ERM's.
BLACK, GREY = "#000000", "#666666"
OTHERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
WIDTH, HEIGHT = 4.0, 3.4
FEWEST = 5
"""A bin with fewer examples says nothing about reliability and is not drawn."""


def colours(groups: Sequence[Group]) -> dict[str, str]:
    """One colour per group, the same in every figure of a page."""
    plain = next((group["name"] for group in groups if group["is_erm"]), None)
    others = [group["name"] for group in groups if group["name"] != plain]
    return {name: OTHERS[k % len(OTHERS)] for k, name in enumerate(others)} | ({plain: BLACK} if plain else {})


def figures(groups: Sequence[Group], suite: str) -> list[Figure]:
    """A suite's figures for methods on one data set; none where no run has it."""
    held = [group for group in groups if evaluations(group, suite)]
    if not held:
        return []
    paint = colours(groups)
    if suite == "calibration":
        classes, values = ([g for g in held if bool(g["classes"]) == kind] for kind in (True, False))
        found = [_reliability(classes, paint), _risk(classes, paint)] if classes else []
        return found + ([_intervals(values, paint)] if values else [])
    if suite == "attacks":
        return [_attacks(held, paint)]
    if suite == "corruptions":
        return [_bars(held, paint), _severities(held, paint)]
    sets = list(dict.fromkeys(n for g in held for e in evaluations(g, "ood") for n in e["curves"]["foreign"]))
    return [_alpha(held, paint), *(one for n in sets for one in (_roc(held, n, paint), _entropies(held, n, paint)))]


def _reliability(groups: Sequence[Group], paint: Mapping[str, str]) -> Figure:
    figure, ax = _axes()
    ax.plot([0, 1], [0, 1], color=GREY, lw=0.9, ls=(0, (1, 2)))
    for group in groups:
        for key, style in (("reliability", "-"), ("reliability_scaled", "--")):
            curves = [e["curves"][key] for e in evaluations(group, "calibration") if key in e["curves"]]
            if not curves:
                continue
            confidence, accuracy, share = pooled(curves)
            name = group["name"] if style == "-" else None
            colour = paint[group["name"]]
            ax.plot(confidence, accuracy, style, color=colour, lw=1.4, label=name, alpha=1 if name else 0.6)
            if name:
                ax.scatter(confidence, accuracy, s=8 + 120 * share, color=colour, alpha=0.6, lw=0)
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    return Figure(
        _done(figure, ax),
        "Reliability: on the dotted line a model is right as often as it says. Bins of all seeds together, larger "
        f"dots hold more examples, bins with fewer than {FEWEST} are left out; dashed: after temperature scaling.",
        "Accuracy against confidence, in bins, for each method; the errors are in the table.",
    )


def pooled(curves: Sequence[Mapping[str, Any]]) -> tuple[Any, Any, Any]:
    """Confidence, accuracy and share of examples by bin, over all seeds; bins are told by their lower edge."""
    sums: dict[float, Any] = {}
    for curve in curves:
        for lower, count, confidence, accuracy in zip(
            curve["lower"], curve["count"], curve["confidence"], curve["accuracy"], strict=True
        ):
            sums[lower] = sums.get(lower, np.zeros(3)) + count * np.asarray([confidence, accuracy, 1.0])
    rows = np.asarray([sums[lower] for lower in sorted(sums)])
    share = rows[:, 2] / rows[:, 2].sum()
    enough = rows[:, 2] >= min(FEWEST, rows[:, 2].max())
    return (rows[:, 0] / rows[:, 2])[enough], (rows[:, 1] / rows[:, 2])[enough], share[enough]


def _risk(groups: Sequence[Group], paint: Mapping[str, str]) -> Figure:
    figure, ax = _axes()
    at = np.linspace(0.01, 1, 100)
    for group in groups:
        curves = [e["curves"]["risk_coverage"] for e in evaluations(group, "calibration")]
        mean = np.mean([np.interp(at, c["coverage"], c["risk"]) for c in curves], 0)
        ax.plot(100 * at, 100 * mean, color=paint[group["name"]], lw=1.8, label=group["name"])
    ax.set(xlim=(0, 100), ylim=(0, None), xlabel="coverage, % of examples, surest first", ylabel="errors among them, %")
    text = "Risk against coverage, mean over seeds: how many errors are left when the least confident are handed on."
    return Figure(_done(figure, ax), text, "Errors against coverage for each method; the areas are in the table.")


def _intervals(groups: Sequence[Group], paint: Mapping[str, str]) -> Figure:
    figure, ax = _axes()
    ax.plot([0, 100], [0, 100], color=GREY, lw=0.9, ls=(0, (1, 2)))
    for group in groups:
        curves = [e["curves"]["intervals"] for e in evaluations(group, "calibration")]
        mean = np.mean([curve["coverage"] for curve in curves], 0)
        level = 100 * np.asarray(curves[0]["level"])
        ax.plot(level, 100 * mean, color=paint[group["name"]], lw=1.8, label=group["name"])
    ax.set(xlim=(0, 100), ylim=(0, 100), xlabel="level of the interval, %", ylabel="targets inside, %")
    text = "How often the central interval of each level holds the target, mean over seeds; above the dots is too wide."
    return Figure(_done(figure, ax), text, "Targets inside against the interval's level for each method.")


def _attacks(groups: Sequence[Group], paint: Mapping[str, str]) -> Figure:
    figure, ax = _axes(5.4)
    for group in groups:
        found = evaluations(group, "attacks")
        colour = paint[group["name"]]
        for key, style in (("worst", "-"), ("fgsm", "--")):
            rows = [_curve(e, key) for e in found if key in e["curves"]["accuracy"]]
            if not rows:
                continue
            eps = rows[0][0]
            label = group["name"] if style == "-" else None
            ax.plot(eps, np.mean([row[1] for row in rows], 0), style, color=colour, lw=1.6, label=label)
            if label and len(rows) > 1:
                for row in rows:
                    ax.scatter(row[0], row[1], s=9, color=colour, alpha=0.5, lw=0, zorder=3)
    ax.set(xlim=(0, None), xlabel="radius, l-infinity", ylabel="accuracy, %")
    return Figure(
        _done(figure, ax),
        "Accuracy against the attack's radius: the worst case over all attacks (solid), FGSM alone (dashed); dots are "
        "seeds.",
        "Accuracy under attack falls with the radius, for each method; the numbers are in the table.",
    )


def _curve(evaluation: Mapping[str, Any], attack: str) -> tuple[list[float], list[float]]:
    """Accuracy by ascending radius, from the clean one on."""
    pairs = sorted(zip(evaluation["curves"]["eps"], evaluation["curves"]["accuracy"][attack], strict=True))
    pairs = [(0.0, evaluation["numbers"]["attacked_accuracy_clean"]), *pairs]
    return [p[0] for p in pairs], [p[1] for p in pairs]


def _bars(groups: Sequence[Group], paint: Mapping[str, str]) -> Figure:
    names = list(dict.fromkeys(n for g in groups for e in evaluations(g, "corruptions") for n in e["curves"]["scores"]))
    figure = blank(WIDTH, 0.9 + 0.36 * len(names) + 0.12 * len(names) * (len(groups) - 1))
    ax = figure.subplots()
    thick = 0.8 / len(groups)
    for k, group in enumerate(groups):
        values = [
            [e["numbers"].get(f"corrupted_accuracy_{n}") for e in evaluations(group, "corruptions")] for n in names
        ]
        known = [[v for v in row if v is not None] for row in values]
        at = np.arange(len(names)) + (k - (len(groups) - 1) / 2) * thick
        means = [np.mean(row) if row else 0.0 for row in known]
        ax.barh(at, means, thick * 0.9, color=paint[group["name"]], alpha=0.55, label=group["name"], lw=0)
        if max(map(len, known)) > 1:
            for y, row in zip(at, known, strict=True):
                ax.scatter(row, [y] * len(row), s=7, color=paint[group["name"]], zorder=3, lw=0)
    ax.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    ax.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 100), xlabel="accuracy, %, mean over severities")
    kinds = sorted({e["curves"]["provenance"] for g in groups for e in evaluations(g, "corruptions")})
    text = f"Accuracy by corruption ({' and '.join(kinds)} images), mean over seeds; dots are seeds."
    told = ", ".join(f"{g['name']} {g['numbers']['corrupted_accuracy_mean']['mean']:.1f}%" for g in groups)
    return Figure(_done(figure, ax), text, f"Bars of accuracy by corruption and method; means: {told}.")


def _severities(groups: Sequence[Group], paint: Mapping[str, str]) -> Figure:
    figure, ax = _axes()
    for group in groups:
        found = evaluations(group, "corruptions")
        levels = found[0]["curves"]["severities"]
        names = ["corrupted_accuracy_clean", *(f"corrupted_accuracy_severity_{level}" for level in levels)]
        rows = [[e["numbers"][name] for name in names] for e in found]
        colour = paint[group["name"]]
        ax.plot([0, *levels], np.mean(rows, 0), color=colour, lw=1.8, label=group["name"])
        for row in rows if len(rows) > 1 else ():
            ax.scatter([0, *levels], row, s=9, color=colour, alpha=0.5, lw=0, zorder=3)
    ax.set(xlabel="severity (0: no corruption)", ylabel="accuracy, %")
    text = "Accuracy by severity, mean over the corruptions and seeds; dots are seeds."
    return Figure(_done(figure, ax), text, "Accuracy against severity for each method; the ends are in the table.")


def _alpha(groups: Sequence[Group], paint: Mapping[str, str]) -> Figure:
    figure, ax = _axes()
    ticks: list[float] = []
    for group in groups:
        for direction, style in (("adversarial", "-"), ("random", "--")):
            curves = [e["curves"]["alpha"][direction] for e in evaluations(group, "ood")]
            ticks = curves[0]["alphas"]
            at, mean = range(len(ticks)), np.mean([curve["entropy"] for curve in curves], 0)
            name = group["name"] if style == "-" else None
            ax.plot(at, mean, style, color=paint[group["name"]], lw=1.8 if name else 1.3, label=name)
            if name and len(groups) <= 2:
                low, high = (np.mean([[q[k] for q in c["quantiles"]] for c in curves], 0) for k in (0, -1))
                ax.fill_between(at, low, high, color=paint[group["name"]], alpha=0.12, lw=0)
    ax.set_xticks(range(len(ticks)), [f"{tick:g}" for tick in ticks], fontsize=8)
    ax.set(xlabel="alpha, L2 distance in the units of the input", ylabel="mean entropy, nats")
    band = " Shaded: from the 10th to the 90th percentile of examples." if len(groups) <= 2 else ""
    text = (
        "What RCAD does: how unsure a model is after one step of length alpha, up its own loss (solid) and in a random "
        f"direction (dashed); mean over seeds.{band}"
    )
    return Figure(_done(figure, ax), text, "Entropy against alpha, along adversarial and random directions.")


def _roc(groups: Sequence[Group], name: str, paint: Mapping[str, str]) -> Figure:
    figure, ax = _axes()
    ax.plot([0, 1], [0, 1], color=GREY, lw=0.9, ls=(0, (1, 2)))
    at = np.linspace(0, 1, 101)
    for group in groups:
        curves = [e["curves"]["foreign"][name]["roc"] for e in evaluations(group, "ood")]
        mean = np.mean([np.interp(at, c["foreign"], c["known"]) for c in curves], 0)
        ax.plot(at, mean, color=paint[group["name"]], lw=1.8, label=group["name"])
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="foreign examples accepted", ylabel="known examples accepted")
    text = f"Known test examples against {_said(name)}: accepted by low entropy, at every threshold; mean over seeds."
    return Figure(_done(figure, ax), text, f"ROC curves against {_said(name)}; the areas are in the table.")


def _entropies(groups: Sequence[Group], name: str, paint: Mapping[str, str]) -> Figure:
    figure = blank(WIDTH, 0.7 + 1.15 * len(groups))
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True)[:, 0]
    for ax, group in zip(panels, groups, strict=True):
        pictures = [e["curves"]["foreign"][name]["histogram"] for e in evaluations(group, "ood")]
        # The bins of a real target differ between seeds; then the first one is shown.
        same = [one for one in pictures if one["edges"] == pictures[0]["edges"]]
        edges = pictures[0]["edges"]
        known, foreign = (100 * np.mean([one[key] for one in same], 0) for key in ("known", "foreign"))
        ax.stairs(known, edges, fill=True, color=paint[group["name"]], alpha=0.45, label="known")
        ax.stairs(foreign, edges, color=GREY, lw=1.6, label="foreign")
        ax.set_title(group["name"], fontsize=9, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_ylabel("%", fontsize=8)
    panels[0].legend(fontsize=8, frameon=False)
    panels[-1].set_xlabel("predictive entropy, nats")
    text = f"Entropy of known test examples (filled) and of {_said(name)} (line), in percent of each."
    return Figure(inline(figure), text, f"Histograms of entropy on known examples and on {_said(name)}, by method.")


def _said(name: str) -> str:
    return {"noise": "noise", "perturbed": "their own adversarial examples (RCAD's)"}.get(name, name)


def _axes(width: float = WIDTH) -> tuple[Any, Any]:
    figure = blank(width, HEIGHT)
    return figure, figure.subplots()


def _done(figure: Any, ax: Any) -> str:
    ax.spines[["top", "right"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    short = [text if len(text) <= 34 else f"{text[:33]}…" for text in labels]
    figure.legend(handles, short, loc="outside upper center", ncols=2 if max(map(len, short)) <= 18 else 1, **_LEGEND)
    return inline(figure)


_LEGEND: dict[str, Any] = {"fontsize": 8.5, "frameon": False}
