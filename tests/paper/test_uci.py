"""T7: no test row is seen before the end; its record is found again, and none that is wrong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paper_records import silent
from rcad.data.dataset import Split
from rcad.errors import InputError
from rcad.paper import uci
from rcad.paper.record import Study, as_stored, finished, refuse_to_replace_larger
from rcad.paper.targets import TARGETS

SMOKE = uci.SCALES["smoke"]


@pytest.fixture(scope="module")
def made() -> Study:
    return uci.run(SMOKE, None, silent)


def test_scales_come_from_the_training_rows() -> None:
    data = uci.synthetic()
    train, held = np.arange(40), np.arange(40, 60)
    fold = uci.fold(data, train, held)
    x, y = data.train.x[train].astype(np.float64), data.train.y[train].astype(np.float64)
    assert fold.x.numpy() == pytest.approx((x - x.mean(0)) / x.std(0), abs=1e-5)
    assert fold.held_x.numpy() == pytest.approx((data.train.x[held] - x.mean(0)) / x.std(0), abs=1e-5)
    assert fold.held_y.numpy() == pytest.approx((data.train.y[held] - y.mean()) / y.std(), abs=1e-5)
    assert fold.scale == pytest.approx(y.std(), abs=1e-6)


def test_test_rows_change_the_score_and_nothing_else() -> None:
    settings = replace(SMOKE, splits=2)
    data = uci.synthetic(splits=2)
    # Both splits train on the same rows, so that the others can be spoilt.
    train, test = np.arange(50), np.arange(50, 60)
    spoilt = data.train.y.copy()
    spoilt[test] += 5
    a, b = (
        uci.tune_and_refit(
            replace(data, train=Split(data.train.x, y), standard_splits=((train, test),) * 2), settings, silent
        )
        for y in (data.train.y, spoilt)
    )
    assert a["tuning"] == b["tuning"]
    for name in a["methods"]:
        assert min(b["methods"][name]["nll"]) > max(a["methods"][name]["nll"])


def test_every_number_is_there(made: Study) -> None:
    assert made.columns == ["synthetic"]
    assert {row for row, _ in made.places} == set(TARGETS["T7"].rows.values())
    assert made.details["rows"]["synthetic"] == {"train": 54, "test": 6, "validation": 11, "features": 4}
    assert all(len(place.runs) == SMOKE.splits for place in made.places.values())
    inner = uci._inner(uci.synthetic(), SMOKE, 0)
    assert (len(inner.x), len(inner.held_x)) == (54 - 11, 11)  # what tunes is not fitted
    # ERM's first configuration is the last epoch, which is what the fixed row does.
    tuned, fixed = (made.places[row, "synthetic"].values("nll") for row in ("ERM", "ERM, last epoch"))
    chosen = made.details["tuning"]["synthetic"]["erm"]["chosen"]
    for choice, one, other in zip(chosen, tuned, fixed, strict=True):
        assert (one == pytest.approx(other, abs=1e-6)) == (choice == 0)


def test_records_are_found_again_and_marked(made: Study, tmp_path: Path) -> None:
    path = tmp_path / "uci.json"
    settings = SMOKE.to_dict()
    made = replace(made, scale="smoke", details={**made.details, "lost": float("nan")})
    made.write(path)
    found = finished(path, settings, "smoke")
    assert found.details["lost"] is None
    assert found.to_dict() == made.to_dict()
    assert finished(path, settings, "full") is finished(path, replace(SMOKE, splits=2).to_dict(), "smoke") is None
    refuse_to_replace_larger(path, "smoke")
    replace(made, scale="full").write(path)
    with pytest.raises(InputError, match="pass another --out"):
        refuse_to_replace_larger(path, "small")
    path.write_text(path.read_text().replace('"scale": "full"', '"scale": "small"'))
    with pytest.raises(InputError, match=r"uci.json: expected values that match their checksum, .* run it again"):
        Study.read(path)
    path.write_text("[1]")
    with pytest.raises(InputError, match=r"uci.json to be of type dict, but got \[1\]"):
        refuse_to_replace_larger(path, "small")
    assert as_stored({"x": 1 / 3}) == {"x": 0.3333333}
