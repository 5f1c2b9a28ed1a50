"""`rcad paper`: trials end in a record, a page and a picture; what is there is not computed again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Cli
from rcad.experiments.suites import boundaries, uci

pytest.importorskip("matplotlib")


def test_list(cli: Cli) -> None:
    result = cli("paper", "list", "--json")
    assert [row["name"] for row in json.loads(result.out)] == ["T7", "T8", "F5", "F7"]
    assert cli("paper", "list").out.count("\n") == 6


@pytest.mark.parametrize(("name", "stem"), [("T7", "uci/uci"), ("T8", "moons/moons"), ("F7", "moons/boundaries")])
def test_a_trial_and_again(name: str, stem: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cli("paper", "run", name.lower(), "--scale", "smoke", "--out", "out")
    assert first.code == 0, first.err
    assert f"{name}: " in first.err
    record = json.loads(Path(f"out/{stem}.json").read_text())
    assert (record["target"], record["scale"]) == (name, "smoke")
    assert {"settings", "versions", "results", "seconds", "not_finite"} <= record.keys()
    page = Path(f"out/{stem}.md").read_text()
    assert "its numbers mean nothing" in page
    assert Path(f"out/{stem}.png").read_bytes().startswith(b"\x89PNG")

    def never(*arguments: object) -> None:
        raise AssertionError("computed again")

    for module in ("boundaries", "moons", "uci"):
        monkeypatch.setattr(f"rcad.experiments.suites.{module}.run", never)
    second = cli("paper", "run", name, "--scale", "smoke", "--out", "out")
    assert second.code == 0
    assert "the numbers were there already" in second.out
    assert json.loads(Path(f"out/{stem}.json").read_text()) == record
    assert Path(f"out/{stem}.md").read_text() == page
    assert cli("paper", "run", name, "--scale", "smoke", "--out", "out", "--again").code == 1


def test_a_trial_does_not_replace_the_full_scale(cli: Cli) -> None:
    cli("paper", "run", "F7", "--scale", "smoke")
    path = Path("results/moons/boundaries.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "scale": "full"}))
    result = cli("paper", "run", "F7", "--scale", "smoke")
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "pass another --out" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["T9"], "expected NAME to be"),
        (["T7", "--scale", "huge"], "expected --scale to be"),
        (["T7"], "expected a data folder for boston"),
        (["T7", "--data-dir", "nowhere"], "expected boston at nowhere"),
        (["F7", "--scale", "smoke", "--out", "file"], "expected file"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str, cli: Cli) -> None:
    Path("file").write_text("")
    result = cli("paper", "run", *words)
    assert result.code == 2
    assert message in result.err.splitlines()[-1]
    assert result.err.splitlines()[-1].startswith("rcad: ")


def test_a_study_that_must_diverge_ends_in_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(uci.SCALES, "smoke", uci.Settings(("synthetic",), 3, cap=None))
    monkeypatch.setattr(uci, "LAMBDAS", (0.5, 0.95))
    result = cli("paper", "run", "T7", "--scale", "smoke")
    assert result.code == 2
    assert "but got cap=None and lam=0.95" in result.err
    assert not Path("results").exists()


def test_without_matplotlib_there_is_no_picture(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = cli("paper", "run", "F7", "--scale", "smoke")
    assert result.code == 0
    assert "no picture: expected matplotlib" in result.err
    assert not list(Path("results").rglob("*.png*"))
    assert boundaries.SCALES["smoke"].grid == 12


def test_help_and_list_need_no_torch() -> None:
    for words in (["paper", "--help"], ["paper", "list"]):
        code = f"import sys; from rcad.cli.main import run; run({words!r}); print(*sys.modules, file=sys.stderr)"
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert not set(done.stderr.split()) & {"torch", "numpy", "matplotlib", "scipy"}
