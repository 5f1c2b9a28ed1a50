"""The page's shell: whole, escaped, closed to the network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from browser import BROWSER, seen
from one_line import refusals
from rcad.report import html
from rcad.report.document import Cell, Document, Figure, Section, Table

pytest.importorskip("jinja2")
EVIL = "<script>alert('a')</script> & \"b\""
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Tree(HTMLParser):
    """Tags that close in the order they open, their attributes, and the text by tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page(*sections: Section, title: str = "A page", lead: str = "A lead", facts: dict[str, str] | None = None) -> str:
    return html.page(Document(title, lead, sections or (Section("One"),), facts or {}))


TABLE = Table(("method", "accuracy"), (("ERM", "85.6 ± 0.6"), ("RCAD", "-1.0 [-2.0, 3.0]"), ("none", "")), "in percent")


def test_everything_that_is_given_is_there_and_escaped() -> None:
    table = Table((EVIL, "n"), ((EVIL, "1"),), EVIL)
    figure = Figure("<svg><path d='M 0 0'/></svg>", EVIL, EVIL)
    text = page(Section(f"T {EVIL}", (EVIL,), (table, figure), EVIL), title=EVIL, lead=EVIL, facts={f"k{EVIL}": EVIL})
    tree = Tree(text)
    assert "alert('a')" not in "".join(tree.text["script"])
    assert len(tree.every("script")) == 1
    for tag in ("title", "h1", "h2", "p", "span", "td", "button", "figcaption", "dt", "dd"):
        assert any(EVIL in part for part in ["".join(tree.text[tag])]), tag
    labels = [attributes["aria-label"] for _, attributes in tree.tags if "aria-label" in attributes]
    assert labels.count(EVIL) == 2
    assert len(tree.every("svg")) == 1


def test_it_asks_nothing_of_the_network() -> None:
    tree = Tree(page(Section("One", (), (TABLE,)), Section("Two"), Section("Three")))
    for tag, attributes in tree.tags:
        for name in ("src", "href", "xlink:href", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
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


def test_numbers_are_told_from_words() -> None:
    numbers = ("1", "-0.5%", "1,234", "3.1 ± 0.2", "+1.0 [0.5, 1.5]", "1e-05", "<0.0001", "-")
    for cells, numeric in ((numbers, [True]), (("wins (0.01)", "T8", ""), [False])):
        assert all(Table(("a",), ((cell,), ("",))).numeric == numeric for cell in cells), cells


def test_columns_that_say_nothing_are_left_out() -> None:
    table = Table(("a", "n", "c", "d"), (("1", "-", "", Cell("-", "note")), ("", "", Cell("2"), "-")))
    assert (table.filled().header, table.filled(keep=["n"]).header) == (["a", "c"], ["a", "n", "c"])
    assert [cell.text for cell in table.filled().cells[1]] == ["", "2"]


def test_cells_can_carry_a_note_a_link_a_mark_and_a_name() -> None:
    cell = Cell("12.5", EVIL, "../a%20b.json", "good", "here")
    tree = Tree(page(Section("One", (), (Table(("n",), ((cell,), (Cell("1", mark="bad"),), ("2",))),))))
    (link,) = tree.every("a")
    assert (link["href"], link["class"]) == ("../a%20b.json", "mark good")
    assert [(a["class"], a.get("id")) for a in tree.every("td")] == [("number", "here"), *[("number", None)] * 2]
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


def test_a_notice_a_short_name_and_a_wide_figure() -> None:
    figure = Figure("<svg></svg>", "a", "b", wide=True)
    sections = (Section("A long title", (), (figure,), notice=EVIL, short="T1"), Section("Two"), Section("Three"))
    tree = Tree(page(*sections))
    assert (tree.text["a"][0], tree.every("a")[0]["title"]) == ("T1", "A long title")
    assert [a.get("class") for a in tree.every("p")].count("notice") == 1
    assert EVIL in "".join(tree.text["p"])
    assert tree.every("figure") == [{"class": "wide"}]


def test_neighbouring_figures_stand_together() -> None:
    one, two, three = (Figure(f"<svg id='{k}'></svg>", str(k), str(k)) for k in range(3))
    section = Section("One", (), (one, two, TABLE, three))
    assert section.groups == [[one, two], [TABLE], [three]]
    assert page(section).count('class="figures"') == 2


def test_links_lead_to_sections() -> None:
    tree = Tree(page(Section("Act 1: a"), Section("Act 2"), Section("Ümlaut & more")))
    ids = {attributes["id"] for attributes in tree.every("section")}
    assert {(a["href"] or "")[1:] for a in tree.every("a")} == ids == {"act-1-a", "act-2", "mlaut-more"}


@pytest.mark.skipif(BROWSER is None, reason="needs a chromium on the path")
def test_a_click_sorts_by_number_and_back(tmp_path: Path) -> None:
    cells = ["10.5 ± 1", "-3 [-4, 2]", "", "<0.01", "1,234", "9%", "b", "a"]
    text = page(Section("One", (), (Table(("x",), [(cell,) for cell in cells]),)))
    # The policy lets no other script in, so it gives way here to one that clicks and tells.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    probe = """<script>
    const told = [], head = document.querySelector("th");
    for (let k = 0; k < 3; k++) {
      head.querySelector("button").click();
      told.push([head.ariaSort, [...document.querySelectorAll("td")].map((cell) => cell.textContent)]);
    }
    document.title = JSON.stringify(told);
    </script></body>"""
    path = tmp_path / "page.html"
    path.write_text(text.replace("</body>", probe))
    (title,) = re.findall("<title>(.*)</title>", seen(path, tmp_path))
    up, down, back = json.loads(unescape(title))
    ordered = ["-3 [-4, 2]", "<0.01", "9%", "10.5 ± 1", "1,234", "", "a", "b"]
    assert up == ["ascending", ordered]
    assert down == ["descending", ordered[::-1]]
    assert back == ["none", cells]
