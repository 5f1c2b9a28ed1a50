"""What the site shows beyond docs/: method cards, the command line, evidence, the API, pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    """A table in Markdown; with `numbers` all columns but the first are flush right."""
    ruler = ["---", *["--:" if numbers else "---"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ruler, *rows))
