"""A record as a chapter of the report, and as a page of its own."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rcad.evaluate.saved_run import tables as evaluated
from rcad.paper.benchmarks import Benchmark
from rcad.paper.claims import IMAGE_RULE
from rcad.paper.record import JSON, Study
from rcad.paper.report import curves, pictures
from rcad.paper.report.details import details
from rcad.paper.report.tables import Links, caption, claim_table, grid, measure_table, run_table, side_by_side, tally
from rcad.paper.suite import Suite
from rcad.paper.tables import SUITES
from rcad.paper.targets import TARGETS
from rcad.report import drawing
from rcad.report.document import Cell, Document, Figure, Part, Section, Table
from rcad.report.numbers import capital, listed, named_values
from rcad.runs.words import duration, plural

MANY = 7
"""From so many columns on they stand below each other in one panel."""
EVALUATION = "rcad evaluation"
"""The kind of a record that is no study."""
Maker = Callable[[Study], Figure | None]


def draw(study: Study) -> list[Figure]:
    """The pictures of a study, those of the paper first."""
    special: dict[str, Sequence[Maker]] = {
        "F1": (pictures.images, pictures.dots),
        "F2": (pictures.bars, pictures.gains),
        "F5": (pictures.theory,),
        "F7": (pictures.boundaries,),
        "alpha": (pictures.alphas,),
    }
    tables: Sequence[Maker] = (
        curves.by_column if len(study.columns_run) >= MANY else pictures.dots,
        pictures.gains,
        curves.by_size,
    )
    figures = [curves.by_step(study)] if study.target == "F4" else []
    if not any(figures):
        figures = list(curves.panels(study))
        if study.target not in ("F3", "F6") or not figures:
            figures = [*(make(study) for make in special.get(study.target, tables)), *figures]
    drawn = [replace(figure, name=f"{study.stem}-{figure.name}") for figure in figures if figure is not None]
    for figure in drawn:
        drawing.stamp(figure.drawing, study.warning)
    return drawn


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
    reason = " ".join(study.not_run) if study.not_run or not absent else f"Not run: {'; '.join(absent)}."
    claims = len(study.claims) - len(study.tested)
    if not reason or not claims:
        return reason
    are = "is" if claims == 1 else "are"
    return f"{reason} {plural(claims, 'claim')} about what was not run {are} neither judged nor counted."


def judged_elsewhere(study: Study) -> str:
    """One sentence where other tables judge claims of this one on the same runs: their verdicts may differ."""
    if study.tuned or study.target not in SUITES:
        return ""
    own = _planned(SUITES[study.target], {claim.where for claim in study.tested})
    targets = [name for name, suite in SUITES.items() if name != study.target and own & _planned(suite)]
    if not targets:
        return ""
    judge = f"{listed(targets)} {'judge' if len(targets) > 1 else 'judges'}"
    return caption("elsewhere", targets=judge, tested=len(study.tested))


def _planned(suite: Suite, columns: Container[str] | None = None) -> set[tuple[Benchmark, str]]:
    """The claims of a suite, each with its images; of these columns alone."""
    benchmarks = {column.name: column.benchmark for column in suite.columns}
    claims = [claim for claim in suite.claims if columns is None or claim.where in columns]
    return {(benchmarks[claim.where], claim.statement) for claim in claims if claim.where in benchmarks}


def introduction(study: Study) -> list[str]:
    """The paragraphs before the numbers."""
    facts = [
        study.protocol and f"Protocol: {study.protocol}.",
        f"Scale: {study.scale}.",
        study.runs and f"{study.runs:,} runs.",
        study.seconds is not None and f"Computed in {duration(study.seconds)}.",
        study.versions and f"With {named_values(study.versions)}.",
    ]
    columns = study.settings.get("columns")
    paragraphs = [
        f"{capital(study.about).rstrip('.')}." if study.about else "",
        not_run(study),
        " ".join(str(fact) for fact in facts if fact),
        *study.notes,
        "; ".join(f"{name}: {words}" for name, words in columns.items()) if isinstance(columns, Mapping) else "",
        f"Rule, written before the runs: {study.rule}." if study.claims and study.rule else "",
    ]
    return list(filter(None, paragraphs))


def results(study: Study) -> list[Part]:
    if not study.places:
        return []
    images = study.rule == IMAGE_RULE or any(claim.last is not None for claim in study.claims)
    measures = measure_table(study) if images else None
    by_step = curves.step_words(study) if study.target == "F4" else []
    return [*by_step, grid(study), side_by_side(study), *([measures] if measures is not None else [])]


def section(study: Study, links: Links) -> Section:
    parts: list[Part] = [*draw(study), *results(study)]
    if study.tested:
        parts.append(_claims(study, f"Claims of this table or figure. {judged_elsewhere(study)}".rstrip()))
    for heading, below in details(study).items():
        parts += _headed(heading, below)
    if study.places:
        parts.append(run_table(study, links))
    short = study.short_title if study.target in TARGETS else ""
    return Section(study.title, introduction(study), parts, verdict(study), study.warning, short)


def _claims(study: Study, text: str = "") -> Table:
    return claim_table([(study, claim) for claim in study.tested], text, {})


def _headed(heading: str, parts: Sequence[Part]) -> list[Part]:
    """The heading goes before the first caption or paragraph."""
    first, *more = parts
    if isinstance(first, Table):
        return [replace(first, caption=f"{heading}. {first.caption}".strip()), *more]
    return [f"{heading}: {first}", *more] if isinstance(first, str) else [*parts]


def page(study: Study, command: str, stem: str, *, picture: bool = True) -> Document:
    """The study alone: verdicts, numbers, details; `command` made it. F3 has two pictures, others one."""
    drawn = draw(study)[: 2 if study.target == "F3" else 1] if picture else []
    figures = [replace(figure, name=f"{stem}-{index}" if index else stem) for index, figure in enumerate(drawn)]
    sections = [Section("What this is", introduction(study), (), "", study.warning)]
    if study.tested:
        about = list(filter(None, [judged_elsewhere(study)]))
        sections.append(Section("Claims", about, [_claims(study)], verdict(study)))
    if figures or study.places:
        sections.append(Section("Results", (), [*figures, *results(study)]))
    sections += [Section(heading, (), parts) for heading, parts in details(study).items()]
    title = f"{study.target}: {study.title}" if study.target in TARGETS else study.title
    return Document(title, f"Made by `{command}`; every number and setting is in `{stem}.json`.", sections)


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
