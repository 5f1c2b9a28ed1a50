"""The page: whole, escaped, closed to the network; the same document as Markdown, LaTeX and terminal text; figures."""

import base64
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import BROWSER, Tree, probed
from one_line import refusals
from rcad.report import html, latex, markdown, numbers, terminal
from rcad.report.document import Cell, Command, Document, Figure, Section, Table
from rcad.report.drawing import blank, inline, label, limits

pytest.importorskip("jinja2")
EVIL = "<script>alert('a')</script> & \"b\""


def page(*sections: Section, title: str = "A page", lead: str = "A lead", facts: dict[str, str] | None = None) -> str:
    return html.page(Document(title, lead, sections or (Section("One"),), facts or {}))


TABLE = Table(("method", "accuracy"), (("ERM", "85.6 ± 0.6"), ("RCAD", "-1.0 [-2.0, 3.0]"), ("none", "")), "in percent")


def test_everything_that_is_given_is_there_and_escaped() -> None:
    table = Table((EVIL, "n"), ((EVIL, "1"),), EVIL)
    figure = Figure("<svg><path d='M 0 0'/></svg>", EVIL, EVIL)
    text = page(Section(f"T {EVIL}", (EVIL,), (table, figure), EVIL), title=EVIL, lead=EVIL, facts={f"k{EVIL}": EVIL})
    tree = Tree(text)
    assert "alert('a')" not in "".join(tree.text["script"])
    assert (len(tree.every("script")), len(tree.every("svg"))) == (1, 1)
    for tag in ("title", "h1", "h2", "p", "span", "td", "button", "figcaption", "dt", "dd"):
        assert EVIL in "".join(tree.text[tag]), tag
    assert [attributes.get("aria-label") for _, attributes in tree.tags].count(EVIL) == 2


def test_it_asks_nothing_of_the_network() -> None:
    tree = Tree(page(Section("One", (), (TABLE,)), Section("Two"), Section("Three")))
    assert all(link.startswith(("#", "data:")) for _, link in tree.links)
    assert not [tag for tag, attributes in tree.tags if {"action", "data"} & attributes.keys()]
    (policy,) = (a["content"] for a in tree.every("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    script = "".join(tree.text["script"])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "url(" not in "".join(tree.text["style"])
    assert "@import" not in "".join(tree.text["style"])


def test_tables_can_be_sorted_and_scrolled() -> None:
    tree = Tree(page(Section("One", (), (TABLE,))))
    assert [(head["aria-sort"], head.get("class")) for head in tree.every("th")] == [("none", None), ("none", "number")]
    assert len(tree.every("button")) == 2
    (box,) = (a for a in tree.every("div") if a.get("class") == "scroll")
    assert (box["tabindex"], box["role"], box["aria-label"]) == ("0", "region", "in percent")
    assert [a.get("class") for a in tree.every("td")] == [None, "number"] * 3


def test_numbers_are_told_from_words_and_their_digits_follow_the_size() -> None:
    some = ("1", "-0.5%", "1,234", "3.1 ± 0.2", "+1.0 [0.5, 1.5]", "1e-05", "<0.0001", "-")
    for cells, numeric in ((some, [True]), (("wins (0.01)", "T8", ""), [False])):
        assert all(Table(("a",), ((cell,), ("",))).numeric == numeric for cell in cells), cells
    assert numbers.with_interval(0.00123, 0.0002, 0.0022) == "+0.0012 [0.0002, 0.0022]"
    assert numbers.with_interval(12.3456, 10, 14) == "+12.3 [10.0, 14.0]"
    assert (numbers.with_spread(1234.5, 67.0), numbers.by_size(-0.0001, 1.0)) == ("1234 ± 67", "0.0")
    assert [numbers.p_value(p) for p in (None, 0.00001, 0.5)] == ["-", "<0.0001", "0.5000"]


def test_cells_can_carry_a_note_a_link_a_mark_and_a_name() -> None:
    cell = Cell("12.5", EVIL, "../a%20b.json", "good", "here")
    tree = Tree(page(Section("One", (), (Table(("n",), ((cell,), (Cell("1", mark="bad"),), ("2",))),))))
    (link,) = tree.every("a")
    assert (link["href"], link["class"]) == ("../a%20b.json", "mark good")
    assert [a.get("id") for a in tree.every("td")] == ["here", None, None]
    assert [a["class"] for a in tree.every("span")] == ["mark bad"]
    assert EVIL in "".join(tree.text["small"])


OUTSIDE = ("https://a.org", "javascript:alert(1)", "//a.org/x", "/etc/passwd", "\\\\a")
test_what_cannot_be_is_refused = refusals(
    *((lambda href=href: Cell("a", href=href), "expected a place in the page or a file relative") for href in OUTSIDE),
    (lambda: Cell("a", mark="nice"), "expected a mark among good, bad"),
    (lambda: Table(("a",), (), choose="b"), "expected the name of a column to choose by, but got 'b'"),
    (lambda: Table(("a", "b"), (("1",),)), "expected 2 cells in a row, but got 1"),
    (lambda: page(Section("Act 1"), Section("act  1")), "expected sections with different titles"),
)


def test_rows_can_be_chosen_by_a_column_and_a_table_folded() -> None:
    table = Table(("k", "v"), (("a", "x"), ("b", "y"), ("c", Cell("x", "note"))), choose="v", folded="More")
    tree = Tree(page(Section("One", (), (table,))))
    chosen = [(a["data-value"], a["aria-pressed"]) for a in tree.every("button") if "data-value" in a]
    assert chosen == [("", "true"), ("x", "false"), ("y", "false")]
    assert [a["data-column"] for a in tree.every("div") if a.get("class") == "choices"] == ["1"]
    assert "x (2)" in "".join(tree.text["button"])
    assert (tree.text["summary"], len(tree.every("details"))) == (["More"], 1)


def test_a_notice_a_short_name_a_wide_figure_and_links_to_the_sections() -> None:
    wide = Figure("<svg></svg>", "a", "b", wide=True)
    sections = (Section("A long title", (), (wide,), notice=EVIL, short="T1"), Section("Ü & 2"), Section("Three"))
    tree = Tree(page(*sections))
    assert [link[1:] for tag, link in tree.links if tag == "a"] == tree.ids == ["a-long-title", "2", "three"]
    assert (tree.text["a"][0], tree.every("a")[0]["title"]) == ("T1", "A long title")
    assert [a.get("class") for a in tree.every("p")].count("notice") == 1
    assert tree.every("figure") == [{"class": "wide"}]
    one, two, three = (Figure("<svg></svg>", str(k), str(k)) for k in range(3))
    assert Section("One", (), (one, two, TABLE, three)).groups == [[one, two], [TABLE], [three]]


@pytest.mark.skipif(BROWSER is None, reason="needs a chromium on the path")
def test_a_click_sorts_by_number_and_back(tmp_path: Path) -> None:
    cells = ["10.5 ± 1", "-3 [-4, 2]", "", "<0.01", "1,234", "9%", "b", "a"]
    text = page(Section("One", (), (Table(("x",), [(cell,) for cell in cells]),)))
    probe = """
    const told = [], head = document.querySelector("th");
    for (let k = 0; k < 3; k++) {
      head.querySelector("button").click();
      told.push([head.ariaSort, [...document.querySelectorAll("td")].map((cell) => cell.textContent)]);
    }"""
    up, down, back = probed(text, probe, tmp_path)
    ordered = ["-3 [-4, 2]", "<0.01", "9%", "10.5 ± 1", "1,234", "", "a", "b"]
    assert up == ["ascending", ordered]
    assert down == ["descending", ordered[::-1]]
    assert back == ["none", cells]


pytest.importorskip("matplotlib")
SMALL = Table(
    ("method", "NLL", "why"),
    (("erm", "0.9 ± 0.1", "a | b"), (Cell("rcad", "alpha 1", "#x", "good"), "-", Cell("", mark="open"))),
    "in nats",
)
PARTS = ["between", SMALL, Command("rcad compare", "Next:")]
FOLDED = Section("Two", (), (Table(("a",), (("hidden",),), folded="More"),))
FIRST = Section("One", ["Word_s & _more_."], PARTS, "yes\nno", "careful")
DOCUMENT = Document("A <title>", "A *lead* with `code_here`.", (FIRST, FOLDED), {"made by": "us"})


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
        "| method | NLL | why |\n| --- | --: | --- |\n| erm | 0.9 ± 0.1 | a \\| b |\n| **rcad** (alpha 1) | - |  |",
        "Next:",
        "```\nrcad compare\n```",
        "- made by: us\n",
    ]
    assert markdown.cell_text(Cell("x", href="a.json")) == "[x](a.json)"
    assert markdown.escaped("+1 [0, 2], [x](y) #1") == r"+1 [0, 2], [x\](y) \#1"
    figures = (Figure("<svg/>", "c", "d", name="pic"), Figure("<svg/>", "c", "d"))
    text = markdown.markdown(Document("t", "", (Section("One", (), figures),)))
    assert (text.count("!["), "![d](figures/pic.png)" in text) == (1, True)
    fragment = html.fragment(DOCUMENT)  # what a notebook shows
    assert ("<script" in fragment, " id=" in fragment) == (False, False)
    assert "<pre><code>rcad compare</code></pre>" in fragment


def test_latex_is_one_float_with_notes_below() -> None:
    lines = latex.table(SMALL, "T 1").splitlines()
    assert {r"\label{tab:rcad-T-1}", r"\begin{tabular}{lrl}", r"erm & 0.9 $\pm$ 0.1 & a \textbar{} b \\"} <= {*lines}
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
    lines = terminal.table_lines(Table(("a", "b"), (("1", "2"),)), 80, last=("mean", "1.5"))
    assert lines[2:] == ["   1    2", lines[1], "mean  1.5"]


def test_figures_are_drawn_whatever_backend_is_named(tmp_path: Path) -> None:
    """A notebook's MPLBACKEND is not there for `!rcad compare`, which checks its packages first."""
    code = (
        "from rcad.study.outputs import check_packages; check_packages(); "
        "from rcad.report.drawing import blank, inline; f = blank(1, 1); f.subplots(); print(inline(f)[:4])"
    )
    inline_backend = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "MPLCONFIGDIR": str(tmp_path)}
    assert subprocess.check_output([sys.executable, "-c", code], env={**os.environ, **inline_backend}) == b"<svg\n"


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
    assert "<image" in svg
    assert not re.search("<[?]xml|<!DOCTYPE|<!--|<metadata|<style|<i>", svg)
    assert re.findall(r'href="(?!#|data:image/png;base64)', svg) == []
    assert svg == inline(picture())
    # Names do not meet on a page, and every reference finds its own.
    own, others = (re.findall(r'\bid="([^"]+)"', one) for one in (svg, inline(picture(0.5))))
    assert len({*own, *others}) == len(own) + len(others) > 6
    references = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
    assert set(references) <= set(own)
    assert references


def test_a_wild_value_does_not_squeeze_an_axis_and_labels_hold_no_formula() -> None:
    assert limits([1.0, 1.1, 1.2, 1.3, 500.0]) == pytest.approx((1 - 0.06 * 0.3, 1.3 + 0.06 * 0.3))
    assert [limits([2.0]), limits([])] == [(1.5, 2.5), (0.0, 1.0)]
    assert label("a $x$ 猫") == "a \\$x\\$ \N{WHITE SQUARE}"
    assert label("one two three four five", 9, 2) == "one two\nthree …"
