"""An evaluation as a document, from its summary alone: each suite's tables and figures, then what differs from ERM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rcad.evaluate.saved_run.tables import (
    Group,
    Summary,
    comparison_notes,
    differences,
    evaluations,
    foreign_sets,
    notes,
    provenances,
    tables,
)
from rcad.report.document import Document, Figure, Part, Section, Table
from rcad.report.drawing import BLACK, GREY, axes, colours_of, grid, label
from rcad.report.numbers import named_values
from rcad.runs.words import plural

WIDTH, HEIGHT = 4.0, 3.4
FEWEST = 5
"""A bin with fewer examples says nothing about reliability and is not drawn."""
NAMED = 4
"""Runs that the command of a page names; the page lists them all."""
LONGEST = 34
"""Letters of a method's name in a legend."""
Colours = Mapping[str, str]
TITLES = {
    "calibration": "Calibration",
    "attacks": "Attacks",
    "corruptions": "Corruptions",
    "ood": "Out of distribution",
}
ABOUT = {
    "calibration": "Does a model that says 80% get 80% right? NLL and Brier score judge probabilities as a whole, ECE "
    "how far confidence and accuracy are apart, AURC whether errors come with doubt. What one temperature corrects is "
    "a matter of scale; what stays better after it is more than that. Conformal sets hold the answer as often as they "
    "promise, whatever the model, as long as the data stay the same: a better model has smaller ones.",
    "attacks": "Small changes made to mislead, within a radius for every pixel. An attacked accuracy is an upper "
    "bound: a stronger attack may find more. The checks look for gradients that only hide the way.",
    "corruptions": "Fifteen kinds of damage at five severities: noise, blur, weather, digital. Generated images are "
    "made here from the clean ones; published ones are the files of Hendrycks and Dietterich (2019). Numbers of the "
    "two kinds must not be compared. mCE is the error in percent of that of the ERM run of the same seed: below 100 is "
    "better.",
    "ood": "Can a model tell its own kind of examples from others? And how does its doubt grow along the directions "
    "that RCAD trains on?",
}


def document(summary: Summary, *, brief: bool = False) -> Document:
    """All that an evaluation says; `brief`: the tables and their notes alone, as a terminal shows them."""
    groups, suites = summary["groups"], summary["suites"]
    sections = [_section(summary, suite, brief=brief) for suite in suites]
    gains, sentences = differences(groups, suites), comparison_notes(summary)
    if gains is not None or sentences or not brief:
        nothing = ["There is nothing to compare: only ERM runs were given."]
        sections.append(Section("Against ERM", sentences or nothing, [] if gains is None else [gains]))
    if not brief:
        left_out = [f"Left out: {run['run']}: {run['why']}" for run in summary["left_out"]]
        sections.append(Section("The runs", left_out, [_runs(summary)]))
    runs = [run for group in groups for run in group["runs"]]
    limit = summary["settings"][suites[0]]["limit"]
    command = ["rcad evaluate", *runs[:NAMED], *["..."][: len(runs) > NAMED], "--suite", ",".join(suites)]
    command += [] if limit is None else ["--limit", str(limit)]
    titles = ", ".join(TITLES[suite].lower() for suite in suites)
    lead = f"Finished runs, evaluated beyond accuracy: {titles}. {plural(len(runs), 'run')}; lower is better for every "
    devices = sorted({e["device"] for g in groups for by_suite in g["evaluations"] for e in by_suite.values()})
    facts = {
        "Made by": " ".join(command),
        "Device": ", ".join(devices),
        "Versions": named_values(summary["versions"]),
        "Numbers": "evaluation.json beside this page; a record per run and suite in the runs' own folders",
    }
    return Document("Evaluation", f"{lead}error.", sections, facts)


def _section(summary: Summary, suite: str, *, brief: bool) -> Section:
    groups = summary["groups"]
    parts: list[Part] = [*tables(groups, suite)]
    if brief:
        return Section(TITLES[suite], notes(summary, suite), parts)
    # Methods are compared on one data set: lines from several in one figure would say nothing.
    sets = list(dict.fromkeys((group["data"], bool(group["classes"])) for group in groups))
    for data in sets:
        own = figures([group for group in groups if (group["data"], bool(group["classes"])) == data], suite)
        parts += [
            replace(figure, caption=f"{data[0]}: {figure.caption}") if len(sets) > 1 else figure for figure in own
        ]
    return Section(TITLES[suite], [ABOUT[suite], *notes(summary, suite)], parts)


def _runs(summary: Summary) -> Table:
    rows = []
    for group in summary["groups"]:
        for run, seed, by_suite in zip(group["runs"], group["seeds"], group["evaluations"], strict=True):
            seconds = sum(e["seconds"] for e in by_suite.values())
            rows.append([run, group["data"], group["name"], str(seed), f"{seconds:.1f}"])
    return Table(["run", "data", "method", "seed", "seconds"], rows, "Every run and how long its suites took.")


def colours(groups: Sequence[Group]) -> dict[str, str]:
    """One colour per group, the same in every figure of a page; black is for one ERM."""
    erm = next((group["name"] for group in groups if group["is_erm"]), None)
    return colours_of([group["name"] for group in groups if group["name"] != erm]) | ({erm: BLACK} if erm else {})


def figures(groups: Sequence[Group], suite: str) -> list[Figure]:
    """A suite's figures for methods on one data set; none where no run has it."""
    held = [group for group in groups if evaluations(group, suite)]
    if not held:
        return []
    paint = colours(groups)
    if suite == "calibration":
        classes, values = ([g for g in held if bool(g["classes"]) == kind] for kind in (True, False))
        of_classes = [_reliability(classes, paint), _risk(classes, paint)] if classes else []
        return of_classes + ([_intervals(values, paint)] if values else [])
    if suite == "attacks":
        return [_attacks(held, paint)]
    if suite == "corruptions":
        return [_bars(held, paint), _severities(held, paint)]
    by_set = [drawn(held, name, paint) for name in foreign_sets(held) for drawn in (_roc, _entropies)]
    return [_alpha(held, paint), *by_set]


def _reliability(groups: Sequence[Group], paint: Colours) -> Figure:
    figure, ax = _axes(diagonal=1)
    for group in groups:
        colour = paint[group["name"]]
        for key, style in (("reliability", "-"), ("reliability_scaled", "--")):
            curves = [e["curves"][key] for e in evaluations(group, "calibration") if key in e["curves"]]
            if not curves:
                continue
            confidence, accuracy, share = pooled(curves)
            name = group["name"] if style == "-" else None
            ax.plot(confidence, accuracy, style, color=colour, lw=1.4, label=name, alpha=1 if name else 0.6)
            if name:
                ax.scatter(confidence, accuracy, s=8 + 120 * share, color=colour, alpha=0.6, lw=0)
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    return Figure(
        _with_legend(figure, ax),
        "Reliability: on the dotted line a model is right as often as it says. Bins of all seeds together, larger "
        f"dots hold more examples, bins with fewer than {FEWEST} are left out; dashed: after temperature scaling.",
        "Accuracy against confidence, in bins, for each method; the errors are in the table.",
    )


def pooled(curves: Sequence[Mapping[str, Any]]) -> tuple[Any, Any, Any]:
    """Confidence, accuracy and share of examples by bin, over all seeds; bins are told by their lower edge."""
    sums: dict[float, Any] = {}
    for curve in curves:
        columns = (curve[name] for name in ("lower", "count", "confidence", "accuracy"))
        for lower, count, confidence, accuracy in zip(*columns, strict=True):
            sums[lower] = sums.get(lower, np.zeros(3)) + count * np.asarray([confidence, accuracy, 1.0])
    confidence, accuracy, count = np.asarray([sums[lower] for lower in sorted(sums)]).T
    enough = count >= min(FEWEST, count.max())
    return (confidence / count)[enough], (accuracy / count)[enough], (count / count.sum())[enough]


def _risk(groups: Sequence[Group], paint: Colours) -> Figure:
    figure, ax = _axes()
    at = np.linspace(0.01, 1, 100)
    for group in groups:
        curves = [e["curves"]["risk_coverage"] for e in evaluations(group, "calibration")]
        _line(ax, group, paint, 100 * at, [100 * np.interp(at, c["coverage"], c["risk"]) for c in curves])
    ax.set(xlim=(0, 100), ylim=(0, None), xlabel="coverage, % of examples, surest first", ylabel="errors among them, %")
    text = "Risk against coverage, mean over seeds: how many errors are left when the least confident are handed on."
    alt = "Errors against coverage for each method; the areas are in the table."
    return Figure(_with_legend(figure, ax), text, alt)


def _intervals(groups: Sequence[Group], paint: Colours) -> Figure:
    figure, ax = _axes(diagonal=100)
    for group in groups:
        curves = [e["curves"]["intervals"] for e in evaluations(group, "calibration")]
        levels, shares = 100 * np.asarray(curves[0]["level"]), [100 * np.asarray(c["coverage"]) for c in curves]
        _line(ax, group, paint, levels, shares)
    ax.set(xlim=(0, 100), ylim=(0, 100), xlabel="level of the interval, %", ylabel="targets inside, %")
    text = "How often the central interval of each level holds the target, mean over seeds; above the dots is too wide."
    alt = "Targets inside against the interval's level for each method."
    return Figure(_with_legend(figure, ax), text, alt)


def _attacks(groups: Sequence[Group], paint: Colours) -> Figure:
    figure, ax = _axes(5.4)
    for group in groups:
        records = evaluations(group, "attacks")
        for key, style in (("worst", "-"), ("fgsm", "--")):
            rows = [_by_radius(e, key) for e in records if key in e["curves"]["accuracy"]]
            if rows:
                _line(ax, group, paint, rows[0][0], [row[1] for row in rows], style, dots=style == "-")
    ax.set(xlim=(0, None), xlabel="radius, l-infinity", ylabel="accuracy, %")
    return Figure(
        _with_legend(figure, ax),
        "Accuracy against the attack's radius: the worst case over all attacks (solid), FGSM alone (dashed); dots are "
        "seeds.",
        "Accuracy under attack falls with the radius, for each method; the numbers are in the table.",
    )


def _by_radius(record: Mapping[str, Any], attack: str) -> tuple[list[float], list[float]]:
    """Radii in ascending order, from 0 on, and the accuracy at each."""
    pairs = sorted(zip(record["curves"]["eps"], record["curves"]["accuracy"][attack], strict=True))
    eps, accuracy = zip((0.0, record["numbers"]["attacked_accuracy_clean"]), *pairs, strict=True)
    return list(eps), list(accuracy)


def _bars(groups: Sequence[Group], paint: Colours) -> Figure:
    names = list(dict.fromkeys(n for g in groups for e in evaluations(g, "corruptions") for n in e["curves"]["scores"]))
    figure, ax = axes(WIDTH, 0.9 + 0.36 * len(names) + 0.12 * len(names) * (len(groups) - 1))
    thick = 0.8 / len(groups)
    for k, group in enumerate(groups):
        records = evaluations(group, "corruptions")
        values = [[e["numbers"].get(f"corrupted_accuracy_{name}") for e in records] for name in names]
        finite = [[v for v in row if v is not None] for row in values]
        at = np.arange(len(names)) + (k - (len(groups) - 1) / 2) * thick
        means = [np.mean(row) if row else 0.0 for row in finite]
        ax.barh(at, means, thick * 0.9, color=paint[group["name"]], alpha=0.55, label=group["name"], lw=0)
        for y, row in zip(at, finite, strict=True) if len(records) > 1 else ():
            ax.scatter(row, [y] * len(row), s=7, color=paint[group["name"]], zorder=3, lw=0)
    ax.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    ax.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 100), xlabel="accuracy, %, mean over severities")
    text = f"Accuracy by corruption ({provenances(groups)} images), mean over seeds; dots are seeds."
    overall = ", ".join(f"{g['name']} {g['numbers']['corrupted_accuracy_mean']['mean']:.1f}%" for g in groups)
    return Figure(_with_legend(figure, ax), text, f"Bars of accuracy by corruption and method; means: {overall}.")


def _severities(groups: Sequence[Group], paint: Colours) -> Figure:
    figure, ax = _axes()
    for group in groups:
        records = evaluations(group, "corruptions")
        levels = records[0]["curves"]["severities"]
        names = ["corrupted_accuracy_clean", *(f"corrupted_accuracy_severity_{level}" for level in levels)]
        _line(ax, group, paint, [0, *levels], [[e["numbers"][name] for name in names] for e in records], dots=True)
    ax.set(xlabel="severity (0: no corruption)", ylabel="accuracy, %")
    text = "Accuracy by severity, mean over the corruptions and seeds; dots are seeds."
    alt = "Accuracy against severity for each method; the ends are in the table."
    return Figure(_with_legend(figure, ax), text, alt)


def _alpha(groups: Sequence[Group], paint: Colours) -> Figure:
    figure, ax = _axes()
    ticks: list[float] = []
    for group in groups:
        for direction, style in (("adversarial", "-"), ("random", "--")):
            curves = [e["curves"]["alpha"][direction] for e in evaluations(group, "ood")]
            ticks = curves[0]["alphas"]
            _line(ax, group, paint, range(len(ticks)), [curve["entropy"] for curve in curves], style)
            if style == "-" and len(groups) <= 2:
                low, high = (np.mean([[q[k] for q in c["quantiles"]] for c in curves], 0) for k in (0, -1))
                ax.fill_between(range(len(ticks)), low, high, color=paint[group["name"]], alpha=0.12, lw=0)
    ax.set_xticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
    ax.set(xlabel="alpha, L2 distance in the units of the input", ylabel="mean entropy, nats")
    band = " Shaded: from the 10th to the 90th percentile of examples." if len(groups) <= 2 else ""
    text = (
        "What RCAD does: how unsure a model is after one step of length alpha, up its own loss (solid) and in a random "
        f"direction (dashed); mean over seeds.{band}"
    )
    return Figure(_with_legend(figure, ax), text, "Entropy against alpha, along adversarial and random directions.")


def _roc(groups: Sequence[Group], name: str, paint: Colours) -> Figure:
    figure, ax = _axes(diagonal=1)
    at = np.linspace(0, 1, 101)
    for group in groups:
        curves = [e["curves"]["foreign"][name]["roc"] for e in evaluations(group, "ood")]
        _line(ax, group, paint, at, [np.interp(at, c["foreign"], c["known"]) for c in curves])
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="OOD examples accepted", ylabel="test examples accepted")
    text = f"Test examples against {_in_words(name)}: accepted by low entropy, at every threshold; mean over seeds."
    alt = f"ROC curves against {_in_words(name)}; the areas are in the table."
    return Figure(_with_legend(figure, ax), text, alt)


def _entropies(groups: Sequence[Group], name: str, paint: Colours) -> Figure:
    figure, panels = grid(WIDTH, 0.7 + 1.15 * len(groups), len(groups), 1, sharex=True)
    for ax, group in zip(panels.flat, groups, strict=True):
        histograms = [e["curves"]["foreign"][name]["histogram"] for e in evaluations(group, "ood")]
        # The bins of a regression target differ between seeds; then the first one is shown.
        edges = histograms[0]["edges"]
        same = [histogram for histogram in histograms if histogram["edges"] == edges]
        known, foreign = (100 * np.mean([histogram[key] for histogram in same], 0) for key in ("known", "foreign"))
        ax.stairs(known, edges, fill=True, color=paint[group["name"]], alpha=0.45, label="known")
        ax.stairs(foreign, edges, color=GREY, lw=1.6, label="OOD")
        ax.set_title(label(group["name"], 2 * LONGEST, 1), fontsize=9, loc="left")
        ax.set_ylabel("%", fontsize=8)
    panels.flat[0].legend(fontsize=8, frameon=False)
    panels.flat[-1].set_xlabel("predictive entropy, nats")
    text = f"Entropy of test examples (filled) and of {_in_words(name)} (line), in percent of each."
    return Figure(figure, text, f"Histograms of entropy on test examples and on {_in_words(name)}, by method.")


def _in_words(name: str) -> str:
    return "their own adversarial examples (RCAD's)" if name == "perturbed" else name


def _axes(width: float = WIDTH, diagonal: float = 0) -> tuple[Any, Any]:
    """A figure and its axes; `diagonal` draws a dotted line of reference up to there."""
    figure, ax = axes(width, HEIGHT)
    if diagonal:
        ax.plot([0, diagonal], [0, diagonal], color=GREY, lw=0.9, ls=(0, (1, 2)))
    return figure, ax


def _line(
    ax: Any, group: Group, paint: Colours, x: Any, seeds: Sequence[Any], style: str = "-", dots: bool = False
) -> None:
    """The mean over seeds, named in the legend where it is solid; `dots` shows the seeds where there are several."""
    colour, solid = paint[group["name"]], style == "-"
    ax.plot(x, np.mean(seeds, 0), style, color=colour, lw=1.8 if solid else 1.3, label=group["name"] if solid else None)
    for y in seeds if dots and len(seeds) > 1 else ():
        ax.scatter(x, y, s=9, color=colour, alpha=0.5, lw=0, zorder=3)


def _with_legend(figure: Any, ax: Any) -> Any:
    handles, labels = ax.get_legend_handles_labels()
    short = [label(text, LONGEST, 1) for text in labels]
    columns = 2 if max(map(len, short)) <= 18 else 1
    figure.legend(handles, short, loc="outside upper center", ncols=columns, fontsize=8.5, frameon=False)
    return figure
