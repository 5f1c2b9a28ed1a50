"""The picture of `rcad suggest-alpha`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rcad.errors import InputError
from rcad.evaluate.alpha_figure import check_path, draw
from rcad.loss.suggest_alpha import Along

pytest.importorskip("matplotlib")
ROWS = [Along(0.0, 1.0, 0.1, 0.0), Along(0.5, 0.7, 0.5, 0.3), Along(1.0, 0.2, 0.6, 0.8), Along(2.0, 0.0, 0.4, 1.0)]


@pytest.mark.parametrize(("form", "start", "flip"), [("png", b"\x89PNG", None), ("svg", b"<?xml", 1.0)])
def test_both_formats(form: str, start: bytes, flip: float | None) -> None:
    file = io.BytesIO()
    draw(ROWS, 0.5, flip, file, form)
    assert file.getvalue().startswith(start)


def test_the_name_tells_the_format() -> None:
    check_path(Path("a.PNG"))
    with pytest.raises(InputError, match=r"expected a picture's name to end in .png or .svg, but got 'a.jpg'"):
        check_path(Path("a.jpg"))
