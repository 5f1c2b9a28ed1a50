"""The demo as a document, from its record alone; and the rows of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcad.demo.acts import ACTS, TRIAL
from rcad.report.document import Command, Document, Figure, Part, Section, Table
from rcad.report.drawing import BLACK, BLUE, GREEN, bare, blank, legend
from rcad.report.numbers import listed, with_interval, with_spread
from rcad.study.compare_page import difference_tables, results_table
from rcad.study.judge import QUESTION_RULE
from rcad.study.pictures import dots, forests
from rcad.study.study import UNITS, WORDS

Record = Mapping[str, Any]
HEADER = ("data", "method", "accuracy or RMSE", "NLL", "RCAD better by", "RCAD")
OUTCOMES = {"better": "wins", "worse": "loses", "undecided": "undecided"}
ABOUT = {
    "linear": "One feature separates two classes, eight are noise, and twenty examples are too few to tell them "
    "apart. ERM puts much of its weight on the noise. RCAD continues from ERM's weights with the paper's substitute "
    "for the entropy. Test accuracies are exact.",
    "moons": "Two half moons in the first two of many dimensions, with noise on all of them. The hyperparameters are "
    "those of table T8, which chose them on other data. The controls are RCAD with a random direction of the same "
    "length, and RCAD without a step: if they do as well, the adversarial direction is not what helps.",
    "digits": "100 images, a small CNN without normalisation, every method with its defaults: `rcad compare` without "
    "tuning.",
    "diabetes": "Regression on a few hundred rows: `rcad compare` with the same tuning budget for every method.",
}
NEXT = (
    Command("rcad compare --data my.csv --target COLUMN", "Does it help on your data? Images: --data FOLDER."),
    Command("rcad train --data my.csv --target COLUMN --method rcad", "Train with it:"),
    Command("python -c 'import rcad; help(rcad.RCAD)'", "The loss in your own training loop:"),
)


def verdicts(results: Record) -> dict[str, str]:
    """One text per act: the answer to its question and, if RCAD is better, whether its direction is the reason."""
    texts = {name: "\n".join(answers(act)) for name, act in results.items()}
    few = "\n".join(f"{ACTS[name].capitalize()}: {texts[name]}" for name in ("digits", "diabetes"))
    return {"linear": texts["linear"], "moons": texts["moons"], "few_labels": few}


def answers(act: Record) -> list[str]:
    """The sentences that the table's last column sums up."""
    return list(act["sentences"][: 1 + (act["question"]["outcome"] == "better")])


def table(record: Record, *, judged: bool = False) -> Table:
    """A line for each method of each act, judged by the act's question.

    Args:
        judged: those alone that RCAD was compared with, which fits 80 columns.
    """
    rows = []
    for name, act in record["results"].items():
        pairs = [pair for pair in act["differences"] if pair["metric"] == act["metric"]]
        by_rival = {pair["against"]: pair for pair in pairs if pair["method"] == act["question"]["method"]}
        for method in act["methods"]:
            accuracy, rmse, nll = (_spread(act, method, metric) for metric in ("accuracy", "rmse", "nll"))
            gain = outcome = ""
            if (pair := by_rival.get(method)) is not None:
                gain = with_interval(pair["mean"], pair["low"], pair["high"])
                outcome = OUTCOMES[pair["outcome"]] if record["scale"] == "full" else "a trial"
            elif judged:
                continue
            rows.append([ACTS[name], method, accuracy or rmse, nll, gain, outcome])
    units: dict[str, list[str]] = {}
    for name, act in record["results"].items():
        unit = f"{UNITS[act['metric']].strip()} of {WORDS[act['metric']]}"
        units.setdefault(unit, []).append(ACTS[name].partition(",")[0])
    words = "; ".join(f"{unit} on {listed(names)}" for unit, names in units.items())
    caption = f"RCAD better by: {words}. Positive is better; intervals at 95%."
    return Table(HEADER, rows, caption, spare=["NLL", "accuracy or RMSE"])


def _spread(act: Record, method: str, metric: str) -> str:
    summary = act["results"][method].get(metric, {}).get("summary")
    return "" if summary is None else with_spread(summary["mean"], summary["sd"]) + "%" * (metric == "accuracy")


def document(record: Record) -> Document:
    """The page: the answers, then an act after the other, then what to do next."""
    trial = "" if record["scale"] == "full" else f" {TRIAL}"
    lead = (
        "RCAD rewards a model for being unsure one large step up its own loss. Four experiments on this machine: where "
        f"it should help, whether its direction is what helps, and where it does not.{trial}"
    )
    results = record["results"]
    short = (
        TRIAL if trial else "\n".join(f"{ACTS[name].capitalize()}: {answers(act)[0]}" for name, act in results.items())
    )
    extra: dict[str, list[Part]] = {"linear": [_histogram(results["linear"])], "moons": [_planes(results["moons"])]}
    command = "rcad demo" if record["scale"] == "full" else "rcad demo --fast"
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return Document(
        "Does RCAD help?",
        lead,
        [
            Section("In short", (), [table(record)], short),
            *(_act(name, act, extra.get(name, []), judged=not trial) for name, act in results.items()),
            Section("How it was judged", [f"{QUESTION_RULE}. The rule is part of the program; no result changes it."]),
            Section("What to do next", (), NEXT),
        ],
        {"Made by": f"{command}, in {record['seconds']:.0f} s", "Versions": versions, "Numbers": "demo.json"},
    )


def _act(name: str, act: Record, extra: list[Part], *, judged: bool) -> Section:
    drawn = [dots(act, metric) for metric in act["metrics"][:2]]
    tables = [results_table(act), *(difference_tables(act) if judged else [])]
    parts = [*extra, *tables, *drawn, *forests(act, 2)]
    number = list(ACTS).index(name) + 1
    return Section(f"{number}: {ACTS[name]}", [ABOUT[name]], parts, "\n".join(act["sentences"]))


def _histogram(act: Record) -> Figure:
    figure = blank(4.6, 3.2)
    ax = figure.subplots()
    for (name, result), colour in zip(act["results"].items(), (BLACK, BLUE, GREEN), strict=False):
        ax.hist(list(result["accuracy"]["values"].values()), bins=25, histtype="step", lw=1.8, color=colour, label=name)
    ax.set(xlabel="test accuracy, % (exact)", ylabel="draws")
    bare(ax)
    legend(figure, ax.get_legend_handles_labels()[0], 3)
    return Figure(figure, "Test accuracy over the draws.", "Histograms of test accuracy by classifier.")


def _planes(act: Record) -> Figure:
    """The plane of the true features under ERM and under RCAD, in the first draw."""
    import numpy as np

    from rcad.paper.boundaries import LIMITS

    figure = blank(7.4, 2.9)
    where, labels = np.asarray(act["points"]["x"]), np.asarray(act["points"]["y"])
    for ax, (name, flat) in zip(figure.subplots(1, 2), act["planes"].items(), strict=True):
        across = next(k for k in range(2, len(flat) + 1) if k * max(2, k * 2 // 3) == len(flat))
        plane = np.asarray(flat, dtype=float).reshape(-1, across)
        ax.imshow(plane, origin="lower", extent=LIMITS, cmap="RdBu", vmin=0, vmax=100, aspect="equal", alpha=0.55)
        x, y = np.linspace(*LIMITS[:2], plane.shape[1]), np.linspace(*LIMITS[2:], plane.shape[0])
        if plane.min() < 50 < plane.max():
            ax.contour(x, y, plane, levels=[50], colors="black", linewidths=1.8)
        for label, marker, colour in ((0, "o", "#6B0000"), (1, "s", "#00205F")):
            chosen = where[labels == label]
            ax.scatter(chosen[:, 0], chosen[:, 1], marker=marker, s=9, color=colour, alpha=0.9, lw=0)
        ax.set_title(name, fontsize=9.5)
        bare(ax)
    caption = (
        "The first draw: colour is the probability of a class where all noise dimensions are 0; the line: the boundary."
    )
    return Figure(figure, caption, "The plane of the true features coloured by the predictions of ERM and RCAD.", True)
