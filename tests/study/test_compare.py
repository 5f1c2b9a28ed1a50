"""What a comparison says: its question first, a winner only where the test says so."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rcad
from made import files, table
from one_line import fails_in_one_line, refusals
from rcad.errors import InputError
from rcad.report import html
from rcad.report.drawing import picture
from rcad.report.markdown import markdown
from rcad.study.compare import COMPARISON, Comparison, split_methods
from rcad.study.compare_page import _evidence, difference_tables, document, judged, results_table
from rcad.study.pictures import dots, forests
from rcad.study.tune import Tuning

pytest.importorskip("scipy.stats")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
N = 10
METRICS = ["accuracy", "nll", "brier"]
ROLES = {"erm": "base", "rcad": "asked", "mixup": "asked", "rcad_random": "control", "confidence_penalty": "control"}
Record = dict[str, Any]


def test_methods_may_be_text_or_values() -> None:
    given = split_methods([rcad.methods.erm(), rcad.methods.rcad(1.0, 0.1), "mixup, cutmix(p=0.5)"])
    assert [rcad.Method.parse(text) for text in given] == [
        rcad.methods.erm(),
        rcad.methods.rcad(1.0, 0.1),
        rcad.methods.mixup(),
        rcad.methods.cutmix(p=0.5),
    ]


def cells(gains: dict[str, float], *, n: int = N, noise: float = 0.4, seed: int = 0) -> dict[str, Record]:
    """Accuracies around 80 with a gain for each method; nll and brier fall as accuracy grows."""
    draw = np.random.default_rng(seed)
    base = draw.normal(80, 2, n)
    methods = {}
    for k, (name, gain) in enumerate({"erm": 0.0, **gains}.items()):
        tests = [
            {"accuracy": float(a), "nll": float(1 - a / 100), "brier": float(1 - a / 100)}
            for a in base + gain + noise * draw.normal(size=n)
        ]
        runs = {str(seed): {"chosen": {"lam": 0.1}, "test": test} for seed, test in enumerate(tests)}
        cell = {"role": ROLES[name], "space": ["lam=log(0.01, 1)"], "seconds": 2.0, "runs": n, "passes": 90.0 * (k + 1)}
        methods[name] = {"key": name, "name": name, **cell, "seeds": runs}
    return methods


def compared(methods: dict[str, Record], ratio: float = 0.0) -> Record:
    """The record of a finished comparison."""
    settings = {"data": "<my> data.csv", "command": "rcad compare --data x", "budget": 8, "epochs": 30}
    settings |= {
        "cost": "CPU time",
        "next": {"why": "Train it", "command": "rcad train --data x"},
        "test_ratio": ratio,
        "sizes": {"train": 1234, "validation": 30, "test": 80},
        "held_out": {"told": "chosen by 30 validation examples"},
        "versions": {"rcad": "0.1.0"},
    }
    return json.loads(json.dumps({**settings, **judged(methods, METRICS, ratio)}))


def said(methods: dict[str, Record], ratio: float = 0.0) -> list[str]:
    return compared(methods, ratio)["sentences"]


def example() -> Record:
    """Mixup is worse than ERM; RCAD would be better, but one of its runs diverged; of its control every run did."""
    methods = cells({"mixup": -2.0, "rcad": 2.0, "rcad_random": 0.0})
    methods["rcad"]["seeds"]["3"]["test"] = None
    for run in methods["rcad_random"]["seeds"].values():
        run["test"] = None
    return compared(methods, 0.25)


record = pytest.fixture(example)


def test_the_question_is_answered_first() -> None:
    lines = said(cells({"mixup": 0.0, "rcad": 2.0}))
    assert lines[0].startswith("Accuracy: rcad is better than ERM (gain +")
    assert lines[0].endswith(" points, p < 0.001, 10 splits).")
    assert lines[1] == "Accuracy: none of the other methods is shown to differ from ERM."
    assert said(cells({"rcad": -2.0}))[0].startswith("Accuracy: rcad is worse than ERM (gain -")
    worse = said(cells({"rcad": 0.0, "mixup": -3.0}))[1]
    assert worse.startswith("Accuracy: mixup (gain -")
    assert worse.endswith("is worse than ERM.")


def test_sentences_and_tables_have_one_sign(record: Record) -> None:
    """A gain is positive where ours is better, whichever way the metric points; the page says so once."""
    for gap in record["differences"]:
        if gap["mean"] is not None:
            gap |= {"metric": "nll", "mean": -0.3, "low": -0.5, "high": -0.1, "p_holm": 0.01}
    gap = record["differences"][1]
    assert _evidence(gap) == "gain -0.30 [-0.50, -0.10] nats, p = 0.010"
    assert difference_tables(record)[1].cells[0][2].text == "-0.30 [-0.50, -0.10]"
    page = markdown(document(record))
    assert page.count("positive where the method is better") == 1
    assert not re.search("positive is better|higher by|lower by|better by", page)
    # What is rounded to nothing has no sign, and a p-value is seen to be below the level.
    gap |= {"mean": -0.0004, "low": -0.092, "high": 0.09, "p_holm": 0.0498}
    assert _evidence(gap) == "gain 0.000 [-0.092, 0.090] nats, p = 0.04980"
    # An interval that leaves out zero does not seem to end there.
    gap |= {"mean": -0.01816, "low": -0.03613, "high": -0.00019, "p_holm": 0.048}
    assert _evidence(gap) == "gain -0.0182 [-0.0361, -0.0002] nats, p = 0.048"


def test_where_erm_solves_the_task_the_verdict_does_not_matter() -> None:
    methods = cells({"rcad": 0.3})

    def second(*metrics: str, **numbers: float) -> str:
        for cell in methods.values():
            for run in cell["seeds"].values():
                run["test"] = {"accuracy": 99.75, "nll": 0.01, "brier": 0.004, **numbers}
        return " ".join(judged(methods, metrics, 0.0)["sentences"][1:2])

    solved = "ERM already solves this task, with 99.75% accuracy: no method can gain more than "
    ends = " too little to matter, whatever the verdict."
    assert second("accuracy", "nll") == f"{solved}0.25 points,{ends}"
    assert second("nll", "accuracy") == f"{solved}0.01 nats,{ends}"
    assert second("brier", "accuracy") == f"{solved}0.004,{ends}"
    # Sure of its few mistakes, or of few of its labels: there is something to gain.
    for numbers in ({"nll": 0.3}, {"accuracy": 99.0}):
        assert "solves" not in second("nll", "accuracy", **numbers)
    assert "solves" not in second("nll")  # regression: the NLL of real targets has no floor
    for run in methods["erm"]["seeds"].values():
        run["test"] = None
    assert "solves" not in str(judged(methods, METRICS, 0.0)["sentences"])


def test_a_training_that_was_too_short_is_said_beside_the_verdict() -> None:
    methods = cells({"rcad": 0.3})
    for k, run in enumerate(methods["erm"]["seeds"].values()):
        run["more_epochs"] = 80 if k < 6 else None
    assert said(methods)[1] == (
        "ERM is undertrained, so the verdict is about short training. The validation NLL was still falling in the "
        "last epoch, after fewer than 500 steps: train longer, --epochs 80."
    )
    methods["erm"]["seeds"]["0"]["more_epochs"] = None  # half of the splits
    assert "undertrained" not in str(said(methods))


def test_splits_that_were_added_after_a_look_are_told_beside_the_verdict() -> None:
    lines = judged(cells({"rcad": 0.3}), METRICS, 0.0, looked=[3, 5])["sentences"]
    assert lines[1] == (
        "The number of splits was raised after a look at the results, from 3 and 5 to 10: such a test finds a "
        "difference where there is none more often than in 5% of the cases."
    )


def test_no_winner_without_a_difference_and_the_seeds_obey_the_rule() -> None:
    methods = cells({"rcad": 0.1, "mixup": 0.05}, noise=1.0)
    found = compared(methods)
    question, *others = found["differences"]
    assert (question["method"], question["against"], question["metric"]) == ("rcad", "erm", "accuracy")
    assert f"about {question['seeds_needed']} splits would show a difference of this size" in found["sentences"][0]
    # Alone the question is at 5%; the same comparison in the second family would need more.
    again = next(gap for gap in others if gap["method"] == "mixup" and gap["metric"] == "accuracy")
    alone = compared({name: methods[name] for name in ("erm", "mixup")})["question"]
    assert (again["p_two"], again["mean"]) == (alone["p_two"], alone["mean"])
    assert again["seeds_needed"] > alone["seeds_needed"]


def test_holm_is_over_the_second_family_alone() -> None:
    gains = {"rcad": 0.5, "mixup": 0.1, "rcad_random": 0.2, "confidence_penalty": 0.0}
    question, *others = compared(cells(gains))["differences"]
    assert question["p_holm"] == question["p_two"]
    assert len(others) == 3 * (4 + 2) - 1
    least = min(gap["p_two"] for gap in others)
    assert min(gap["p_holm"] for gap in others) == pytest.approx(min(1.0, len(others) * least))


def test_overlapping_splits_take_the_winner_back() -> None:
    found = cells({"rcad": 0.7}, noise=0.6, seed=1)
    assert "is better than ERM" in said(found)[0]
    assert "more splits would not show a difference this small, more data might" in said(found, ratio=0.5)[0]


def test_the_controls_tell_whether_the_direction_helps() -> None:
    both = said(cells({"rcad": 4.0, "rcad_random": 1.0, "confidence_penalty": 1.0}))
    assert both[1] == "rcad is better than its controls too: the adversarial direction is what helps."
    level = said(cells({"rcad": 2.0, "rcad_random": 2.0, "confidence_penalty": 0.0}))
    assert "not shown to be better than its control rcad_random" in level[1]


@pytest.mark.usefixtures("undrawn")
def test_results_that_changed_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.csv").write_text(table())
    words: Record = {"target": "colour", "seeds": 3, "budget": 1, "epochs": 1, "out": "out", "device": "cpu"}

    def compare() -> Record:
        return dict(rcad.compare("my.csv", "rcad", controls=False, **words).record)

    first = compare()
    assert first["next"]["why"].startswith("Tune weight decay")
    file = Path("out/compare.json")
    plain = json.loads(file.read_text())
    assert plain.pop("sha256")
    plain["methods"]["rcad"]["seeds"]["0"]["test"]["accuracy"] = 99.5
    file.write_text(json.dumps({**plain, "sha256": "0" * 64}))
    with pytest.raises(InputError, match=r"in out/compare.json: .* their checksum, .*; move it away to make the comp"):
        compare()
    with pytest.raises(InputError, match="checksum"):
        Comparison.read(file)
    for methods, says in (
        ({"rcad": 3}, "expected the comparison in out/compare.json.methods.rcad to be of type dict"),
        (
            {"rcad": {**plain["methods"]["rcad"], "seeds": {}}},
            "expected the comparison in out to hold what its kind has",
        ),
    ):
        file.write_text(json.dumps({**plain, "methods": methods}))
        with fails_in_one_line(says):
            compare()


def test_the_page_says_it_all(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "compare.json"
    path.write_text(json.dumps(COMPARISON.stamp(record)))
    page = html.page(Comparison.read(path).document)
    assert "Does it help on &lt;my&gt; data.csv?" in page
    assert "<my>" not in page
    for text in (
        record["sentences"][0],
        "1,234 examples for training",
        "n_test/n_train = 0.25",
        "8 configurations",
        "hyperparameters are chosen by 30 validation examples.",
        "<pre><code>rcad train --data x</code></pre>",
        "What was chosen",
        "half the distance between classes",
    ):
        assert text in page
    assert page.count("<svg") == 6  # dots and differences of three metrics


@pytest.mark.parametrize("scale", [3e-7, 3e-4, 1.0, 3e4])
def test_tick_labels_do_not_run_into_each_other(scale: float) -> None:
    methods = cells({"mixup": 0.1, "rcad": 0.3})
    methods["a.module:with_a_long_name(1)"] = {**methods.pop("mixup"), "role": "asked"}
    for cell in methods.values():
        for run in cell["seeds"].values():
            run["test"]["nll"] = scale * (1.2345 + (80 - run["test"]["accuracy"]) / 10)
    shown = compared(methods)
    for figure in (dots(shown, "nll"), forests(shown)[1]):
        picture(figure.drawing, "png")
        (ax,) = figure.drawing.axes
        low, high = ax.get_xlim()
        labels = [tick for tick in ax.get_xticklabels() if low <= tick.get_position()[0] <= high]
        boxes = [tick.get_window_extent() for tick in labels]
        assert len(boxes) >= 2
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_no_seed_is_hidden_under_the_interval(record: Record) -> None:
    figure = dots(record, "nll").drawing
    picture(figure, "png")
    (ax,) = figure.axes
    lines = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in lines] == [N, N, N - 1, 0]
    for k, line in enumerate(lines):
        (interval,) = (
            (bars for bars in ax.containers if k - 0.5 < bars.lines[0].get_ydata()[0] < k + 0.5) if k < 3 else (None,)
        )
        if interval is not None:
            assert min(line.get_ydata()) - interval.lines[0].get_ydata()[0] > 0.2
            assert max(line.get_ydata()) < k + 0.5


def test_the_page_follows_the_protocol(record: Record) -> None:
    untuned = document({**record, "budget": 1})
    assert "What was chosen" not in markdown(untuned)
    told = "Untuned: each method was trained once on each split with its defaults; `--budget 8` tunes every method."
    assert untuned.sections[0].verdict.splitlines()[-1] == told
    assert told not in markdown(document(record))
    assert "has its own test set" in markdown(document({**record, "test_ratio": 0.0}))


def test_results_and_cost(record: Record) -> None:
    erm, _, ours, control = results_table(record).cells
    summary = record["results"]["erm"]["accuracy"]["summary"]
    assert (erm[1].text, erm[-1].text) == (f"{summary['mean']:.1f} ± {summary['sd']:.1f}", "1.0")
    assert (ours[-1].text, ours[1].note) == ("3.0", "1 diverged")
    assert (control[1].text, control[0].note, control[0].mark) == ("-", "control", "aside")
    # The time of a clock is the machine's as much as the method's; the passes are counted.
    assert "in 8.0 s of CPU time" in markdown(document(record))
    assert " 8 s" not in markdown(document({**record, "cost": "time"}))
    for cell in record["methods"].values():
        del cell["passes"]  # as before they were counted
    earlier = results_table(record)
    assert "cost, ERM = 1" not in earlier.header
    assert "Cost" not in earlier.caption


def test_too_few_seeds_are_told_once_for_a_table() -> None:
    record = compared(cells({"rcad": 2.0, "mixup": 0.0}, n=2))
    question, *others = record["sentences"]
    assert question.endswith("is not tested: too few seeds for a test: 2, at least 3 are needed.")
    assert others[:2] == ["Accuracy: none of the other methods is tested.", "NLL: none of the methods is tested."]
    alone, table = difference_tables(record)
    assert table.caption.endswith(" Too few seeds for a test: 2, at least 3 are needed.")
    assert {(row[3].text, row[3].note) for row in (*alone.cells, *table.cells)} == {("not tested", "")}
    assert (alone.header[4], table.header[4]) == ("p", "p (Holm)")


def test_differences(record: Record) -> None:
    question, against_erm, controls = difference_tables(record)
    assert [cell.text for cell in question.cells[0]] == ["rcad", "accuracy", "-", "not tested", "-", "-", "-", "-"]
    assert question.caption == "The question, judged alone. 1 of the runs diverged, so nothing is shown."
    (mixup, gap), *_ = zip(against_erm.cells, record["differences"][1:], strict=False)
    assert [cell.text for cell in mixup[:2]] == ["mixup", "accuracy"]
    assert (mixup[3].text, mixup[3].mark, mixup[4].text) == ("worse", "bad", "<0.001")
    assert mixup[2].text.startswith(f"{gap['mean']:.2f} [{gap['low']:.2f}, ")
    assert [cell.text for cell in controls.cells[0]][:2] == ["rcad", "accuracy"]
    assert (mixup[6].text, mixup[6].note) == ("0 of 10", "")


def test_ties_are_counted_beside_the_seeds_won() -> None:
    methods = cells({"rcad": 2.0}, noise=0.0)
    for seed in "37":
        methods["rcad"]["seeds"][seed]["test"] = methods["erm"]["seeds"][seed]["test"]
    rows = [row for shown in difference_tables(compared(methods)) for row in shown.cells]
    assert {(row[6].text, row[6].note) for row in rows} == {("8 of 10", "2 ties")}


def test_data_in_memory_are_to_be_written_to_a_file() -> None:
    pandas = pytest.importorskip("pandas")
    for data, save in ((pandas.DataFrame({"a": [1]}), "DataFrame; .*to_csv"), (np.zeros((2, 2)), "ndarray; .*savez")):
        for call in (rcad.compare, rcad.tune):
            with pytest.raises(InputError, match=f"expected data to be a name, a file or a folder, but got {save}"):
                call(data)


@pytest.mark.usefixtures("undrawn")
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
    tuned = rcad.tune("my.csv", "rcad(alpha=0.3)", target="price", budget=2, epochs=1)
    assert set(tuned.best["values"]) == {"optim.weight_decay", "lam"}  # type: ignore[index]
    assert (found.files, tuned.files) == ((), ())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.csv"]


UNFIT = (
    ({"budget": 0}, "expected budget to be a whole number >= 1, but got 0"),
    ({"seeds": 0}, "expected seeds to be a number >= 1 or a list of seeds, each once, but got 0"),
    ({"seeds": [1, 1]}, "each once, but got [1, 1]"),
    ({"devices": 2}, 'expected devices to be names such as ("cuda:0", "cuda:1"), but got 2'),
    ({"seeds": [0.5]}, "expected each of seeds to be a whole number >= 0, but got 0.5"),
)
test_numbers_that_cannot_be = refusals(
    *((call, *row) for call in (rcad.compare, rcad.tune) for row in UNFIT),
    of=lambda call, given: call("digits[:60]", **given),
)
test_a_damaged_record_is_told_in_one_line = refusals(
    *(
        (Comparison({}), name, "to hold what its kind has, but got KeyError")
        for name in ("question", "diverged", "next")
    ),
    *((Tuning({}), name, "to hold what its kind has, but got KeyError") for name in ("best", "command")),
    of=getattr,
)


@pytest.mark.usefixtures("undrawn")
def test_a_standard_split_is_taken_once_and_no_more_of_them_are_advised(tmp_path: Path) -> None:
    folder = tmp_path / "uci" / "yacht"
    folder.mkdir(parents=True)
    rows, lines = np.random.default_rng(0).normal(size=(40, 3)), "\n".join
    np.savetxt(folder / "data.txt", rows)
    parts = {"index_features": [0, 1], "index_target": [2], "n_splits": [2]}
    for split, test in enumerate((range(10), range(10, 20))):
        parts |= {f"index_test_{split}": [*test], f"index_train_{split}": [k for k in range(40) if k not in test]}
    for name, numbers in parts.items():
        (folder / f"{name}.txt").write_text(lines(map(str, numbers)))
    words: Record = {"budget": 1, "epochs": 1, "controls": False, "device": "cpu", "data_dir": tmp_path}
    assert "--seeds 2 " in rcad.compare("yacht", "rcad", seeds=2, **words).next  # two are too few for a test
    with pytest.raises(InputError, match="expected seeds below 2, the number of standard splits of yacht, but got 2"):
        rcad.compare("yacht", "rcad", seeds=3, **words)


def test_the_interval_of_a_method_is_widened_like_that_of_a_difference() -> None:
    plain, wide = (compared(cells({"rcad": 1.0}), ratio)["results"]["rcad"]["nll"]["summary"] for ratio in (0.0, 0.3))
    # Of N = 10 splits: 1/10 becomes 1/10 + 0.3.
    assert wide["high"] - wide["mean"] == pytest.approx(2 * (plain["high"] - plain["mean"]))
