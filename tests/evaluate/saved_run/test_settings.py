"""What an evaluation depends on, and which examples it takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from rcad.errors import InputError
from rcad.evaluate.attack_search import draw_rows
from rcad.evaluate.saved_run.loading import SavedRun
from rcad.evaluate.saved_run.settings import SUITES, Settings, parse_suites


def test_suites_come_in_one_order() -> None:
    assert parse_suites("all") == parse_suites("ood,all") == SUITES
    assert parse_suites("ood, calibration") == ("calibration", "ood")
    with pytest.raises(InputError, match="did you mean 'attacks'"):
        parse_suites("calibration,atacks")


def test_a_suite_s_record_depends_on_its_own_settings_only() -> None:
    plain, other = Settings(), Settings(attack_eps=(0.1,))
    assert {plain.file(suite) for suite in SUITES} == {f"{suite}.json" for suite in SUITES}
    assert other.file("attacks") != plain.file("attacks")
    assert other.file("ood") == plain.file("ood")
    names = {Settings(**one).file("attacks") for one in ({"limit": 3}, {"seed": 1}, {"masking": False}, {"steps": 9})}
    assert len(names | {other.file("attacks"), plain.file("attacks")}) == 6


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"limit": -1}, "limit"),
        ({"attack_eps": ()}, "attack_eps"),
        ({"attack_eps": (0.1, 0.1)}, "different"),
        ({"attack_eps": (0.0,)}, "> 0"),
        ({"attack_eps": (float("nan"),)}, "attack_eps"),
        ({"alphas": (-1.0,)}, "alphas"),
        ({"attacks": ("pdg",)}, "did you mean 'pgd'"),
        ({"corruptions": ("smog",)}, "corruptions"),
        ({"ood_data": ("noise", "noise")}, "ood_data"),
    ],
)
def test_bad_settings(fields: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Settings(**fields)


def test_limits_follow_the_device_and_the_size() -> None:
    def limit(suite: str, *shape: int, device: str = "cpu") -> int:
        problem = SimpleNamespace(test=(torch.zeros(1, *shape), range(5000)), device=torch.device(device))
        return SavedRun(None, problem, None, None).limit(suite, Settings())  # type: ignore[arg-type]

    for suite in ("attacks", "corruptions", "ood"):
        large, small, table = (limit(suite, *shape) for shape in ((3, 32, 32), (1, 8, 8), (5,)))
        assert 0 < large < small == table
    assert limit("corruptions", 3, 32, 32, device="cuda") == limit("calibration", 1, 8, 8) == 5000
    assert limit("attacks", 3, 32, 32, device="cuda") == 1000


def test_examples_are_drawn_once_and_for_all() -> None:
    rows = draw_rows(100, 10, seed=3)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == 10
    assert torch.equal(rows, draw_rows(100, 10, seed=3))
    assert not torch.equal(rows, draw_rows(100, 10, seed=4))
    assert draw_rows(5, 9, seed=0).tolist() == [0, 1, 2, 3, 4]
