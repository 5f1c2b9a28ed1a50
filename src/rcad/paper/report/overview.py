"""The first screen: what was run, how many claims hold, the main pictures; at the end what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rcad.paper.claims import TRIAL
from rcad.paper.report.costs import COSTS
from rcad.paper.report.numbers import checks, counts, span, tally
from rcad.paper.report.reading import Found
from rcad.paper.report.study import SCALES, TITLES, Study
from rcad.paper.report.tables import MARKS, Links, claim_table
from rcad.report.document import Cell, Figure, Section, Table
from rcad.runs.pack import is_pack

CLAIMS, MISSING = "Every claim", "Not run yet"


def first(found: Found, shown: Sequence[Figure], homes: Mapping[str, str], links: Links) -> list[Section]:
    """Two chapters: the summary, and the table of all claims."""
    studies = found.studies
    claims = [(study, claim) for study in studies for claim in study.claims]
    lines = []
    for scale in dict.fromkeys(["full", *SCALES, *(study.scale for study in studies)]):
        chosen = [claim for study, claim in claims if study.scale == scale]
        if chosen:
            lines.append(f"{len(chosen)} claims at {scale} scale: {tally(counts(chosen))}.")
            added = [claim for study, claim in claims if study.scale == scale and study.added(claim)]
            lines += [f"{checks(added)}."] if added else []
    trials = [study for study in studies if study.warning]
    notice = ""
    if trials:
        names = ", ".join(f"{study.target} ({study.scale})" for study in trials)
        notice = f"Not the paper's scale: {names}. Their numbers are not evidence about the paper."
    told = [*(f"Could not be read: {line}" for line in found.damaged)]
    if found.missing:
        told.append(f"Not run yet: {', '.join(found.missing)}.")
    summary = Section(
        "In short",
        told,
        [*shown, _summary(studies, homes, found, links)],
        "\n".join(lines) or "No claim has been judged yet.",
        notice,
    )
    if not claims:
        return [summary]
    caption = (
        "Differences are oriented so that positive speaks for the claim; points, or nats for likelihoods. p is "
        "one-sided, after Holm over all claims of a table or figure."
    )
    return [summary, Section(CLAIMS, [], [claim_table(claims, caption, homes, choose="verdict")])]


def _summary(studies: Sequence[Study], homes: Mapping[str, str], found: Found, links: Links) -> Table:
    rows: list[list[str | Cell]] = []
    for study in studies:
        judged = counts(study.claims)
        numbers = [
            Cell(str(judged[verdict]), mark=mark if judged[verdict] else "none")
            if study.claims and TRIAL not in judged
            else ""
            for verdict, mark in MARKS.items()
        ]
        dates, devices = _facts(study, found)
        rows.append(
            [
                Cell(study.target, _about(study), f"#{homes[study.title]}"),
                Cell(study.scale, mark="" if study.scale == "full" else "bad"),
                *numbers,
                str(study.runs or "-"),
                span(study.seconds),
                dates,
                devices,
                Cell("pack" if is_pack(study.path) else study.path.suffix[1:] or "folder", href=links.to(study.path)),
            ]
        )
    header = ["table or figure", "scale", *MARKS, "runs", "time", "date", "device", "record"]
    return Table(header, rows, "What was run, and how many of its claims got each verdict.")


def _about(study: Study) -> str:
    if study.target in TITLES:
        return study.title.removeprefix(f"{study.target}: ")
    return "step times" if study.target == COSTS else "single runs"


def _facts(study: Study, found: Found) -> tuple[str, str]:
    """First and last day, and devices, of the runs whose records are there."""
    facts = [
        found.run_facts[run.id] for place in study.places.values() for run in place.runs if run.id in found.run_facts
    ]
    days = sorted({str(fact["started"])[:10] for fact in facts if fact.get("started")})
    devices = sorted({str(fact["device"]) for fact in facts if fact.get("device")})
    if not days and study.record.get("date"):
        days = [str(study.record["date"])[:10]]
    if not devices:
        told = study.record.get("device") or ("CPU" if study.versions.get("torch", "").endswith("+cpu") else "")
        devices = [str(told)] if told else []
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "", ", ".join(devices)


def missing(found: Found) -> Section | None:
    """What the paper shows and no record holds, with the command that makes it."""
    if not found.missing:
        return None
    rows = [[target, TITLES[target], f"rcad paper run {target}"] for target in found.missing]
    return Section(MISSING, [], [Table(["name", "what", "command"], rows)])
