"""The page of a search: the map, the trials, the best, and no test number."""

from __future__ import annotations

import io
from typing import Any

import pytest

from rcad.study.search_page import axes, draw, page, save, told, trials_table

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


def make(points: list[dict[str, Any]], scores: list[float | None], **more: Any) -> dict[str, Any]:
    trials = [
        {
            "number": k + 1,
            "values": values,
            "metrics": None if score is None else {"accuracy": score, "nll": 0.5},
            "runs": ["a"],
            "seconds": 1.0,
        }
        for k, (values, score) in enumerate(zip(points, scores, strict=True))
    ]
    good = [k for k, score in enumerate(scores) if score is not None]
    settings = {"data": "<d>", "method": "rcad", "search": "random", "seeds": [0, 1], "by": "accuracy",
                "space": ["alpha=log(0.1, 10)", "lam=log(0.01, 1)"]}  # fmt: skip
    return {
        "settings": settings,
        "metric": "accuracy",
        "higher_is_better": True,
        "held_out": {"told": "chosen by 12 held-out examples"},
        "planned": len(trials),
        "trials": trials,
        "best": max(good, key=lambda k: scores[k] or 0.0) + 1 if good else None,
        "command": "rcad train --data d",
        "versions": {"rcad": "0.1.0"},
        **more,
    }


POINTS = [{"alpha": 0.1, "lam": 0.01}, {"alpha": 1.0, "lam": 0.1}, {"alpha": 10.0, "lam": 1.0}]


def test_the_page() -> None:
    html = page(make(POINTS, [90.0, 95.0, None]))
    for text in (
        "Best of 3: alpha 1, lam 0.1, held-out accuracy 95.00%.",
        "rcad train --data d",
        "2 seeds",
        "The best is chosen by 12 held-out examples.",
        "&lt;d&gt;",
    ):
        assert text in html
    assert html.count("<svg") == 1
    assert "not over" not in html
    assert "not over" in page(make(POINTS, [90.0, 95.0, None], planned=9))


def test_a_search_that_only_diverged_has_no_picture() -> None:
    html = page(make(POINTS, [None, None, None]))
    assert "Every trial diverged" in html
    assert "<svg" not in html
    assert "No trial is done yet." in page(make([], [], planned=4))


def test_the_table_marks_the_best() -> None:
    cells = trials_table(make(POINTS, [90.0, 95.0, None])).cells
    assert [row[0].mark for row in cells] == ["", "good", ""]
    assert [cell.text for cell in cells[2]] == ["3", "10", "1", "-", "-", "1.0"]


def test_axes_are_the_numbers_that_vary() -> None:
    assert axes(make(POINTS, [1.0, 2.0, 3.0])) == ["alpha", "lam"]
    same = [{"alpha": 1.0, "norm": "l2", "lam": k} for k in (0.1, 0.2, 0.3)]
    assert axes(make(same, [1.0, 2.0, 3.0])) == ["lam"]


def test_the_map_has_the_colour_of_the_nearest_trial() -> None:
    figure = draw(make(POINTS, [90.0, 95.0, 80.0]))
    mesh = next(one for one in figure.axes[0].collections if one.__class__.__name__ == "QuadMesh")
    cells = mesh.get_array().reshape(120, 120)
    assert (cells[5, 5], cells[60, 60], cells[-5, -5]) == (90.0, 95.0, 80.0)
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()][:4] == ["0.1", "0.2", "0.5", "1"]


def test_one_parameter_is_drawn_as_dots() -> None:
    figure = draw(make([{"lam": k} for k in (0.1, 0.2, 0.3)], [1.0, 3.0, 2.0]))
    assert figure.axes[0].get_ylabel() == "held-out accuracy, %"
    assert draw(make([{"lam": 0.1}], [1.0])) is None


def test_pictures_in_both_forms() -> None:
    figure = draw(make(POINTS, [90.0, 95.0, 80.0]))
    for form, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        file = io.BytesIO()
        save(figure, file, form)
        assert file.getvalue().startswith(start)


def test_a_metric_in_words() -> None:
    record = make(POINTS, [90.0, 95.0, None])
    assert told(record, record["trials"][0]) == "accuracy 90.00%"
    assert told({**record, "metric": "nll"}, record["trials"][0]) == "NLL 0.5"
