"""`rcad suggest-alpha` and alpha=auto."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Cli
from made import images, png


@pytest.mark.parametrize(("name", "start"), [("curve.png", b"\x89PNG"), ("curve.svg", b"<?xml")])
def test_the_measurement_and_its_curve(done: Cli, name: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    result = done("suggest-alpha", "--data", "digits[:100]", "--figure", name)
    assert result.out.splitlines()[1].startswith("try alpha 1.1")  # the number first, then what was checked
    assert "half the distance between classes" in result.out
    assert "ERM's predictions flip" in result.out
    assert result.out.endswith(f"{name}\n")
    assert Path(name).read_bytes().startswith(start)
    assert [path.name for path in Path().iterdir() if "curve" in path.name] == [name]


def test_json(done: Cli) -> None:
    found = done("suggest-alpha", "--data", "digits[:100]", "--json").json()
    assert found["alpha"] == pytest.approx(found["distance"]["0.5"] / 2)
    alphas = [row["alpha"] for row in found["curve"]]
    assert alphas == sorted(alphas)
    assert found["curve"][0]["accuracy"] > found["curve"][-1]["accuracy"]
    assert found["flip_distance"] in alphas
    assert done("suggest-alpha", "--data", "digits[:100]", "--no-check", "--json").json()["curve"] == []


def test_images_of_differing_sizes(done: Cli, cli: Cli) -> None:
    images()
    Path("images/class0/0.png").write_bytes(png(12))
    refused = cli("suggest-alpha", "--data", "images", "--no-check")
    assert refused.code == 2
    assert "pass size= (--size or --set data.size=), e.g. 8, to resize and crop them" in refused.err
    for words in (("tune", "--method", "rcad"), ("compare",)):  # they have --set, and no --size
        assert cli(*words, "--data", "images").err == refused.err
    sized = ("--data", "images", "--set", "data.size=6", "--budget", "1", "--epochs", "1", "-q")
    done("tune", "--method", "erm", *sized)
    result = done("suggest-alpha", "--data", "images", "--no-check", "--size", "6")
    assert "inputs of shape (3, 6, 6)" in result.out
