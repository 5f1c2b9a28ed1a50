"""Pictures for a page: a matplotlib figure as SVG text that can stand inside HTML."""

from __future__ import annotations

import hashlib
import io
import re
from typing import Any

from rcad.errors import MissingExtraError
from rcad.report.page import EXTRA

_AROUND = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)
# The date, comments that repeat every label, and a style sheet that would reach the whole page.
_DROPPED = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL)
_NAMES = re.compile(r'(\bid="|href="#|url\(#)')
_SIZE = re.compile(r' (width|height)="[^"]*"')


def blank(width: float, height: float) -> Any:
    """A new matplotlib figure of this size in inches, apart from pyplot and its windows."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", EXTRA) from None
    return Figure(figsize=(width, height), layout="constrained")


def inline(figure: Any, *, prefix: str | None = None) -> str:
    """The figure as one `<svg>` element, the same text each time.

    Args:
        figure: a matplotlib figure.
        prefix: of every id in it, which must differ between the pictures of a page. By default it is made of the
            content, which is enough unless a page shows the same picture twice.
    """
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("matplotlib", EXTRA) from None
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "rcad", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = _DROPPED.sub("", _AROUND.sub("", buffer.getvalue(), count=1))
    head, tag_end, rest = text.partition(">")
    text = f'{_SIZE.sub("", head)} style="stroke-linejoin: round; stroke-linecap: butt"{tag_end}{rest}'
    name = prefix or "f" + hashlib.sha256(text.encode()).hexdigest()[:10]
    return _NAMES.sub(rf"\g<1>{name}-", text).strip()
