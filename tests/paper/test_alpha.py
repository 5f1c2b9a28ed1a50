"""The study of the measured alpha."""

from __future__ import annotations

import json
import math
from pathlib import Path

import measured_alpha as study
import numpy as np
import pytest

from paper_records import silent
from rcad.paper.record import Study

pytest.importorskip("sklearn")


def table(splits: int = 3) -> Study:
    """What T7's record has to hold, on made-up data."""
    return Study(
        target="T7",
        title="made up",
        settings={"arms": {"rcad": {"candidates": [{"alpha": 0.1}, {"alpha": 1.0}]}}},
        details={"tuning": {"synthetic": {"rcad": {"chosen": [0, 1, 1][:splits]}}}},
    )


ROOT = Path(__file__).parents[2]


def test_the_table_on_images_is_the_record_s_and_the_pages() -> None:
    made = Study.read(ROOT / "results/alpha/alpha.json")
    curve, *searches = made.details["images"]
    f4 = Study.read(ROOT / "results/F4/F4.json")
    assert curve["alphas"] == list(f4.series[0].x)
    nll, accuracy = (dict(zip(curve["alphas"], curve[name], strict=True)) for name in ("nll", "accuracy"))
    assert curve["best"] == {"NLL": min(nll, key=nll.__getitem__), "accuracy": max(accuracy, key=accuracy.__getitem__)}
    rows = [(one, by, best) for one in (curve, *searches) for by, best in one["best"].items()]
    page = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    for one, by_what, best in rows:
        found = one["suggested"]
        cells = [one["setting"], by_what, f"{best:.2g}", f"{found:.2g}", f"{found / best:.1f}x"]
        assert f"| {' | '.join(cells)} |" in page
        assert f"| {' | '.join(cells)} |" in (ROOT / "results/alpha/alpha.md").read_text(encoding="utf-8")
    assert max(one["suggested"] / best for one, _, best in rows) == pytest.approx(10, rel=0.1)
    assert "it can be ten times too large" in page
    assert {*made.details["dropped"]["images"].values()} == {0.0}
    near = sum(0.5 <= ratio <= 2 for ratio in made.details["dropped"]["ratios"].values())
    assert near == len(made.details["dropped"]["ratios"]) == 10


def test_linear_rows() -> None:
    (row,) = study.linear(study.SCALES["smoke"], silent)
    assert row["helpful"]
    assert min(row["helpful"]) <= row["best_alpha"] <= max(row["helpful"])
    assert row["best"] > row["erm"]
    assert {"alpha", "accuracy"} == set(row["suggested"])


def test_the_best_of_a_grid_and_the_suggestion_beside() -> None:
    row = study.moons(study.SCALES["smoke"], silent)[0]
    means = np.asarray(row["grid"]).mean(1)
    assert (row["best_alpha"], row["best"]) == (row["alphas"][means.argmax()], means.max())
    assert {"alpha", "accuracy"} == set(row["suggested"])
    assert 0 <= row["erm"] <= 100


def test_real_targets() -> None:
    (row,) = study.regression(study.Settings(), table(), None, silent)
    assert (row["dataset"], row["tuned"]) == ("synthetic", [0.1, 1.0, 1.0])
    assert len(row["rule"]) == 3
    assert all(0.1 < value < 3 for value in row["rule"])


def test_digits_judge_by_other_images() -> None:
    row = study.digits(study.SCALES["smoke"], silent)
    assert np.asarray(row["grid"]).shape == (2, 2)
    assert row["alphas"][1] == pytest.approx(2 * row["alphas"][0])
    assert math.isclose(row["suggested"]["alpha"], row["alphas"][1], rel_tol=0.05)


def test_the_main(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    uci = tmp_path / "uci.json"
    table().write(uci)
    out = tmp_path / "out"
    words = ["--scale", "smoke", "--out", str(out), "--uci", str(uci)]
    assert study.main(words) == 0
    text = (out / "alpha.md").read_text()
    made = json.loads((out / "alpha.json").read_text())
    assert (made["kind"], made["target"]) == ("rcad study", "alpha")
    assert "numbers mean nothing" in text
    assert "## UCI" in text

    def never(*arguments: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(study, "run", never)
    assert study.main(words) == 0
    (out / "alpha.json").write_text(json.dumps({**made, "scale": "full"}))
    assert study.main(words) == 2
    assert study.main(["--uci", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.count("expected") == 2
