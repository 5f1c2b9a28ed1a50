"""The page of a search: the map, the trials, the best, and no test number."""

import math
from pathlib import Path
from typing import Any

import pytest

from rcad.errors import InputError
from rcad.report import html
from rcad.study.pictures import search_map
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
    space = {"space": ["alpha=log(0.1, 10)", "lam=log(0.01, 1)"]}
    settings = {"data": "<d>", "method": "rcad", "search": "random", "seeds": [0, 1], "by": "accuracy", **space}
    told = {"held_out": {"told": "chosen by 12 validation examples"}, "command": "rcad train --data d"}
    told |= {"made_by": "rcad tune --data <d>", "versions": {"rcad": "0.1.0"}}
    chosen = max(good, key=lambda k: scores[k] or 0.0) + 1 if good else None
    searched = {"metric": "accuracy", "higher_is_better": True, "planned": len(trials), "trials": trials}
    return {"settings": settings, **told, **searched, "best": chosen, **more}


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
        "rcad tune --data &lt;d&gt;",
    ):
        assert text in text_of
    assert text_of.count("<svg") == 1
    assert "not finished" not in text_of
    assert "not finished" in page(make(POINTS, [90.0, 95.0, None], planned=9))
    cells = trials_table(make(POINTS, [90.0, 95.0, None])).cells
    assert [row[0].mark for row in cells] == ["", "good", ""]
    assert [cell.text for cell in cells[2]] == ["3", "10", "1", "-", "-", "1.0"]
    assert "Every trial diverged" in page(make(POINTS, [None, None, None]))
    assert "No trial is done." in page(make([], [], planned=4))


def test_trials_that_tie_are_said_to_and_drawn_without_a_scale() -> None:
    record = make(POINTS, [95.0, 95.0, None])
    assert document(record).sections[0].verdict.endswith(" All trials tie in validation accuracy: the first was taken.")
    figure = search_map(record)
    assert len(figure.drawing.axes) == 1  # no bar of colours
    assert "validation accuracy is 95 at each; the star is the best." in figure.caption
    record["trials"][0]["metrics"]["nll"] = 0.4
    assert document(record).sections[0].verdict.endswith(" All trials tie in validation accuracy: the NLL decided.")
    different = make(POINTS, [90.0, 95.0, None])
    assert "tie" not in document(different).sections[0].verdict
    assert len(search_map(different).drawing.axes) == 2


def test_the_files_and_what_a_notebook_shows(tmp_path: Path) -> None:
    found = Tuning(SEARCH.stamp(make(POINTS, [90.0, 95.0, 80.0]))).save(tmp_path, "rcad")
    assert [file.name for file in found.files] == ["rcad.json", "rcad.html", "rcad.png", "rcad.svg"]
    assert all(file.stat().st_size for file in found.files)
    assert found.best == found.record["trials"][1] == Tuning.read(found.files[0]).best
    assert found.verdict in found._repr_markdown_()
    assert "<table>" in found._repr_html_()
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
