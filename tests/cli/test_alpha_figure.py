"""The picture of `rcad suggest-alpha`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rcad.cli.suggest import draw
from rcad.loss.suggest_alpha import Along

pytest.importorskip("matplotlib")
ROWS = [Along(0.0, 1.0, 0.1, 0.0), Along(0.5, 0.7, 0.5, 0.3), Along(1.0, 0.2, 0.6, 0.8), Along(2.0, 0.0, 0.4, 1.0)]


@pytest.mark.parametrize(("form", "start", "flip"), [("png", b"\x89PNG", None), ("svg", b"<?xml", 1.0)])
def test_both_formats(tmp_path: Path, form: str, start: bytes, flip: float | None) -> None:
    draw(ROWS, 0.5, flip, tmp_path / f"a.{form}")
    assert (tmp_path / f"a.{form}").read_bytes().startswith(start)
