"""A study as a chapter of the page: which pictures it has, and what stands around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rcad.paper.report import curves, grids, pictures
from rcad.paper.report.drawing import Picture
from rcad.paper.report.numbers import checks, counts, span, tally
from rcad.paper.report.study import TITLES, Study
from rcad.paper.report.tables import Links, claim_table, grid, run_table, side_by_side
from rcad.report.document import Figure, Section, Table
from rcad.report.drawing import inline

MANY = 7
"""From so many columns on they stand below each other in one panel."""
Maker = Callable[[Study], Picture | None]


def draw(study: Study) -> list[Picture]:
    """The pictures of a study, those of the paper first."""
    special: dict[str, Sequence[Maker]] = {
        "F1": (pictures.images, grids.dots),
        "F2": (grids.bars, grids.gains),
        "F5": (pictures.theory,),
        "F7": (pictures.boundaries,),
    }
    tables: Sequence[Maker] = (
        curves.by_column if len(study.columns) >= MANY else grids.dots,
        grids.gains,
        curves.by_size,
    )
    drawn = curves.panels(study)
    if study.target in ("F3", "F4", "F6") and drawn:
        return drawn
    found = [made for make in special.get(study.target, tables) if (made := make(study)) is not None]
    return [*found, *drawn]


def figure(picture: Picture) -> Figure:
    return Figure(inline(picture.figure), picture.caption, picture.alt, picture.wide)


def section(study: Study, shown: Sequence[Picture], links: Links) -> Section:
    """The chapter."""
    parts: list[Table | Figure] = [figure(one) for one in shown]
    if study.places:
        parts += [grid(study), side_by_side(study)]
    if study.claims:
        parts.append(claim_table([(study, claim) for claim in study.claims], "Claims of this table or figure.", {}))
    if study.places:
        parts.append(run_table(study, links))
    facts = [
        study.protocol and f"Protocol: {study.protocol}.",
        f"Scale: {study.scale}.",
        study.runs and f"{study.runs:,} runs.",
        study.seconds is not None and f"Computed in {span(study.seconds)}.",
        study.versions and f"With {', '.join(f'{name} {version}' for name, version in study.versions.items())}.",
    ]
    told = [study.about, " ".join(fact for fact in facts if fact), *study.notes]
    if study.claims and study.rule:
        told.append(f"Rule, written before the runs: {study.rule}.")
    verdict = f"{len(study.claims)} claims: {tally(counts(study.claims))}" if study.claims else ""
    if added := [claim for claim in study.claims if study.added(claim)]:
        verdict += f"\n{checks(added)}"
    return Section(
        study.title,
        [text for text in told if text],
        parts,
        verdict,
        study.warning,
        study.target if study.target in TITLES else "",
    )
