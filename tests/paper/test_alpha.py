"""The study of the measured alpha."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from rcad.loss.suggest_alpha import suggest_alpha
from rcad.paper import alpha as study
from rcad.paper.alpha import main
from rcad.paper.record import Study

pytest.importorskip("sklearn")


def quiet(what: str, done: int, total: int) -> None:
    pass


def table(splits: int = 3) -> Study:
    """What T7's record has to hold, on made-up data."""
    return Study(
        target="T7",
        title="made up",
        settings={"arms": {"rcad": {"candidates": [{"alpha": 0.1}, {"alpha": 1.0}]}}},
        details={"tuning": {"synthetic": {"rcad": {"chosen": [0, 1, 1][:splits]}}}},
    )


def test_noise_that_all_share_does_not_change_the_excess() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2
    plane = torch.stack([0.6 * y + 0.01 * torch.randn(400, generator=generator), torch.zeros(400)], 1)
    noise = 0.1 * torch.randn(400, 300, generator=generator)
    noisy = torch.cat([plane, noise], 1)
    assert study.excess(plane, y) == pytest.approx(0.3, abs=0.02)
    assert study.excess(noisy, y) == pytest.approx(0.3, abs=0.05)
    assert suggest_alpha(noisy, y) > 3 * suggest_alpha(plane, y)


def test_classes_that_are_not_apart_have_no_excess() -> None:
    x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    assert study.excess(x, torch.tensor([0, 1, 0, 1])) == 0


def test_linear_rows() -> None:
    (row,) = study.linear(study.SCALES["smoke"], quiet)
    assert row["helpful"]
    assert min(row["helpful"]) <= row["best_alpha"] <= max(row["helpful"])
    assert row["best"] > row["erm"]
    assert {"alpha", "accuracy"} == set(row["suggested"]) == set(row["excess"])


def test_the_best_of_a_grid_and_the_suggestion_beside() -> None:
    row = study.moons(study.SCALES["smoke"], quiet)[0]
    means = np.asarray(row["grid"]).mean(1)
    assert (row["best_alpha"], row["best"]) == (row["alphas"][means.argmax()], means.max())
    assert {"alpha", "accuracy"} == set(row["suggested"]) == set(row["excess"])
    assert 0 <= row["erm"] <= 100


def test_real_targets() -> None:
    (row,) = study.regression(study.Settings(), table(), None, quiet)
    assert (row["dataset"], row["tuned"]) == ("synthetic", [0.1, 1.0, 1.0])
    assert len(row["rule"]) == 3
    assert all(0.1 < value < 3 for value in row["rule"])


def test_digits_judge_by_other_images() -> None:
    row = study.digits(study.SCALES["smoke"], quiet)
    assert np.asarray(row["grid"]).shape == (2, 2)
    assert row["alphas"][1] == pytest.approx(2 * row["alphas"][0])
    assert math.isclose(row["suggested"]["alpha"], row["alphas"][1], rel_tol=0.05)


def test_the_main(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    uci = tmp_path / "uci.json"
    table().write(uci)
    out = tmp_path / "out"
    words = ["--scale", "smoke", "--out", str(out), "--uci", str(uci)]
    assert main(words) == 0
    text = (out / "alpha.md").read_text()
    made = json.loads((out / "alpha.json").read_text())
    assert (made["kind"], made["target"]) == ("rcad study", "alpha")
    assert "numbers mean nothing" in text
    assert "## UCI" in text

    def never(*arguments: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(study, "run", never)
    assert main(words) == 0
    (out / "alpha.json").write_text(json.dumps({**made, "scale": "full"}))
    assert main(words) == 2
    assert main(["--uci", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.count("expected") == 2
