"""What a model says along its own adversarial directions, as a picture: entropy and accuracy against alpha."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rcad.errors import InputError
from rcad.report.drawing import blank

if TYPE_CHECKING:
    from rcad.loss.suggest_alpha import Along

FORMATS = (".png", ".svg")


def check_path(path: Path) -> None:
    """The picture's format is known by the end of its name."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"expected a picture's name to end in {' or '.join(FORMATS)}, but got {path.name!r}")


def draw(rows: Sequence[Along], alpha: float, flip: float | None, file: BinaryIO, form: str) -> None:
    """Write the picture.

    Args:
        rows: at growing distances; the one at 0 is drawn as a level, since the axis is logarithmic.
        alpha: the suggestion; half to double of it is marked as the window to tune in.
        flip: where half of the right predictions have flipped, if they do.
        file, form: where to, and "png" or "svg".
    """
    figure = blank(6.4, 4.2)
    left = figure.subplots()
    right = left.twinx()
    moved = [row for row in rows if row.alpha > 0]
    steps = [row.alpha for row in moved]
    left.axvspan(alpha / 2, 2 * alpha, color="#009E73", alpha=0.15, lw=0, label="the window to tune in")
    left.axvline(alpha, color="#009E73", lw=1.8, label=f"half the distance between classes, {alpha:.3g}")
    if flip is not None:
        left.axvline(flip, color="#666666", lw=1.4, ls=":", label=f"ERM's predictions flip, {flip:.3g}")
    left.plot(steps, [100 * row.accuracy for row in moved], "o-", color="#0072B2", label="accuracy (left)")
    right.plot(steps, [row.entropy for row in moved], "s--", color="#D55E00", label="entropy (right)")
    for row in rows:
        if row.alpha == 0:
            left.axhline(100 * row.accuracy, color="#0072B2", lw=0.9, ls=(0, (1, 2)), label="accuracy at x (left)")
    left.set_xscale("log", base=2)
    left.set_xticks(steps, [f"{step:.3g}" for step in steps])
    left.minorticks_off()
    left.set(xlabel="alpha", ylabel="accuracy on moved training examples, %", ylim=(-3, 103))
    right.set(ylabel="mean entropy, nats", ylim=(0, None))
    handles = [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=8.5, frameon=False)
    figure.savefig(file, format=form, dpi=130, metadata={"Date": None} if form == "svg" else {"Software": None})
