"""A record as a chapter of the report, and as a page of its own."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rcad.evaluate.saved_run import tables as evaluated
from rcad.paper.benchmarks import Benchmark
from rcad.paper.claims import IMAGE_RULE, NOT_RUN
from rcad.paper.record import JSON, Study
from rcad.paper.report import curves, grids, pictures, steps
from rcad.paper.report.details import details
from rcad.paper.report.numbers import tally
from rcad.paper.report.tables import Links, claim_table, grid, measure_table, run_table, side_by_side
from rcad.paper.suite import Suite
from rcad.paper.tables import SUITES
from rcad.paper.targets import TARGETS
from rcad.report.document import Cell, Document, Figure, Part, Section, Table
from rcad.report.numbers import listed
from rcad.runs.words import duration, plural

MANY = 7
"""From so many columns on they stand below each other in one panel."""
EVALUATION = "rcad evaluation"
"""The kind of a record that is no study."""
EVALUATED = {"groups": [{"name": str, "data": str, "seeds": list, "runs": list}], "suites": [str]}
"""Its form, as far as a chapter needs it."""
Maker = Callable[[Study], Figure | None]


def draw(study: Study) -> list[Figure]:
    """The pictures of a study, those of the paper first."""
    special: dict[str, Sequence[Maker]] = {
        "F1": (pictures.images, grids.dots),
        "F2": (grids.bars, grids.gains),
        "F5": (pictures.theory,),
        "F7": (pictures.boundaries,),
        "alpha": (pictures.alphas,),
    }
    tables: Sequence[Maker] = (
        curves.by_column if len(study.columns_run) >= MANY else grids.dots,
        grids.gains,
        curves.by_size,
    )
    if study.target == "F4" and (stepped := steps.picture(study)) is not None:
        return [stepped]
    drawn = curves.panels(study)
    if study.target in ("F3", "F6") and drawn:
        return drawn
    found = [made for make in special.get(study.target, tables) if (made := make(study)) is not None]
    return [*found, *drawn]


def verdict(study: Study) -> str:
    """How many claims got each verdict; those of ours on a second line."""
    if not study.tested:
        return ""
    text = f"{plural(len(study.tested), 'claim')}: {tally(study.tested)}"
    twice = [claim.last for claim in study.tested if claim.last is not None]
    if twice and study.scale != "smoke":
        text += f". At the last epoch, of {len(twice)}: {tally(twice)}"
    added = [claim for claim in study.tested if study.added(claim)]
    ours = f"Among them checks of ours, which are no claims of the paper, {len(added)}: {tally(added)}"
    return f"{text}\n{ours}" if added else text


def not_run(study: Study) -> str:
    """One sentence on the columns and cells without a run, and why; "" where all were run."""
    absent = [column for column in study.columns if column not in study.columns_run] if study.places else []
    why = " ".join(study.not_run) if study.not_run or not absent else f"Not run: {'; '.join(absent)}."
    claims = sum(claim.verdict == NOT_RUN for claim in study.claims)
    if not why or not claims:
        return why
    are = "is" if claims == 1 else "are"
    return f"{why} {plural(claims, 'claim')} about what was not run {are} neither judged nor counted."


def judged_elsewhere(study: Study) -> str:
    """One sentence where other tables judge claims of this one on the same runs: their verdicts may differ."""
    if study.tuned or study.target not in SUITES:
        return ""
    columns = {claim.where for claim in study.tested}
    mine = _asked(SUITES[study.target], columns)
    others = [name for name, suite in SUITES.items() if name != study.target and mine & _asked(suite)]
    if not others:
        return ""
    return (
        f"{listed(others)} {'judge' if len(others) > 1 else 'judges'} some of these claims too, on the same runs or a "
        f"part of them. Holm's correction goes over all claims of a table or figure, {len(study.tested)} here, so the "
        "same difference may have another verdict there."
    )


def _asked(suite: Suite, columns: Container[str] | None = None) -> set[tuple[Benchmark, str]]:
    """What a suite claims, and of which images; of these columns alone."""
    benchmarks = {column.name: column.benchmark for column in suite.columns}
    claims = [claim for claim in suite.claims if columns is None or claim.where in columns]
    return {(benchmarks[claim.where], claim.statement) for claim in claims if claim.where in benchmarks}


def told(study: Study) -> list[str]:
    """What stands before the numbers."""
    facts = [
        study.protocol and f"Protocol: {study.protocol}.",
        f"Scale: {study.scale}.",
        study.runs and f"{study.runs:,} runs.",
        study.seconds is not None and f"Computed in {duration(study.seconds)}.",
        study.versions and f"With {', '.join(f'{name} {version}' for name, version in study.versions.items())}.",
    ]
    columns = study.settings.get("columns")
    settings = columns if isinstance(columns, Mapping) else {}
    return [
        text
        for text in (
            study.about[:1].upper() + study.about[1:].rstrip(".") + "." if study.about else "",
            not_run(study),
            " ".join(str(fact) for fact in facts if fact),
            *study.notes,
            "; ".join(f"{name}: {words}" for name, words in settings.items()),
            f"Rule, written before the runs: {study.rule}." if study.claims and study.rule else "",
        )
        if text
    ]


def results(study: Study) -> list[Part]:
    """The tables of numbers."""
    if not study.places:
        return []
    images = study.rule == IMAGE_RULE or any(claim.last is not None for claim in study.claims)
    measures = measure_table(study) if images else None
    said = steps.words(study) if study.target == "F4" else []
    return [*said, grid(study), side_by_side(study), *([measures] if measures is not None else [])]


def section(study: Study, links: Links) -> Section:
    """The chapter."""
    parts: list[Part] = [*draw(study), *results(study)]
    if study.tested:
        claims = [(study, claim) for claim in study.tested]
        parts.append(claim_table(claims, f"Claims of this table or figure. {judged_elsewhere(study)}".rstrip(), {}))
    for heading, some in details(study):
        parts += _headed(heading, some)
    if study.places:
        parts.append(run_table(study, links))
    return Section(
        study.title,
        told(study),
        parts,
        verdict(study),
        study.warning,
        study.target if study.target in TARGETS and not study.tuned else "",
    )


def _headed(heading: str, parts: Sequence[Part]) -> list[Part]:
    """The heading goes before the first caption or paragraph."""
    first, *rest = parts
    if isinstance(first, Table):
        return [replace(first, caption=f"{heading}. {first.caption}".strip()), *rest]
    return [f"{heading}: {first}", *rest] if isinstance(first, str) else [*parts]


def page(study: Study, command: str, stem: str, *, picture: bool = True) -> Document:
    """The study alone: verdicts, numbers, details; `command` made it. Its first picture is called like its file."""
    shown = [replace(figure, name=stem) for figure in draw(study)[:1]] if picture else []
    sections = []
    if study.tested:
        claims = claim_table([(study, claim) for claim in study.tested], "", {})
        sections.append(
            Section("Claims", [text] if (text := judged_elsewhere(study)) else (), [claims], verdict(study))
        )
    if shown or study.places:
        sections.append(Section("Results", (), [*shown, *results(study)]))
    headed: dict[str, Sequence[Part]] = {}
    for heading, parts in details(study):
        headed.setdefault(heading, parts)
    sections += [Section(heading, (), parts) for heading, parts in headed.items()]
    title = f"{study.target}: {study.title}" if study.target in TARGETS else study.title
    made = f"Made by `{command}`; every number and setting is in `{stem}.json`."
    told_now = Section("What this is", told(study), (), "", study.warning)
    return Document(title, made, [told_now, *sections])


def evaluation(path: Path, record: JSON, links: Links) -> Section:
    """Calibration, attacks, corruptions and other data, as far as they were measured; the runs behind them."""
    groups, suites = record["groups"], record["suites"]
    parts = [table for suite in suites for table in evaluated.tables(groups, suite)]
    gaps = evaluated.differences(groups, suites)
    rows: list[list[str | Cell]] = [
        [group["name"], group["data"], str(seed), Cell(str(run), href=links.run(str(run)))]
        for group in groups
        for seed, run in zip(group["seeds"], group["runs"], strict=True)
    ]
    runs = Table(["method", "data", "seed", "record"], rows, f"From {path.name}.", folded=f"Every run ({len(rows)})")
    return Section(
        f"Evaluation: {path.parent.name}",
        [f"What `rcad evaluate` measured ({', '.join(suites)}); no claim of the paper is judged by it."],
        [*parts, *([gaps] if gaps is not None else []), runs],
    )
