"""LaTeX tables that need only booktabs: one for each study with cells, and one of all verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rcad.paper.claims import TRIAL
from rcad.paper.report.numbers import as_printed, counts, digits, place_mean, with_half
from rcad.paper.report.study import Place, Study
from rcad.study.judge import VERDICTS

_WORDS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "\N{MINUS SIGN}": "$-$",
    "‖": r"$\Vert$",
}
_SPECIAL = re.compile("|".join(map(re.escape, _WORDS)))


def escaped(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return _SPECIAL.sub(lambda found: _WORDS[found[0]], " ".join(text.split()))


def table(study: Study) -> str:
    """Methods by data: ours, and below it the published number."""
    columns = [column for column in study.columns if any((row, column) in study.places for row in study.rows)]
    body = []
    for row in study.rows:
        found = [study.places.get((row, column)) for column in columns]
        if not any(found):
            continue
        name = rf"\emph{{{escaped(row)}}}" if row in study.controls else escaped(row)
        body.append(_line([name, *(_ours(study, place) for place in found)]))
        if any(place is not None and place.published is not None for place in found):
            printed = ["" if place is None or place.published is None else _printed(study, place) for place in found]
            body.append(_line(["", *printed]))
    way = "higher is better" if study.higher_is_better else "lower is better"
    caption = f"{study.title}. {study.label}, {way}; mean and half the 95% interval, the published number below."
    warning = f" {study.warning}" if study.warning else ""
    controls = " Controls in italics." if study.controls else ""
    return _float(
        escaped(caption + controls + warning),
        study.target,
        "l" + "r" * len(columns),
        ["", *map(escaped, columns)],
        body,
    )


def verdicts(studies: Sequence[Study]) -> str:
    """How many claims of each table and figure got each verdict."""
    body = []
    for study in studies:
        if study.claims:
            found = counts(study.claims)
            given = ("--" if TRIAL in found else str(found[verdict]) for verdict in VERDICTS)
            cells = [study.title, study.scale, *given]
            body.append(_line([escaped(cell) for cell in cells]))
    header = ["", "scale", *VERDICTS]
    return _float("Claims of the paper by verdict.", "verdicts", "llrrrr", header, body)


def _ours(study: Study, place: Place | None) -> str:
    if place is None or not place.runs:
        return "--"
    text = with_half(place_mean(study, place), digits(study.unit))
    lost = place.diverged
    return escaped(text) + (rf" \textsuperscript{{{lost} div.}}" if lost else "")


def _printed(study: Study, place: Place) -> str:
    return rf"{{\footnotesize({escaped(as_printed(place.published, study.unit))})}}"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _float(caption: str, name: str, columns: str, header: Sequence[str], body: Sequence[str]) -> str:
    label = re.sub(r"[^A-Za-z0-9]+", "-", name)
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:rcad-{label}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _line(header),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )
