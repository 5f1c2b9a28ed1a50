"""The page of a search: the map, the trials, the best, and no test number."""

import math
from pathlib import Path
from typing import Any

import pytest

from rcad.errors import InputError
from rcad.report import html
from rcad.study.pictures import axes, search_map
from rcad.study.tune import SEARCH, Trial, Tuning, best, document, trial_of, trials_table
from runs.conftest import make_record

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


def make(points: list[dict[str, Any]], scores: list[float | None], **more: Any) -> dict[str, Any]:
    metrics = [None if score is None else {"accuracy": score, "nll": 0.5} for score in scores]
    trials = [
        {"number": k, "values": values, "metrics": own, "runs": ["a"], "seconds": 1.0}
        for k, (values, own) in enumerate(zip(points, metrics, strict=True), 1)
    ]
    good = [k for k, score in enumerate(scores) if score is not None]
    settings = {"data": "<d>", "method": "rcad", "search": "random", "seeds": [0, 1], "by": "accuracy",
                "space": ["alpha=log(0.1, 10)", "lam=log(0.01, 1)"]}  # fmt: skip
    return {
        "settings": settings,
        "metric": "accuracy",
        "higher_is_better": True,
        "held_out": {"told": "chosen by 12 validation examples"},
        "planned": len(trials),
        "trials": trials,
        "best": max(good, key=lambda k: scores[k] or 0.0) + 1 if good else None,
        "command": "rcad train --data d",
        "made_by": "rcad tune --data <d>",
        "versions": {"rcad": "0.1.0"},
        **more,
    }


POINTS = [{"alpha": 0.1, "lam": 0.01}, {"alpha": 1.0, "lam": 0.1}, {"alpha": 10.0, "lam": 1.0}]


def page(record: dict[str, Any]) -> str:
    return html.page(document(record))


def test_the_page() -> None:
    text_of = page(make(POINTS, [90.0, 95.0, None]))
    for text in (
        "Best of 3: alpha 1, lam 0.1, validation accuracy 95.00%.",
        "rcad train --data d",
        "2 seeds",
        "The best is chosen by 12 validation examples.",
        "&lt;d&gt;",
    ):
        assert text in text_of
    assert text_of.count("<svg") == 1
    assert "not finished" not in text_of
    assert "not finished" in page(make(POINTS, [90.0, 95.0, None], planned=9))
    assert "rcad tune --data &lt;d&gt;" in text_of
    earlier = make(POINTS, [90.0, 95.0, None])
    del earlier["made_by"]  # as before the command was kept
    assert "Made by" not in page(earlier)


def test_a_best_trial_that_was_too_short_says_so() -> None:
    record = make(POINTS, [90.0, 95.0, None])
    record["trials"][0]["more_epochs"] = 70
    assert "train longer" not in page(record)
    record["trials"][1]["more_epochs"] = 80
    told = (
        "The validation NLL was still falling in the last epoch, after fewer than 500 steps: train longer, --epochs 80."
    )
    assert document(record).sections[0].verdict.endswith(told)


def test_a_search_that_only_diverged_has_no_picture() -> None:
    text_of = page(make(POINTS, [None, None, None]))
    assert "Every trial diverged" in text_of
    assert "<svg" not in text_of
    assert "No trial is done." in page(make([], [], planned=4))


def test_the_table_marks_the_best() -> None:
    cells = trials_table(make(POINTS, [90.0, 95.0, None])).cells
    assert [row[0].mark for row in cells] == ["", "good", ""]
    assert [cell.text for cell in cells[2]] == ["3", "10", "1", "-", "-", "1.0"]


def test_the_map_has_the_colour_of_the_nearest_trial() -> None:
    assert axes(make(POINTS, [1.0, 2.0, 3.0])) == ["alpha", "lam"]
    figure = search_map(make(POINTS, [90.0, 95.0, 80.0])).drawing
    mesh = next(one for one in figure.axes[0].collections if one.__class__.__name__ == "QuadMesh")
    cells = mesh.get_array().reshape(120, 120)
    assert (cells[5, 5], cells[60, 60], cells[-5, -5]) == (90.0, 95.0, 80.0)
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")
    ticks = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert "0.1 0.2 0.5 1 2" in " ".join(ticks)


def test_trials_that_tie_are_said_to_and_drawn_without_a_scale() -> None:
    record = make(POINTS, [95.0, 95.0, None])
    assert document(record).sections[0].verdict.endswith(" All trials tie in validation accuracy: the first was taken.")
    figure = search_map(record)
    assert figure is not None
    assert len(figure.drawing.axes) == 1  # no bar of colours
    assert (
        figure.caption
        == "The trials (dots) over alpha and lam: validation accuracy is 95 at each; the star is the best."
    )
    alone = search_map(make([{"alpha": 0.1}, {"alpha": 1.0}], [90.0, 90.0]))
    assert alone is not None
    assert list(alone.drawing.axes[0].get_yticks()) == [90.0]
    record["trials"][0]["metrics"]["nll"] = 0.4
    assert document(record).sections[0].verdict.endswith(" All trials tie in validation accuracy: the NLL decided.")
    apart = search_map(different := make(POINTS, [90.0, 95.0, None]))
    assert "tie" not in document(different).sections[0].verdict
    assert apart is not None
    assert len(apart.drawing.axes) == 2


def test_one_parameter_that_varies_is_drawn_as_dots() -> None:
    found = make([{"alpha": 1.0, "norm": "l2", "lam": k} for k in (0.1, 0.2, 0.3)], [1.0, 3.0, 2.0])
    assert axes(found) == ["lam"]
    assert search_map(found).drawing.axes[0].get_ylabel() == "validation accuracy, %"
    assert search_map(make([{"lam": 0.1}], [1.0])) is None


def test_the_files_and_what_a_notebook_shows(tmp_path: Path) -> None:
    found = Tuning(SEARCH.stamp(make(POINTS, [90.0, 95.0, 80.0]))).save(tmp_path, "rcad")
    assert [file.name for file in found.files] == ["rcad.json", "rcad.html", "rcad.png", "rcad.svg"]
    assert all(file.stat().st_size for file in found.files)
    assert found.best == found.record["trials"][1]
    assert found.verdict in found._repr_markdown_()
    assert "<table>" in found._repr_html_()
    assert len(found.figures) == 1
    assert Tuning.read(found.files[0]).best == found.best
    found.files[0].write_text(found.files[0].read_text().replace("95.0", "95.5"))
    with pytest.raises(InputError, match="expected values that match their checksum"):
        Tuning.read(found.files[0])


def test_the_best_by_accuracy_then_nll_then_order() -> None:
    scores = [(90.0, 0.5), (91.0, 0.4), (91.0, 0.3), (91.0, 0.3), (math.nan, 0.1)]
    trials: list[Trial] = [{"metrics": {"accuracy": accuracy, "nll": nll}} for accuracy, nll in scores]
    trials.append({"metrics": None})
    assert best(trials, "accuracy") is trials[2]
    assert best(trials[:4], "nll") is trials[2]
    assert best(trials[-1:], "accuracy") is best([], "accuracy") is None


def test_a_trial_is_the_mean_over_its_seeds_and_lost_with_one() -> None:
    metrics = {1: {"val_nll": 1.0, "val_rmse": 2.0}, 3: {"val_nll": 3.0, "val_rmse": 6.0}}
    runs = [make_record(seed=s, metrics=metrics[s], timings={"train_seconds": 1.5}) for s in metrics]
    found = trial_of(1, {"lam": 1}, runs)
    assert (found["metrics"], found["seconds"]) == ({"nll": 2.0, "rmse": 4.0}, 3.0)
    assert found["runs"] == [run.id for run in runs]
    lost = make_record(seed=4, status="diverged", metrics={})
    assert trial_of(1, {}, [*runs, lost])["metrics"] is None
