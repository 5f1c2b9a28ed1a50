"""What a page shows, without its wording: rows of tables as numbers, verdicts and short labels."""

from __future__ import annotations

import hashlib
import re
from html import unescape
from html.parser import HTMLParser

VERDICTS = ("reproduced", "not reproduced", "opposite", "undecided")
_NUMBER = re.compile(r"(?<![\w.])(?:[TF]\d\b|[<+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?)")
_TARGET = re.compile(r"([TF]\d): .*")
_WORD = re.compile(r"[A-Za-z_]{2,}")
LABEL = 3
"""So many words are a name; more are a sentence, of which only the numbers count."""


def reduced(cell: str) -> str:
    text = " ".join(re.sub(r"[()]", " ", cell.replace("\N{MINUS SIGN}", "-")).split())
    if text in VERDICTS or len(_WORD.findall(text)) <= LABEL:
        return text
    return " ".join(one.rstrip(",") for one in _NUMBER.findall(text))


def row(cells: list[str]) -> str:
    return " | ".join(filter(None, map(reduced, cells)))


class _Page(HTMLParser):
    """The rows of a page's tables by chapter; of a folded table how many there are, and a digest."""

    def __init__(self) -> None:
        super().__init__()
        self.chapters: dict[str, list[str]] = {}
        self.folded: list[str] | None = None
        self.cells: list[str] = []
        self.text: list[str] | None = None
        self.drawing = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.drawing += tag == "svg"
        if tag == "details":
            self.folded = []
        elif tag == "tr":
            self.cells = []
        elif tag in ("td", "h2"):
            self.text = []

    def handle_endtag(self, tag: str) -> None:
        self.drawing -= tag == "svg"
        if tag == "h2":
            title = " ".join("".join(self.text or ()).split())
            target = _TARGET.sub(r"\1", title)
            self.chapters[title if target in self.chapters else target] = []
            self.text = None
        elif tag == "td":
            self.cells.append("".join(self.text or ()))
            self.text = None
        elif tag == "tr" and self.cells:
            (self._rows if self.folded is None else self.folded).append(row(self.cells))
        elif tag == "details" and self.folded:
            self._rows.append(digest(self.folded))
            self.folded = None

    def handle_data(self, data: str) -> None:
        if self.text is not None and not self.drawing:
            self.text.append(data)

    @property
    def _rows(self) -> list[str]:
        return list(self.chapters.values())[-1]


def html(text: str) -> dict[str, list[str]]:
    """The rows of a page by chapter, sorted."""
    page = _Page()
    page.feed(text)
    return {title: sorted(rows) for title, rows in page.chapters.items() if rows}


def markdown(text: str) -> list[str]:
    """The rows of a Markdown page's tables, without their headers."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        header = number + 1 < len(lines) and re.fullmatch(r"\|[\s:|-]+\|", lines[number + 1])
        if line.startswith("|") and not header and not re.fullmatch(r"\|[\s:|-]+\|", line):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            found.append(row([_plain(cell) for cell in cells]))
    return sorted(found)


def digest(rows: list[str]) -> str:
    """Many rows in one."""
    text = "\n".join(sorted(rows)).encode()
    return f"{len(rows)} rows, digest {hashlib.sha256(text).hexdigest()[:8]}"


def _plain(cell: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell.replace("\\[", "\0").replace("\\]", "\1"))
    text = unescape(text.replace("\0", "[").replace("\1", "]").replace("**", ""))
    return re.sub(r"\\(.)", r"\1", text)
