"""The package passes the type checker: a test, so that it runs beside the others on a core of its own."""

import subprocess
import sys

import pytest

from contracts.house import ROOT


@pytest.mark.slow  # `make check` has asked before
def test_every_type_is_right() -> None:
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
