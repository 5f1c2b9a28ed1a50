"""An evaluation as a document, from its summary alone: each suite's tables and figures, then what differs from ERM."""

from __future__ import annotations

from dataclasses import replace

from rcad.evaluate.saved_run.figures import figures
from rcad.evaluate.saved_run.tables import Summary, comparison_notes, differences, notes, tables
from rcad.report.document import Document, Part, Section, Table
from rcad.report.numbers import plural

TITLES = {
    "calibration": "Calibration",
    "attacks": "Attacks",
    "corruptions": "Corruptions",
    "ood": "Out of distribution",
}
ABOUT = {
    "calibration": "Does a model that says 80% get 80% right? NLL and Brier score judge probabilities as a whole, ECE "
    "how far confidence and accuracy are apart, AURC whether errors come with doubt. What one temperature mends is a "
    "matter of scale; what stays better after it is more than that.",
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
    """All that an evaluation says; figures need matplotlib.

    Args:
        brief: the tables and their notes alone, as a terminal shows them.
    """
    groups, suites = summary["groups"], summary["suites"]
    sections = [_section(summary, suite, brief=brief) for suite in suites]
    gains, sentences = differences(groups, suites), comparison_notes(summary)
    if gains is not None or sentences or not brief:
        nothing = ["There is nothing to compare: only ERM runs were given."]
        sections.append(Section("Against ERM", sentences or nothing, [] if gains is None else [gains]))
    if not brief:
        # Records of before this was kept name no run that was left out.
        left_out = [f"Left out: {run['run']}: {run['why']}" for run in summary.get("left_out", ())]
        sections.append(Section("The runs", left_out, [_runs(summary)]))
    count = sum(len(group["runs"]) for group in groups)
    what = ", ".join(TITLES[suite].lower() for suite in suites)
    lead = f"Finished runs looked at again, beyond accuracy: {what}. {plural(count, 'run')}; lower is better for every "
    versions = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    devices = sorted({e["device"] for g in groups for by_suite in g["evaluations"] for e in by_suite.values()})
    facts = {
        "Made by": f"rcad evaluate --suite {','.join(suites)}",
        "Device": ", ".join(devices),
        "Versions": versions,
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
