"""Options are named by us: some versions of Typer derive the name from the metavar's letters."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rcad.cli

FILES = sorted(Path(rcad.cli.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_option_has_its_name_written_out(path: Path) -> None:
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "typer.Option":
            first = call.args[0] if call.args else None
            named = isinstance(first, ast.Constant) and str(first.value).startswith("--")
            assert named, f"line {call.lineno}: {ast.unparse(call)[:80]}"
