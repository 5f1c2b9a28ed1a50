"""The same document as Markdown, LaTeX and terminal text, and its figures; the page has a file of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcad.report import html, latex, markdown, numbers, terminal
from rcad.report.document import Cell, Command, Document, Figure, Section, Table
from rcad.report.drawing import blank, colour_of, colours_of, inline, label, limits, save

pytest.importorskip("matplotlib")
TABLE = Table(
    ("method", "NLL", "why"),
    (("erm", "0.9 ± 0.1", "a | b"), (Cell("rcad", "alpha 1", "#x", "good"), "-", Cell("", mark="open"))),
    "in nats",
    last=("mean", "0.9", ""),
)
DOCUMENT = Document(
    "A <title>",
    "A *lead* with `code_here`.",
    (
        Section(
            "One", ["Word_s & _more_."], ["between", TABLE, Command("rcad compare", "Next:")], "yes\nno", "careful"
        ),
        Section("Two", (), (Table(("a",), (("hidden",),), folded="More"),)),
    ),
    {"made by": "us"},
)


def test_markdown_says_all_but_what_is_folded() -> None:
    assert markdown.markdown(DOCUMENT).split("\n\n") == [
        "# A &lt;title&gt;",
        r"A \*lead\* with `code_here`.",
        "## One",
        "> **careful**",
        "**yes**",
        "**no**",
        r"Word_s &amp; \_more\_.",
        "between",
        "in nats",
        "| method | NLL | why |\n| --- | --: | --- |\n| erm | 0.9 ± 0.1 | a \\| b |\n"
        "| **rcad** (alpha 1) | - |  |\n| mean | 0.9 |  |",
        "Next:",
        "```\nrcad compare\n```",
        "- made by: us\n",
    ]


def test_markdown_links_files_and_named_figures() -> None:
    assert markdown.cell_text(Cell("x", href="a.json")) == "[x](a.json)"
    assert markdown.escaped("+1 [0, 2], [x](y) #1") == r"+1 [0, 2], [x\](y) \#1"
    figures = (Figure("<svg/>", "c", "d", name="pic"), Figure("<svg/>", "c", "d"))
    text = markdown.markdown(Document("t", "", (Section("One", (), figures),)))
    assert text.count("![") == 1
    assert "![d](figures/pic.png)" in text


def test_latex_is_one_float_with_notes_below() -> None:
    lines = latex.table(TABLE, "T 1").splitlines()
    assert r"\label{tab:rcad-T-1}" in lines
    assert r"\begin{tabular}{lrl}" in lines
    assert r"erm & 0.9 $\pm$ 0.1 & a \textbar{} b \\" in lines
    assert lines[lines.index(r"rcad & -- &  \\") + 1] == r"{\footnotesize(alpha 1)} &  &  \\"
    assert latex.escaped("50% of $x_1$ & {#}") == r"50\% of \$x\_1\$ \& \{\#\}"


@pytest.mark.parametrize("width", [30, 50, 80, 120])
def test_no_line_of_the_terminal_is_wider_than_it(width: int) -> None:
    rows = [(f"method {k}", *(f"{k}.{j}23 ± 0.01" for j in range(6)), "some words that may wrap") for k in range(4)]
    header = ("method", *(f"metric {j}" for j in range(6)), "verdict")
    wide = Table(header, rows, "A caption of several words that is longer than thirty letters.", spare=("metric 5",))
    lines = terminal.text(Document("t", "word " * 40, (Section("One", (), (wide,)),)), width).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("method ") for line in lines) == 5  # the header and a line for each row: still a table


def test_spare_columns_go_first_and_the_others_from_the_right() -> None:
    table = Table(("a", "b", "c", "d"), (("1" * 9, "2" * 9, "3" * 9, "4" * 9),), spare=("b",))
    shown = {width: terminal.table_lines(table, width)[0].split() for width in (80, 35, 25, 10)}
    assert shown == {80: ["a", "b", "c", "d"], 35: ["a", "c", "d"], 25: ["a", "c"], 10: ["a"]}


def test_a_fragment_has_no_script_and_no_ids() -> None:
    text = html.fragment(DOCUMENT)
    assert "<script" not in text
    assert " id=" not in text
    assert "<tfoot>" in text
    assert "<code>code_here</code>" in html.page(DOCUMENT)
    assert "<pre><code>rcad compare</code></pre>" in text


def test_digits_follow_the_size() -> None:
    assert numbers.with_interval(0.00123, 0.0002, 0.0022) == "+0.0012 [0.0002, 0.0022]"
    assert numbers.with_interval(12.3456, 10, 14) == "+12.3 [10.0, 14.0]"
    assert numbers.with_interval(0.5, None, None) == "+0.500"
    assert numbers.with_spread(1234.5, 67.0) == "1234 ± 67"
    assert numbers.by_size(-0.0001, 1.0) == "0.0"
    assert [numbers.p_value(p) for p in (None, 0.00001, 0.5)] == ["-", "<0.0001", "0.5000"]
    assert numbers.listed(["a", "b", "c"]) == "a, b and c"


def test_figures_are_drawn_whatever_backend_is_named(tmp_path: Path) -> None:
    """A notebook's MPLBACKEND is not there for `!rcad compare`, which checks its packages first."""
    code = (
        "from rcad.study.outputs import check_packages; check_packages(); "
        "from rcad.report.drawing import blank, inline; f = blank(1, 1); f.subplots(); print(inline(f)[:4])"
    )
    inline_backend = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "MPLCONFIGDIR": str(tmp_path)}
    assert subprocess.check_output([sys.executable, "-c", code], env={**os.environ, **inline_backend}) == b"<svg\n"


def test_named_figures_are_saved(tmp_path: Path) -> None:
    figures = [Figure(blank(1, 1), "", "", name="a"), Figure(blank(1, 1), "", "")]
    assert save(figures, tmp_path, ("png", "pdf")) == [tmp_path / "a.png", tmp_path / "a.pdf"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pdf", "a.png"]


def picture(height: float = 1.0) -> Any:
    figure = blank(3, 2)
    ax = figure.subplots()
    ax.plot([0, 1], [0, height], label="a --> b <i>")
    ax.imshow(np.eye(3))
    ax.legend()
    return figure


def test_a_figure_is_one_bare_element_and_the_same_text_each_time() -> None:
    svg = inline(picture())
    assert re.fullmatch(r"<svg (?![^>]* (width|height)=)[^>]*viewBox.*</svg>", svg, re.DOTALL)
    for unwanted in ("<?xml", "<!DOCTYPE", "<!--", "<metadata", "<style", "<i>"):
        assert unwanted not in svg
    assert "<image" in svg
    assert re.findall(r'href="(?!#|data:image/png;base64)', svg) == []
    assert svg == inline(picture())
    # Names do not meet on a page, and every reference finds its own.
    own, others = (re.findall(r'\bid="([^"]+)"', one) for one in (svg, inline(picture(0.5))))
    assert len({*own, *others}) == len(own) + len(others) > 6
    references = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
    assert references
    assert set(references) <= set(own)


def test_a_wild_value_does_not_squeeze_an_axis() -> None:
    low, high = limits([1.0, 1.1, 1.2, 1.3, 500.0])
    assert (low, high) == pytest.approx((1 - 0.06 * 0.3, 1.3 + 0.06 * 0.3))
    assert limits([1.0, 1.1, 1.2, 1.3], around=0.0)[0] < 0
    assert limits([2.0]) == (1.5, 2.5)
    assert limits([]) == (0.0, 1.0)


def test_labels_fit_and_hold_no_formula() -> None:
    assert label("a $x$ 猫") == "a \\$x\\$ \N{WHITE SQUARE}"
    assert label("one two three four five", 9, 2) == "one two\nthree …"


def test_colours_stay_with_their_method_and_apart_on_a_picture() -> None:
    colours = [colour_of(name) for name in ("ERM", "RCAD", "random direction", "XY")]
    assert colours == ["#000000", "#0072B2", "#D55E00", "#666666"]
    names = ["ERM", "RCAD", "RCAD, alpha 0.1", "FGSM", "LS", "XY", "random direction"]
    assert len(set(colours_of(names).values())) == len(names)
