"""The one style of all pictures: colours that stay apart for colour-blind readers, labels that fit, limits that hold.

Figures are made apart from pyplot and drawn by Agg and the SVG writer, whatever MPLBACKEND says.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rcad.errors import need
from rcad.report.document import EXTRA, Figure

_AROUND = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)
# The date, comments that repeat every label, and a style sheet that would reach the whole page.
_DROPPED = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL)
_NAMES = re.compile(r'(\bid="|href="#|url\(#)')
_SIZE = re.compile(r' (width|height)="[^"]*"')
# Okabe and Ito's colours. The one for the paper's numbers is used for nothing else.
BLACK, BLUE, VERMILION, GREEN = "#000000", "#0072B2", "#D55E00", "#009E73"
ORANGE, SKY, PAPER = "#E69F00", "#56B4E9", "#CC79A7"
GREY, LIGHT = "#666666", "#BBBBBB"
# The first fragment found in a method's name decides.
_BY_NAME = (
    ("random", VERMILION),
    ("adversarial direction", BLUE),
    ("entropy at", ORANGE),
    ("rcad", BLUE),
    ("me-ada", "#8B6914"),
    ("fgsm", GREEN),
    ("adversarial", GREEN),
    ("smoothing", SKY),
)
_SPARE = ("#8B6914", "#5D3A9B", GREEN, ORANGE, SKY, VERMILION, GREY)


def matplotlib() -> Any:
    """The package, or a `MissingExtraError`. A notebook sets MPLBACKEND to one that this process may not have."""
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        need("matplotlib.figure", "matplotlib", EXTRA)
        return need("matplotlib", "matplotlib", EXTRA)
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def blank(width: float, height: float) -> Any:
    """A new matplotlib figure of this size in inches, apart from pyplot and its windows."""
    figure = matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
    need("matplotlib.backends.backend_agg", "matplotlib", EXTRA).FigureCanvasAgg(figure)
    return figure


def axes(width: float, height: float) -> tuple[Any, Any]:
    """A new figure of this size in inches, and its bare axes."""
    figure, ((ax,),) = grid(width, height, 1, 1)
    return figure, ax


def grid(width: float, height: float, down: int, across: int, **options: Any) -> tuple[Any, Any]:
    """A new figure of this size in inches, and an array of bare axes."""
    figure = blank(width, height)
    array = figure.subplots(down, across, squeeze=False, **options)
    for ax in array.flat:
        bare(ax)
    return figure, array


def panels(count: int, width: float, height: float, *, left: float, below: float, **options: Any) -> tuple[Any, Any]:
    """A figure and its bare axes, row by row, at most three side by side; width and height are those of a panel."""
    across = min(3, count)
    down = -(-count // across)
    figure, array = grid(left + width * across, height * down + below, down, across, **options)
    for ax in array.flat[count:]:
        ax.set_visible(False)
    return figure, array.ravel()


def inline(figure: Any) -> str:
    """A matplotlib figure as one `<svg>` element, the same text each time; its ids begin with a sum of its content."""
    text = _DROPPED.sub("", _AROUND.sub("", picture(figure, "svg").decode(), count=1))
    head, tag_end, content = text.partition(">")
    text = f'{_SIZE.sub("", head)} style="stroke-linejoin: round; stroke-linecap: butt"{tag_end}{content}'
    name = "f" + hashlib.sha256(text.encode()).hexdigest()[:10]
    return _NAMES.sub(rf"\g<1>{name}-", text).strip()


FORMS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 150, "metadata": {"Software": None}},
    "pdf": {"metadata": {"CreationDate": None, "Producer": None, "Creator": None}},
    "svg": {"metadata": {"Date": None}},
}
"""How each kind of file is written: no dates inside, so that the same records give the same files."""


def picture(figure: Any, form: str) -> bytes:
    """The file of a matplotlib figure as "png", "pdf" or "svg"."""
    buffer = io.BytesIO()
    with matplotlib().rc_context({"svg.hashsalt": "rcad", "svg.fonttype": "path"}):
        figure.savefig(buffer, format=form, **FORMS[form])
    return buffer.getvalue()


def save(figures: Iterable[Figure], folder: Path, forms: Sequence[str] = ("png",)) -> list[Path]:
    """Write the files of the figures that have a name into a folder that is there; returns their paths."""
    files = []
    for figure in figures:
        for form in forms if figure.name and not isinstance(figure.drawing, str) else ():
            files.append(folder / f"{figure.name}.{form}")
            part = files[-1].with_name(f".{files[-1].name}.part")
            part.write_bytes(picture(figure.drawing, form))
            part.replace(files[-1])  # where it is, it is whole
    return files


def colour_of(name: str) -> str:
    """A method keeps its colour on every picture; those without one are grey."""
    low = name.casefold()
    whole = {"erm": BLACK, "ls": SKY}
    return whole.get(low) or next((colour for part, colour in _BY_NAME if part in low), GREY)


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Different colours for the lines of one picture, as far as there are colours."""
    colours: dict[str, str] = {}
    for name in names:
        colour = colour_of(name)
        if colour == GREY or colour in colours.values():
            colour = next((spare for spare in _SPARE if spare not in colours.values()), GREY)
        colours[name] = colour
    return colours


def label(text: str, width: int = 26, lines: int = 2) -> str:
    """Text for a picture: wrapped, cut, no formulas, and only signs that the font has."""
    drawable = _signs()
    plain = "".join(sign if ord(sign) in drawable else "\N{WHITE SQUARE}" for sign in " ".join(text.split()))
    wrapped = textwrap.wrap(plain, width, max_lines=lines, placeholder=" …") or [""]
    return "\n".join(wrapped).replace("$", r"\$")


@cache
def _signs() -> frozenset[int]:
    matplotlib()
    from matplotlib import font_manager

    return frozenset(font_manager.get_font(font_manager.findfont("DejaVu Sans")).get_charmap())


def limits(values: Iterable[float], *, around: float | None = None, reach: float = 4.0) -> tuple[float, float]:
    """A range for an axis that a few wild values cannot squeeze; what lies outside is marked at its edge.

    `around` must be inside; `reach` is how far from the middle half a value may lie, in widths of that half.
    """
    ordered = sorted(values)
    if not ordered:
        return (0.0, 1.0)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    far = reach * (high - low)
    inside = [value for value in ordered if low - far <= value <= high + far]
    inside += [] if around is None else [around]
    margin = 0.06 * (max(inside) - min(inside)) or 0.5
    return min(inside) - margin, max(inside) + margin


def bare(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8.5)


def stamp(figure: Any, warning: str) -> None:
    """A picture may travel without its page, so it carries the warning itself."""
    if warning:
        figure.suptitle(warning.partition(".")[0], color="#A33B00", fontsize=9.5, fontweight="bold")


def strip(ax: Any, values: Sequence[float], place: float, colour: str, *, upright: bool = False) -> None:
    """Seeds as dots, a little apart across their line so that none hides another."""
    across = [place + 0.09 * ((k % 3) - 1) for k in range(len(values))]
    x, y = (across, values) if upright else (values, across)
    ax.plot(x, y, "o", color=colour, ms=3.6, alpha=0.55, mec="none", zorder=3)


def beyond(ax: Any, values: Sequence[float], place: float, bounds: tuple[float, float]) -> None:
    """How many dots lie outside, at the edge that they left by."""
    low, high = bounds
    style = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 7.5, "color": GREY, "zorder": 5}
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
    for count, edge, align, text in (
        (sum(value < low for value in values), 0.01, "left", "← {} beyond"),
        (sum(value > high for value in values), 0.99, "right", "{} beyond →"),
    ):
        if count:
            ax.text(edge, place, text.format(count), ha=align, bbox=box, **style)


def legend(figure: Any, handles: Sequence[Any], columns: int = 4) -> None:
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8.5, frameon=False)


def finish(
    figure: Any, keys: Sequence[Any], caption: str, alt: str, name: str, *, columns: int = 4, wide: bool = False
) -> Figure:
    """The picture of a document, with a legend of so many columns."""
    legend(figure, keys, columns)
    return Figure(figure, caption, alt, wide, name)


PUBLISHED: dict[str, Any] = {"color": PAPER, "mfc": "none", "mew": 1.4}
"""How published numbers look."""


def published_key(ax: Any, **style: Any) -> Any:
    """The entry of the legend for what the paper prints."""
    return key(ax, "as published", **{"marker": "D", "ls": "", "ms": 5, **PUBLISHED, **style})


def key(ax: Any, text: str, **style: Any) -> Any:
    """An entry for a legend, drawn nowhere."""
    (handle,) = ax.plot([], [], label=text, **style)
    return handle
