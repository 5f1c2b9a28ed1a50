"""What is found out before training: `rcad doctor` finds the traps, `rcad suggest-alpha` how far RCAD should step."""

import re
from pathlib import Path

import pytest

from cli.conftest import Cli
from made import files, images, png, table
from rcad.cli import doctor


def test_what_is_bad_ends_with_1(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "machine", list)
    files(runs="a file", torn__0123456789abcdef__record_dot_json="{")
    result = cli("doctor", "--data-dir", "nowhere")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "bad data nowhere is no folder; correct --data-dir or RCAD_DATA" in lines
    assert "bad runs runs is no folder; pass another --runs" in lines
    assert (result.code, lines[-1]) == (1, "2 bad, 0 to look at; the rest is fine")
    assert "1 record broken" in cli("doctor", "--runs", "torn").out


def test_the_torchvision_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"torchvision": "0.28.0", "torch": "2.13.0", "timm": "1.0"}
    monkeypatch.setattr(doctor, "version", installed.get)
    assert doctor.torchvision_trap(None, "").level == doctor.torchvision_trap(0, "").level == "ok"
    trapped = doctor.torchvision_trap(1, "RuntimeError: operator torchvision::nms does not exist")
    assert (trapped.level, "takes timm down" in trapped.text, "nms" in trapped.text) == ("bad", True, True)
    del installed["timm"]
    assert doctor.torchvision_trap(1, "x").level == "warn"


def test_the_bf16_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._tried("import sys; sys.exit('no such operator')") == (1, "no such operator")
    dies_unless_set = "import os; os.environ.get('ONEDNN_MAX_CPU_ISA') or os.kill(os.getpid(), 4)"
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(doctor, "BF16", dies_unless_set)
    check = doctor.bf16_trap(*doctor._tried(doctor.BF16))
    assert (check.level, "SIGILL" in check.text) == ("warn", True)
    assert check.remedy == "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts"
    assert doctor.bf16_trap(0, "").level == "ok"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", {"typer": "0.29"}.get)
    check = doctor.extra("cli")
    assert (check.level, check.remedy) == ("warn", "pip install -c constraints.txt -e '.[cli]'")
    assert "rich is missing" in check.text
    assert doctor.extra("timm") == ("extra timm", "ok", doctor.NOT_INSTALLED, "")  # nobody needs all of them


@pytest.mark.parametrize(("name", "start"), [("curve.png", b"\x89PNG"), ("curve.svg", b"<?xml")])
def test_the_measurement_and_its_curve(done: Cli, name: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    result = done("suggest-alpha", "--data", "digits[:100]", "--figure", name)
    assert result.out.splitlines()[1].startswith("try alpha 1.1")  # the number first, then what was checked
    assert "ERM's predictions flip" in result.out
    assert result.out.endswith(f"{name}\n")
    assert Path(name).read_bytes().startswith(start)


def test_the_curve_begins_well_below_where_predictions_flip(done: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rcad.cli.suggest.FACTORS", (1.0, 2.0))
    found = done("suggest-alpha", "--data", "digits[:100]", "--json").json()
    assert found["alpha"] == pytest.approx(found["distance"]["0.5"] / 2)
    still, lowest, *_ = found["curve"]
    alphas = [row["alpha"] for row in found["curve"]]
    assert (still["alpha"], alphas) == (0.0, sorted({*alphas}))
    assert 0 < lowest["alpha"] <= found["flip_distance"] / 4
    assert (found["flip_distance"] in alphas, lowest["flipped"] < 0.5) == (True, True)


def test_for_regression_it_names_the_alpha_of_train(done: Cli, cli: Cli) -> None:
    """A table with a category, whose columns of 0 and 1 vary less than standardised ones."""
    files(my_dot_csv=table())
    trained = done("train", "--data", "my.csv", "--target", "price", "--method", "rcad", "--epochs", "1")
    (alpha,) = {*re.findall(r"rcad\(alpha=([0-9.]+)", trained.out + trained.err)}
    assert 0.1 < float(alpha) < 0.3
    told = cli("suggest-alpha", "--data", "my.csv", "--target", "price").err
    assert told.endswith(f"my.csv has regression targets; begin at alpha = {alpha}, which rcad train takes for them\n")


def test_images_of_differing_sizes(done: Cli, cli: Cli) -> None:
    images()
    Path("images/class0/0.png").write_bytes(png(12))
    refused = cli("suggest-alpha", "--data", "images", "--no-check")
    assert refused.code == 2
    assert "pass size= (--size or --set data.size=), e.g. 8, to resize and crop them" in refused.err
    assert cli("compare", "--data", "images").err == refused.err  # it has --set, and no --size
    done("tune", "--method", "erm", "--data", "images", "--set", "data.size=6", "--budget", "1", "--epochs", "1", "-q")
    sized = done("suggest-alpha", "--data", "images", "--no-check", "--size", "6")
    assert "inputs of shape (3, 6, 6)" in sized.out
