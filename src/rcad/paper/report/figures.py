"""What all pictures of records share: how published numbers look, the warning of a small scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rcad.paper.record import Study
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import PAPER

PUBLISHED: dict[str, Any] = {"color": PAPER, "mfc": "none", "mew": 1.4}


def published_key(ax: Any, **style: Any) -> Any:
    """The entry of the legend for what the paper prints."""
    return drawing.key(ax, "as published", **{"marker": "D", "ls": "", "ms": 5, **PUBLISHED, **style})


def finish(
    figure: Any,
    study: Study,
    keys: Sequence[Any],
    caption: str,
    alt: str,
    name: str,
    *,
    wide: bool = False,
    columns: int = 4,
) -> Figure:
    """The picture with its legend of so many columns, and with the warning that it carries wherever it goes."""
    drawing.legend(figure, keys, columns)
    drawing.stamp(figure, study.warning)
    return Figure(figure, caption, alt, wide=wide, name=f"{study.stem}-{name}")
