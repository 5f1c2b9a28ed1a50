"""Every notebook has the outputs of today's code, and its cells run, with fewer seeds and epochs than it shows."""

import ast
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


def run_cell(code: str, name: str, names: dict[str, Any]) -> Any:
    """Runs a cell; the value of its last line, where that is an expression."""
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None


NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?%?")


def skeleton(text: str) -> list[str]:
    """What a page says whatever its numbers are: headings, headers of tables, captions and how it was judged."""
    lines = [NUMBER.sub("#", line) for line in text.splitlines()]
    headers = {k - 1 for k, line in enumerate(lines) if re.fullmatch(r"[|: -]+", line) and "-" in line}
    kept = ("## ", "Test results:", "Against ", "RCAD against", "The question,", "A method is called", "Effect d")
    return [line for k, line in enumerate(lines) if k in headers or line.startswith(kept)]


def rcad_command(line: str) -> None:
    from rcad.cli.main import run

    assert run(shlex.split(line)) == 0, line


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
            value = run_cell(source(cell, FAST[path.stem]), f"{path.name}, cell {number}", names)
            for stored in (output["data"] for output in cell["outputs"] if output["output_type"] == "execute_result"):
                if "text/markdown" in stored:
                    assert skeleton(value._repr_markdown_()) == skeleton("".join(stored["text/markdown"])), number
                elif isinstance(value, dict):
                    assert list(value) == list(ast.literal_eval("".join(stored["text/plain"]))), number
                elif not hasattr(value, "_repr_html_"):
                    assert NUMBER.sub("#", repr(value)) == NUMBER.sub("#", "".join(stored["text/plain"])), number
    assert {"own_data": "train on it: rcad train", "does_it_help": "NLL: rcad "}[path.stem] in printed.getvalue()
