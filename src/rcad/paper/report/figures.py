"""What all pictures of records share: the grid of panels, how published numbers look, the warning of a small scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rcad.paper.record import Study
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import PAPER

PUBLISHED: dict[str, Any] = {"color": PAPER, "mfc": "none", "mew": 1.4}


def panels(count: int, width: float, height: float, *, left: float, below: float, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, row by row, at most three side by side; width and height are those of a panel."""
    across = min(3, count)
    down = -(-count // across)
    figure = drawing.blank(left + width * across, height * down + below)
    axes = figure.subplots(down, across, squeeze=False, **options).ravel()
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure, axes


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
