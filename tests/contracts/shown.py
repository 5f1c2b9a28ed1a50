"""What a page shows, without its wording: rows of tables as numbers, verdicts and short labels."""

import hashlib
import re
from html import unescape
from pathlib import Path

_NUMBER = re.compile(r"(?<![\w.])(?:[TF]\d\b|[<+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?)")
_TARGET = re.compile(r"([TF]\d): .*")
_PART = re.compile(r"<h2[^>]*>(.*?)</h2>|(<details|</details>)|<tr[^>]*>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]{2,}")
LABEL = 3  # so many words are a name; more are a sentence, of which only the numbers count


def reduced(cell: str) -> str:
    text = " ".join(re.sub(r"[()]", " ", cell.replace("\N{MINUS SIGN}", "-")).split())
    if len(_WORD.findall(text)) <= LABEL:
        return text
    return " ".join(one.rstrip(",") for one in _NUMBER.findall(text))


def row(cells: list[str]) -> str:
    return " | ".join(filter(None, map(reduced, cells)))


def html(text: str) -> dict[str, list[str]]:
    """The rows of a page's tables by chapter, sorted; of a folded table how many there are, and a digest."""
    chapters: dict[str, list[str]] = {}
    folded: list[str] | None = None
    for heading, fold, cells in _PART.findall(re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)):
        if heading:
            title = " ".join(_text(heading).split())
            target = _TARGET.sub(r"\1", title)
            rows = chapters[title if target in chapters else target] = []
        elif fold == "<details":
            folded = []
        elif fold:
            rows += [digest(folded)] if folded else []
            folded = None
        elif found := _CELL.findall(cells):
            (rows if folded is None else folded).append(row([_text(cell) for cell in found]))
    return {title: sorted(rows) for title, rows in chapters.items() if rows}


def _text(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", markup))


def markdown(page: Path) -> list[str]:
    """The rows of a Markdown page's tables, without their headers."""
    text = re.sub(r"^\|.*\n\|[\s:|-]+\|$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.findall(r"^\|(.*?)\|*\s*$", text, re.MULTILINE)
    return sorted(row([_plain(cell) for cell in re.split(r"(?<!\\)\|", line)]) for line in lines)


def digest(rows: list[str]) -> str:
    text = "\n".join(sorted(rows)).encode()
    return f"{len(rows)} rows, digest {hashlib.sha256(text).hexdigest()[:8]}"


def _plain(cell: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell.replace("\\[", "\0").replace("\\]", "\1"))
    text = unescape(text.replace("\0", "[").replace("\1", "]").replace("**", ""))
    return re.sub(r"\\(.)", r"\1", text)
