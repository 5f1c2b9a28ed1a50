"""A table as LaTeX that needs only booktabs."""

from __future__ import annotations

import re

from rcad.report.document import Cell, Table

_WORDS = {sign: f"\\{sign}" for sign in "{}$&#%_"} | {
    "\\": r"\textbackslash{}",
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
    return _SPECIAL.sub(lambda sign: _WORDS[sign[0]], " ".join(text.split()))


def table(content: Table, name: str) -> str:
    """A floating table, labelled `tab:rcad-NAME`; a cell's note stands small in a row below, "aside" is in italics."""
    body: list[str] = []
    for row in content.cells:
        body.append(_line([_cell(cell) for cell in row]))
        if any(cell.note for cell in row):
            body.append(_line([rf"{{\footnotesize({escaped(cell.note)})}}" if cell.note else "" for cell in row]))
    label = re.sub(r"[^A-Za-z0-9]+", "-", name)
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(content.caption)}}}",
            rf"\label{{tab:rcad-{label}}}",
            rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in content.numeric)}}}",
            r"\toprule",
            _line([escaped(text) for text in content.header]),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _cell(cell: Cell) -> str:
    text = "--" if cell.text == "-" else escaped(cell.text)
    return rf"\emph{{{text}}}" if cell.mark == "aside" else text


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
