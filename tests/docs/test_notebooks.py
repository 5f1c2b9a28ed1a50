"""Every notebook has its outputs, and its cells run, with fewer seeds and epochs than it shows."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))
FAST = {"own_data": "EPOCHS = 1", "does_it_help": "SEEDS, EPOCHS, BUDGET = 3, 1, 1"}
"""What the cell tagged "parameters" says here."""


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def source(cell: dict[str, Any], parameters: str) -> str:
    """The code of a cell; a line `!rcad train {x}` becomes a call."""
    if "parameters" in cell["metadata"].get("tags", ()):
        return parameters
    return re.sub(r"^!rcad (.*)$", r'rcad_command(f"""\1""")', "".join(cell["source"]), flags=re.MULTILINE)


def rcad_command(line: str) -> None:
    from rcad.cli.main import run

    assert run(shlex.split(line)) == 0, line


def test_each_has_a_fast_form() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(FAST)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_from_top_to_bottom(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert sum("text/html" in output.get("data", {}) for output in outputs) >= 2
    text = path.read_text(encoding="utf-8")
    assert len(text) < 600_000
    assert not re.search(r"/(home|root|tmp|work|Users)/|\\u001b\[2K", text)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RCAD_CACHE", str(tmp_path / "cache"))
    names: dict[str, Any] = {"__name__": "__main__", "rcad_command": rcad_command}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for number, cell in enumerate(code_cells(path), start=1):
            exec(compile(source(cell, FAST[path.stem]), f"{path.name}, cell {number}", "exec"), names)
    shown = {"own_data": "train on it: rcad train", "does_it_help": "NLL: rcad "}[path.stem]
    assert shown in printed.getvalue()
