"""The study of the measured alpha."""

from __future__ import annotations

import json
import math
from pathlib import Path

import measured_alpha as study
import numpy as np
import pytest

from rcad.paper.record import Study

pytest.importorskip("sklearn")


ROOT = Path(__file__).parents[2]
TRIAL = ("--scale", "smoke", "--out")


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
    assert max(one["suggested"] / best for one, _, best in rows) == pytest.approx(10, rel=0.1)
    assert "it can be ten times too large" in page
    assert {*made.details["dropped"]["images"].values()} == {0.0}
    near = sum(0.5 <= ratio <= 2 for ratio in made.details["dropped"]["ratios"].values())
    assert near == len(made.details["dropped"]["ratios"]) == 10


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study's trial, with what it needs of T7's record, made up."""
    folder = tmp_path_factory.mktemp("alpha")
    arms = {"rcad": {"candidates": [{"alpha": 0.1}, {"alpha": 1.0}]}}
    tuning = {"synthetic": {"rcad": {"chosen": [0, 1, 1]}}}
    Study("T7", "made up", settings={"arms": arms}, details={"tuning": tuning}).write(folder / "uci.json")
    assert study.main([*TRIAL, str(folder), "--uci", str(folder / "uci.json")]) == 0
    return folder


def test_every_part_has_its_rows(out: Path) -> None:
    made = Study.read(out / "alpha.json").details
    (row,) = made["linear"]
    assert min(row["helpful"]) <= row["best_alpha"] <= max(row["helpful"])
    assert row["best"] > row["erm"]
    grids = [*made["moons"], made["digits"]]
    for grid in grids:
        means = np.asarray(grid["grid"]).mean(1)
        assert (grid["best_alpha"], grid["best"]) == (grid["alphas"][means.argmax()], pytest.approx(means.max()))
        assert 0 <= grid["erm"] <= 100
    assert all({"alpha", "accuracy"} == set(part["suggested"]) for part in (row, *grids))
    digits = made["digits"]
    assert np.asarray(digits["grid"]).shape == (2, 2)
    assert digits["alphas"][1] == pytest.approx(2 * digits["alphas"][0])
    assert math.isclose(digits["suggested"]["alpha"], digits["alphas"][1], rel_tol=0.05)
    (row,) = made["uci"]
    assert (row["dataset"], row["tuned"]) == ("synthetic", [0.1, 1.0])
    assert len(row["rule"]) == 2
    assert all(0.1 < value < 3 for value in row["rule"])


def test_the_page_is_made_from_the_record_which_is_not_computed_again(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (out / "alpha.md").read_text()
    assert "numbers mean nothing" in text
    assert "## UCI" in text
    monkeypatch.setattr(study, "run", lambda *arguments: pytest.fail("computed again"))
    words = [*TRIAL, str(out), "--uci", str(out / "uci.json")]
    assert study.main(words) == 0
    made = json.loads((out / "alpha.json").read_text())
    assert (made["kind"], made["target"]) == ("rcad study", "alpha")
    (out / "alpha.json").write_text(json.dumps({**made, "scale": "full"}))
    assert study.main(words) == 2
    assert study.main(["--uci", str(out / "none.json")]) == 2
    assert capsys.readouterr().err.count("expected") == 2
