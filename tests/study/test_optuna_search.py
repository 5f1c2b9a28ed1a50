"""Optuna's sampler: the same answers, the same questions; and a clear word where it is not installed."""

from __future__ import annotations

import sys

import pytest

from rcad.errors import MissingExtraError
from rcad.study.optuna_search import OptunaSearch
from rcad.study.search_space import Values, parse_space

SPACE = parse_space("alpha=log(0.05, 2), steps=int(1, 3), norm=choice(l2, linf)")


def asked(count: int) -> list[Values]:
    study = OptunaSearch(SPACE, {"alpha": 9.0}, seed=0)
    found = []
    for k in range(count):
        point = study.ask()
        found.append(point)
        study.tell(None if k == 2 else -abs(point["alpha"] - 0.5))
    return found


def test_it_stays_in_the_space_and_repeats_itself() -> None:
    pytest.importorskip("optuna")
    points = asked(14)
    assert points == asked(14)
    assert points[0] == {"alpha": 9.0}
    for point in points[1:]:
        assert 0.05 <= point["alpha"] <= 2
        assert point["steps"] in (1, 2, 3)
        assert point["norm"] in ("l2", "linf")
        assert float(f"{point['alpha']:.4g}") == point["alpha"]


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"rcad\[tune\]"):
        OptunaSearch(SPACE, None)
