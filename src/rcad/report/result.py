"""What a study gives back to Python: an object that shows itself in a notebook, in a terminal and in a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from rcad.report.document import Document, Table


class Result(ABC):
    """Something with a document: its verdict, table and figures, and how notebooks show it."""

    @property
    @abstractmethod
    def document(self) -> Document:
        """All that it says."""

    @property
    def verdict(self) -> str:
        """The answer, in a sentence or a few."""
        return self.document.sections[0].verdict

    @property
    def table(self) -> Table:
        """The first table."""
        return self.document.tables[0]

    @property
    def figures(self) -> list[Any]:
        """Every figure, as matplotlib has them."""
        return [figure.drawing for figure in self.document.figures]

    def _repr_html_(self) -> str:
        from rcad.report import html

        return html.fragment(self.document)

    def _repr_markdown_(self) -> str:
        from rcad.report.markdown import markdown

        return markdown(self.document)

    def __str__(self) -> str:
        from rcad.report.terminal import text

        return text(self.document)
