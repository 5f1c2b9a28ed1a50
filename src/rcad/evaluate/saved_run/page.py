"""An evaluation as one HTML page and as Markdown, from its summary alone (see `rcad.evaluate.saved_run`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rcad.evaluate.saved_run.figures import figures
from rcad.evaluate.saved_run.tables import differences, evaluations, masking_words, tables
from rcad.report import html
from rcad.report.document import Document, Figure, Section, Table

Summary = Mapping[str, Any]
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
LEAD = "Finished runs looked at again, beyond accuracy: {what}."


def page(summary: Summary) -> str:
    """The page; needs jinja2 and matplotlib."""
    sections = [_section(summary, suite) for suite in summary["suites"]]
    sections.append(Section("Against ERM", _compared(summary), _present(_differences(summary))))
    sections.append(Section("The runs", _left_out(summary), [runs_table(summary)]))
    return html.page(Document("Evaluation", _lead(summary), sections, _facts(summary)))


def markdown(summary: Summary) -> str:
    """The same without figures."""
    parts = ["# Evaluation", _lead(summary)]
    for suite in summary["suites"]:
        parts += [f"## {TITLES[suite]}", *notes(summary, suite)]
        for table in tables(summary["groups"], suite):
            parts += [_rows(table), table.caption]
    parts += ["## Against ERM", *_compared(summary)]
    for table in _present(_differences(summary)):
        parts += [_rows(table), table.caption]
    parts += ["## The runs", *_left_out(summary), _rows(runs_table(summary))]
    parts += ["\n".join(f"- {name}: {value}" for name, value in _facts(summary).items())]
    return "\n\n".join(parts) + "\n"


def notes(summary: Summary, suite: str) -> list[str]:
    """What a reader of a suite's tables should know: provenance, examples, what was left out and why."""
    groups = summary["groups"]
    found = [e for group in groups for e in evaluations(group, suite)]
    told = [f"{group['name']}: {group['refused'][suite]}" for group in groups if suite in group["refused"]]
    counts = sorted({e["examples"] for e in found})
    if counts:
        told.append(f"Test examples looked at: {' or '.join(f'{count:,}' for count in counts)}.")
    if suite == "attacks" and any("masking_signs" in e["numbers"] for e in found):
        told.append(f"Signs of gradient masking: {masking_words(groups)}.")
    if suite == "corruptions" and found:
        kinds = sorted({e["curves"]["provenance"] for e in found})
        told.append(f"Provenance of the corrupted images: {' and '.join(kinds)}.")
        told += [note for group in groups for note in group["notes"] if note.startswith("No mCE")]
    for note in dict.fromkeys(note for e in found for note in e["notes"]):
        held = sum(note in e["notes"] for e in found)
        told.append(note if held == len(found) else f"{held} of {len(found)} runs: {note}")
    return list(dict.fromkeys(told))


def comparison_notes(summary: Summary) -> list[str]:
    """What can be said about the differences to ERM, or why there are none."""
    told = []
    for group in summary["groups"]:
        if group["comparison"] is not None:
            told.append(f"{group['name']}: {group['comparison']['note']}")
        elif not group["is_erm"]:
            told += [f"{group['name']}: {note}" for note in group["notes"] if note.startswith("No ERM")]
    return told


def texts(table: Table) -> list[list[str]]:
    """A table's cells as plain text, for Markdown and the terminal."""
    return [[cell.text for cell in row] for row in table.cells]


def runs_table(summary: Summary) -> Table:
    rows = []
    for group in summary["groups"]:
        for run, seed, found in zip(group["runs"], group["seeds"], group["evaluations"], strict=True):
            seconds = sum(e["seconds"] for e in found.values())
            rows.append([run, group["data"], group["name"], str(seed), f"{seconds:.1f}"])
    return Table(["run", "data", "method", "seed", "seconds"], rows, "Every run and how long its suites took.")


def _section(summary: Summary, suite: str) -> Section:
    groups = summary["groups"]
    parts: list[Table | Figure] = [*tables(groups, suite)]
    # Methods are compared on one data set: lines from several in one figure would say nothing.
    sets = list(dict.fromkeys((group["data"], bool(group["classes"])) for group in groups))
    for data in sets:
        own = figures([group for group in groups if (group["data"], bool(group["classes"])) == data], suite)
        parts += [replace(one, caption=f"{data[0]}: {one.caption}") if len(sets) > 1 else one for one in own]
    return Section(TITLES[suite], [ABOUT[suite], *notes(summary, suite)], parts)


def _differences(summary: Summary) -> Table | None:
    return differences(summary["groups"], summary["suites"])


def _compared(summary: Summary) -> list[str]:
    return comparison_notes(summary) or ["There is nothing to compare: only ERM runs were given."]


def _left_out(summary: Summary) -> list[str]:
    """A line for each run that could not be evaluated; records of before this was kept have none."""
    return [f"Left out: {one['run']}: {one['why']}" for one in summary.get("left_out", ())]


def _present(table: Table | None) -> list[Table]:
    return [] if table is None else [table]


def _lead(summary: Summary) -> str:
    count = sum(len(group["runs"]) for group in summary["groups"])
    what = ", ".join(TITLES[suite].lower() for suite in summary["suites"])
    return f"{LEAD.format(what=what)} {count} {'run' if count == 1 else 'runs'}; lower is better for every error."


def _facts(summary: Summary) -> dict[str, str]:
    versions = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    devices = sorted({e["device"] for g in summary["groups"] for found in g["evaluations"] for e in found.values()})
    return {
        "Made by": f"rcad evaluate --suite {','.join(summary['suites'])}",
        "Device": ", ".join(devices),
        "Versions": versions,
        "Numbers": "evaluation.json beside this page; a record per run and suite in the runs' own folders",
    }


def _rows(table: Table) -> str:
    lines = [table.header, ["---"] * len(table.header), *texts(table)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
