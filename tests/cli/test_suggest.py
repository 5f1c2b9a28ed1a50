"""`rcad suggest-alpha` and alpha=auto."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.conftest import Cli
from made import images, png


def test_the_measurement_and_its_curve(cli: Cli) -> None:
    result = cli("suggest-alpha", "--data", "digits[:100]")
    assert result.code == 0
    assert result.out.splitlines()[1].startswith("try alpha 1.1")  # the number first, then what was checked
    assert "half the distance between classes" in result.out
    assert "ERM's predictions flip" in result.out


def test_json(cli: Cli) -> None:
    found = json.loads(cli("suggest-alpha", "--data", "digits[:100]", "--json").out)
    assert found["alpha"] == pytest.approx(found["distance"]["0.5"] / 2)
    assert [row["alpha"] for row in found["curve"]] == sorted(row["alpha"] for row in found["curve"])
    assert found["curve"][0]["accuracy"] > found["curve"][-1]["accuracy"]
    assert found["flip_distance"] in [row["alpha"] for row in found["curve"]]
    bare = json.loads(cli("suggest-alpha", "--data", "digits[:100]", "--no-check", "--json").out)
    assert bare["curve"] == []


def test_images_of_differing_sizes(cli: Cli) -> None:
    images()
    Path("images/class0/0.png").write_bytes(png(12))
    refused = cli("suggest-alpha", "--data", "images", "--no-check")
    assert refused.code == 2
    assert "pass size= (--size or --set data.size=), e.g. 8, to resize and crop them" in refused.err
    for words in (("tune", "--method", "rcad"), ("compare",)):  # they have --set, and no --size
        assert cli(*words, "--data", "images").err == refused.err
    sized = ("--data", "images", "--set", "data.size=6", "--budget", "1", "--epochs", "1", "-q")
    assert cli("tune", "--method", "erm", *sized).code == 0
    result = cli("suggest-alpha", "--data", "images", "--no-check", "--size", "6")
    assert result.code == 0, result.err
    assert "inputs of shape (3, 6, 6)" in result.out


@pytest.mark.parametrize(("name", "start"), [("curve.png", b"\x89PNG"), ("curve.svg", b"<?xml")])
def test_the_curve_as_a_picture(name: str, start: bytes, cli: Cli) -> None:
    pytest.importorskip("matplotlib")
    result = cli("suggest-alpha", "--data", "digits[:100]", "--figure", name)
    assert result.code == 0, result.err
    assert result.out.endswith(f"{name}\n")
    assert Path(name).read_bytes().startswith(start)
    assert [path.name for path in Path().iterdir() if "curve" in path.name] == [name]


def test_without_matplotlib_nothing_is_computed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = cli("suggest-alpha", "--data", "no-such-data", "--figure", "a.png")
    assert result.code == 2
    assert 'expected matplotlib to be installed: pip install "rcad[report]"' in result.err


def test_auto_is_used_and_recorded(cli: Cli) -> None:
    options = ["--data", "digits[:100]", "--method", "rcad(alpha=auto, lam=0.5)", "--epochs", "1"]
    assert cli("train", *options).code == 0
    (record,) = Path("runs").glob("*/record.json")
    method = json.loads(record.read_text())["resolved"]["method"]
    assert method.startswith("rcad(alpha=1.")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["suggest-alpha"], "--data"),
        (["suggest-alpha", "--data", "diabetes"], "diabetes has real targets; choose alpha by rcad tune"),
        (["suggest-alpha", "--data", "no-such-data"], "no-such-data"),
        (["suggest-alpha", "--data", "digits", "--figure", "a.gif"], "to end in .png or .svg, but got 'a.gif'"),
        (["suggest-alpha", "--data", "digits", "--figure", "no/a.png"], "expected a folder to write no/a.png to"),
        (["suggest-alpha", "--data", "digits", "--figure", "a.png", "--no-check"], "expected --check with --figure"),
        (
            ["train", "--data", "diabetes", "--method", "rcad(alpha=auto)"],
            "expected class labels to measure alpha=auto",
        ),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], says: str, cli: Cli) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert says in result.err
    assert len(result.err.strip().splitlines()) == 1
