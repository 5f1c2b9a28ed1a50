"""Every example runs as a user would run it, prints what it promises and complains about nothing."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
KEY_LINES = {
    "own_loop": [
        r"^RCAD +\d\d\.\d ± \d\.\d   \d\.\d{3} ± \d\.\d{3}$",
        r"^RCAD against ERM: accuracy (won|lost|even), NLL (won|lost|even)$",
        r"^RCAD against random direction: accuracy (won|lost|even), NLL (won|lost|even)$",
    ],
    "compose": [
        r"^mixup \+ label_smoothing \+ rcad: \d\d\.\d% of 1297 test images",
        r"^written as JSON and read back: mixup\(alpha=0\.2\) \+ label_smoothing\(.*\) \+ rcad\(alpha=1\.0, .*\)$",
        r"^conflict: expected one method to set the mix augmentation, but got 'mixup' and 'cutmix'$",
    ],
    "regression": [
        r"^RCAD +5\.\d{3} ± 0\.\d{3} +5\d\.\d ± \d\.\d$",
        r"^NLL, random direction minus RCAD: [+-]\d\.\d{3} ± \d\.\d{3} \(standard error\)$",
    ],
    "embeddings": [
        r"^longest step of a padding position: 0\.0$",
        r"^length of each example's whole step: \[2\.0(, 2\.0){7}\]$",
    ],
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(KEY_LINES)


@pytest.mark.parametrize("name", KEY_LINES)
def test_an_example_is_short_and_says_what_it_shows(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    summary = ast.get_docstring(ast.parse(text))
    assert summary is not None
    assert len(summary.splitlines()) == 2
    assert 40 <= len(text.splitlines()) <= 90


@pytest.mark.slow
@pytest.mark.parametrize("name", KEY_LINES)
def test_an_example_runs_and_prints_its_key_lines(name: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONWARNINGS": "default"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for line in KEY_LINES[name]:
        assert re.search(line, done.stdout, re.MULTILINE), f"expected a line like {line}, but got\n{done.stdout}"
