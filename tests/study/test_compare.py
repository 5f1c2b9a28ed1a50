"""What a comparison says: its question first, a winner only where the test says so."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rcad
from made import files, table
from one_line import one_line
from rcad.errors import InputError
from rcad.report import html
from rcad.report.markdown import markdown
from rcad.study.cells import compared, results, summaries
from rcad.study.compare import COMPARISON, Comparison, _Work
from rcad.study.compare_page import _evidence, difference_tables, document, formed, results_table, sentences

pytest.importorskip("scipy.stats")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
N = 10
METRICS = ["accuracy", "nll", "brier"]
ROLES = {"erm": "base", "rcad": "asked", "mixup": "asked", "rcad_random": "control", "confidence_penalty": "control"}


def cells(gains: dict[str, float], *, n: int = N, noise: float = 0.4, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Accuracies around 80 with a gain for each method; nll and brier fall as accuracy grows."""
    draw = np.random.default_rng(seed)
    base = draw.normal(80, 2, n)
    found = {}
    for name, gain in {"erm": 0.0, **gains}.items():
        accuracy = base + gain + noise * draw.normal(size=n)
        found[name] = {
            "key": name,
            "name": name,
            "role": ROLES[name],
            "space": [],
            "seconds": 2.0,
            "runs": n,
            "seeds": {
                str(k): {
                    "chosen": {"lam": 0.1},
                    "validation": {},
                    "trials": [],
                    "test": {"accuracy": float(a), "nll": float(1 - a / 100), "brier": float(1 - a / 100)},
                }
                for k, a in enumerate(accuracy)
            },
        }
    return found


def judged(found: dict[str, dict[str, Any]], ratio: float = 0.0) -> dict[str, Any]:
    """The part of a record that sentences are made of."""
    return {
        "base": "erm",
        "metric": METRICS[0],
        "metrics": METRICS,
        "seeds": list(found["erm"]["seeds"]),
        "methods": found,
        "differences": compared(found, METRICS, ratio),
    }


def said(found: dict[str, dict[str, Any]], ratio: float = 0.0) -> list[str]:
    return sentences(judged(found, ratio))


def test_the_question_is_answered_first() -> None:
    lines = said(cells({"mixup": 0.0, "rcad": 2.0}))
    assert lines[0].startswith("Accuracy: rcad is better than ERM (higher by ")
    assert lines[0].endswith(" points, p < 0.001, 10 splits).")
    assert lines[1] == "Accuracy: none of the other methods is shown to differ from ERM."
    assert said(cells({"rcad": -2.0}))[0].startswith("Accuracy: rcad is worse than ERM (lower by ")


@pytest.mark.parametrize(
    ("metric", "mean", "told"),
    [
        ("nll", 0.3, "lower by 0.30 [0.10, 0.50] nats"),  # a difference is positive where ours is better
        ("nll", -0.3, "higher by 0.30 [0.10, 0.50] nats"),
        ("accuracy", -0.3, "lower by 0.30 [0.10, 0.50] points"),
    ],
)
def test_a_sentence_says_which_way_the_metric_moved(metric: str, mean: float, told: str) -> None:
    one = {"method": "rcad", "metric": metric, "mean": mean, "low": mean - 0.2, "high": mean + 0.2, "p_holm": 0.01}
    assert _evidence(one) == f"{told}, p = 0.010"


def test_no_winner_without_a_difference_and_the_seeds_obey_the_rule() -> None:
    found = cells({"rcad": 0.1, "mixup": 0.05}, noise=1.0)
    question, *rest = compared(found, METRICS, 0.0)
    assert (question["method"], question["against"], question["metric"]) == ("rcad", "erm", "accuracy")
    assert f"about {question['seeds_needed']} splits would show a difference of this size" in said(found)[0]
    # Alone the question is at 5%; the same comparison in the second family would need more.
    again = next(one for one in rest if one["method"] == "mixup" and one["metric"] == "accuracy")
    alone = compared({k: found[k] for k in ("erm", "mixup")}, METRICS, 0.0)[0]
    assert (again["p_two"], again["mean"]) == (alone["p_two"], alone["mean"])
    assert again["seeds_needed"] > alone["seeds_needed"]


def test_holm_is_over_the_second_family_alone() -> None:
    found = cells({"rcad": 0.5, "mixup": 0.1, "rcad_random": 0.2, "confidence_penalty": 0.0})
    question, *rest = compared(found, METRICS, 0.0)
    assert question["p_holm"] == question["p_two"]
    assert len(rest) == 3 * (4 + 2) - 1
    least = min(one["p_two"] for one in rest)
    assert min(one["p_holm"] for one in rest) == pytest.approx(min(1.0, len(rest) * least))


def test_overlapping_splits_take_the_winner_back() -> None:
    found = cells({"rcad": 0.7}, noise=0.6, seed=1)
    assert "is better than ERM" in said(found)[0]
    assert "more splits would not show a difference this small, more data might" in said(found, ratio=0.5)[0]


def test_the_other_methods_are_told_by_metric() -> None:
    line = said(cells({"rcad": 0.0, "mixup": -3.0}))[1]
    assert line.startswith("Accuracy: mixup (lower by ")
    assert line.endswith("is worse than ERM.")


def test_the_controls_tell_whether_the_direction_helps() -> None:
    both = said(cells({"rcad": 4.0, "rcad_random": 1.0, "confidence_penalty": 1.0}))
    assert both[1] == "rcad is better than its controls too: the adversarial direction is what helps."
    level = said(cells({"rcad": 2.0, "rcad_random": 2.0, "confidence_penalty": 0.0}))
    assert "not shown to be better than its control rcad_random" in level[1]


def test_too_few_seeds_and_lost_runs_decide_nothing() -> None:
    assert "too few seeds for a test: 2" in said(cells({"rcad": 5.0}, n=2))[0]
    found = cells({"rcad": 5.0})
    found["rcad"]["seeds"]["3"]["test"] = None
    assert "1 of the runs diverged" in said(found)[0]
    assert summaries(found, ["accuracy"])["rcad"]["accuracy"]["diverged"] == 1


def test_differences_point_to_better() -> None:
    found = cells({"rcad": 2.0})
    by = {one["metric"]: one["mean"] for one in compared(found, METRICS, 0.0)}
    assert all(mean > 0 for mean in by.values())
    assert by["nll"] == pytest.approx(
        np.mean([results(found["erm"], "nll")[k] - results(found["rcad"], "nll")[k] for k in range(N)])  # type: ignore[operator]
    )


@pytest.mark.usefixtures("undrawn")
def test_results_that_changed_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.csv").write_text(table())
    words: dict[str, Any] = {"target": "colour", "seeds": 3, "budget": 1, "epochs": 1, "out": "out", "device": "cpu"}
    first = rcad.compare("my.csv", "rcad", controls=False, **words).record
    file = Path("out/compare.json")
    plain = json.loads(file.read_text())
    assert plain.pop("sha256")
    plain["methods"]["rcad"]["seeds"]["0"]["test"]["accuracy"] = 99.5
    file.write_text(json.dumps({**plain, "sha256": "0" * 64}))
    with pytest.raises(InputError, match=r"in out/compare.json: .* their checksum, .*; move it away to make the comp"):
        rcad.compare("my.csv", "rcad", controls=False, **words)
    with pytest.raises(InputError, match="checksum"):
        Comparison.read(file)
    # One of before there were sums is believed as far as it can be; what cannot be is made again.
    cell = {**plain["methods"]["rcad"], "seeds": {"0": {"chosen": [], "test": 3}}}
    file.write_text(json.dumps({**plain, "methods": {**plain["methods"], "rcad": cell}}))
    again = rcad.compare("my.csv", "rcad", controls=False, **words).record
    assert again["results"] == first["results"]
    del plain["methods"]["erm"]["seeds"]["1"]["test"]
    file.write_text(json.dumps(plain))
    again = rcad.compare("my.csv", "rcad", controls=False, **words).record
    assert again["results"]["erm"]["nll"]["diverged"] == 1
    file.write_text(json.dumps({**plain, "methods": {"rcad": 3}}))
    with pytest.raises(
        InputError, match=r"expected the comparison in out/compare.json.methods.rcad to be of type dict"
    ):
        rcad.compare("my.csv", "rcad", controls=False, **words)


@pytest.mark.parametrize("outcome", ["better", "worse", "undecided"])
def test_before_anything_is_tuned_tuning_comes_next(outcome: str) -> None:
    work = SimpleNamespace(budget=1, spaces={"rcad": ["lam"]}, seeds=range(5), _again=lambda why, *words: (why, *words))
    found = _Work._next(work, {}, difference("rcad", "nll", outcome=outcome))  # type: ignore[arg-type]
    assert found[0].startswith("Nothing was tuned yet")  # type: ignore[index]
    assert found[1] == "--budget"  # type: ignore[index]


def difference(method: str, metric: str, **more: Any) -> dict[str, Any]:
    values = {"method": method, "against": "erm", "metric": metric, "test": "paired t", "n": 3, "mean": 1.25,
              "low": 0.5, "high": 2.0, "p_two": 0.01, "p_holm": 0.02, "effect": 1.5, "superiority": 1.0,
              "seeds_needed": 7, "note": "", "outcome": "better"}  # fmt: skip
    return {**values, **more}


def result(*values: float | None) -> dict[str, Any]:
    good = [value for value in values if value is not None]
    summary = {"n": 3, "mean": sum(good) / len(good), "sd": 1.0, "low": 0.1, "high": 99.0} if good else None
    return {"values": dict(enumerate(values)), "summary": summary, "diverged": len(values) - len(good)}


@pytest.fixture
def record() -> dict[str, Any]:
    cell = {"role": "asked", "space": ["lam=log(0.01, 1)"], "seconds": 9.0, "runs": 3, "chosen": {"lam": "0.1"}}
    cell["passes"] = 180.0
    unknown = ("mean", "low", "high", "p_two", "p_holm", "effect", "superiority", "seeds_needed")
    nothing = {**dict.fromkeys(unknown), "outcome": "undecided", "note": "1 of the runs diverged"}
    return {
        "data": "<my> data.csv",
        "command": "rcad compare --data x",
        "seeds": [0, 1, 2],
        "budget": 8,
        "epochs": 30,
        "metric": "accuracy",
        "metrics": ["accuracy", "nll"],
        "cost": "CPU time",
        "next": {"why": "Train it", "command": "rcad train --data x"},
        "test_ratio": 0.25,
        "sizes": {"train": 1234, "validation": 30, "test": 80},
        "held_out": {"told": "chosen by 30 validation examples"},
        "seconds": 12.0,
        "base": "erm",
        "rule": "The rule",
        "methods": {
            "erm": {**cell, "role": "base", "passes": 90.0},
            "rcad": cell,
            "rcad_random": {**cell, "role": "control"},
        },
        "results": {
            "erm": {"accuracy": result(90.0, 91.0, 92.0), "nll": result(0.3, 0.3, 0.4)},
            "rcad": {"accuracy": result(92.0, 93.0, None), "nll": result(0.2, 0.3, None)},
            "rcad_random": {"accuracy": result(None, None, None), "nll": result(None, None, None)},
        },
        "differences": [
            difference("rcad", "accuracy"),
            difference("rcad", "nll", outcome="worse", mean=-0.1, low=-0.2, high=0.0, seeds_needed=None),
            difference("rcad_random", "accuracy", **nothing),
            difference("rcad", "accuracy", against="rcad_random", p_holm=0.0001),
        ],
        "sentences": ["Accuracy: rcad & co are shown.", "NLL: no method is shown."],
        "versions": {"rcad": "0.1.0"},
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"base": "nobody"}, "expected the base of the comparison to be one of erm, rcad, rcad_random"),
        ({"metric": "speed"}, "expected a metric of the comparison to be one of"),
        ({"seconds": "long"}, "expected the comparison.seconds to be a finite number"),
        ({"results": {}}, "expected the results of erm to be of type dict"),
        (
            {"differences": [difference("rcad", "nll", low=3.0)]},
            "of rcad inside its interval, but got [3.0, 1.25, 2.0]",
        ),
        ({"differences": []}, "expected the differences that a comparison found, but got none"),
        ({"methods": {"erm": {}}}, "expected the comparison.methods.erm.role to be of type str"),
        ({"next": None}, "expected the comparison.next to be of type dict"),
    ],
)
def test_a_file_that_holds_no_comparison_is_named(
    change: dict[str, Any], says: str, record: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "compare.json"
    path.write_text(json.dumps(COMPARISON.stamp(record)))
    assert Comparison.read(path).document.title == "Does it help on <my> data.csv?"
    path.write_text(json.dumps(COMPARISON.stamp({**record, **change})))
    with one_line(says, f"in {path}"):
        Comparison.read(path)


def test_the_page_says_it_all(record: dict[str, Any]) -> None:
    text_of = html.page(document(record))
    assert "&lt;my&gt; data.csv" in text_of
    assert "<my>" not in text_of
    for text in (
        "rcad &amp; co are shown.",
        "1,234 examples for training",
        "The rule.",
        "n_test/n_train = 0.25",
        "8 configurations",
        "hyperparameters are chosen by 30 validation examples.",
        "<pre><code>rcad train --data x</code></pre>",
        "What was chosen",
        "half distances between classes",
    ):
        assert text in text_of
    assert text_of.count("<svg") == 4  # dots and differences of two metrics
    untuned = html.page(document({**record, "budget": 1}))
    assert "What was chosen" not in untuned
    assert "Nothing was tuned" in untuned
    own = markdown(document({**record, "test_ratio": 0.0}))
    assert "has its own test set" in own
    assert "Nadeau" not in own
    assert "| rcad | 92.5 ± 1.0 (1 diverged) |" in own


def test_results_and_cost(record: dict[str, Any]) -> None:
    rows = results_table(record).cells
    assert [cell.text for cell in rows[0]] == ["erm", "91.0 ± 1.0", "0.3 ± 1.0", "1.0"]
    assert (rows[1][-1].text, rows[1][1].note) == ("2.0", "1 diverged")
    assert (rows[2][1].text, rows[2][0].note) == ("-", "control")


def test_the_time_of_a_clock_is_not_told(record: dict[str, Any]) -> None:
    """It is the machine's as much as the method's; the passes are counted."""
    assert "in 12 s of CPU time" in markdown(document(record))
    by_the_clock = markdown(document({**record, "cost": "time"}))
    assert "of time" not in by_the_clock
    assert "12 s" not in by_the_clock
    assert [row[-1].text for row in results_table({**record, "cost": "time"}).cells] == ["1.0", "2.0", "2.0"]


def test_a_record_from_before_the_passes_were_counted_has_no_cost(record: dict[str, Any]) -> None:
    for cell in record["methods"].values():
        del cell["passes"]
    found = results_table(formed(json.loads(json.dumps(record))))
    assert "cost, ERM = 1" not in found.header
    assert "Cost" not in found.caption


def test_differences(record: dict[str, Any]) -> None:
    question, against_erm, controls = difference_tables(record)
    assert [cell.text for cell in question.cells[0]][:5] == [
        "rcad",
        "accuracy",
        "+1.25 [0.50, 2.00]",
        "better",
        "0.020",
    ]
    rows = [[cell.text for cell in row] for row in against_erm.cells]
    assert rows[0][2:5] == ["-0.10 [-0.20, 0.00]", "worse", "0.020"]
    assert rows[1][2:] == ["-", "undecided", "-", "-", "-", "-"]
    assert [row[3].mark for row in against_erm.cells] == ["bad", "open"]
    assert against_erm.cells[1][3].note == "1 of the runs diverged"
    assert controls.cells[0][4].text == "<0.001"


def test_data_in_memory_are_to_be_written_to_a_file() -> None:
    pandas = pytest.importorskip("pandas")
    for data, save in ((pandas.DataFrame({"a": [1]}), "DataFrame; .*to_csv"), (np.zeros((2, 2)), "ndarray; .*savez")):
        for call in (rcad.compare, rcad.tune):
            with pytest.raises(InputError, match=f"expected data to be a name, a file or a folder, but got {save}"):
                call(data)


def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files(my_dot_csv=table())
    found = rcad.compare("my.csv", "rcad", target="price", seeds=3, budget=2, epochs=1, controls=False)
    assert found.question["metric"] == "nll"
    assert found.verdict.startswith("NLL: rcad ")
    assert found.next.startswith("rcad ")
    assert [row[0].text for row in found.table.cells] == ["erm", "rcad"]
    assert found.verdict.splitlines()[0] in found._repr_markdown_()
    assert "<svg" in found._repr_html_()
    assert str(found).startswith("Does it help on my.csv?")
    assert repr(found) == str(found)  # a notebook's file holds both forms, and the record is long
    assert found.files == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.csv"]
    tuned = rcad.tune("my.csv", "rcad(alpha=0.3)", target="price", budget=2, epochs=1)
    assert set(tuned.best["values"]) == {"optim.weight_decay", "lam"}  # type: ignore[index]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.csv"]
