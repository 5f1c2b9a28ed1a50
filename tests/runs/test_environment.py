from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import rcad.runs
from rcad.runs.environment import commit, versions

FOLDER = Path(rcad.runs.__file__).parent
ENGINE = ("configure",)  # it needs the data
IMPORT_ALL = f"""
import importlib, sys, types
package = types.ModuleType("rcad")
package.__path__ = [{str(FOLDER.parent)!r}]
sys.modules["rcad"] = package
for name in {sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ENGINE)!r}:
    importlib.import_module(f"rcad.runs.{{name}}" if name != "__init__" else "rcad.runs")
from rcad.runs.environment import versions
versions()
print(sorted({{name.partition(".")[0] for name in sys.modules}} & {{"torch", "numpy", "pyarrow", "pandas"}}))
"""


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "tag", "-a", "v1", "-m", "v1")
    return tmp_path


def test_versions() -> None:
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["torch"] == metadata.version("torch")
    assert set(versions(["rcad", "no-such-package"])) == {"python", "rcad"}


def test_nothing_here_imports_anything_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commit_of_a_checkout(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert commit(checkout / "code.py") == head
    (checkout / "code.py").write_text("x = 2\n")
    commit.cache_clear()
    assert commit(checkout / "code.py") == f"{head}-dirty"


def test_an_untracked_file_has_no_commit(checkout: Path) -> None:
    """As of a package installed into an environment inside somebody's repository."""
    (checkout / "installed.py").write_text("")
    assert commit(checkout / "installed.py") is None


def test_no_checkout_and_no_git(tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert commit(checkout / "code.py") is None


def test_the_callers_git_variables_do_not_mislead(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    commit.cache_clear()
    assert commit(checkout / "code.py") == head
