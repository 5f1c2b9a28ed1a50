"""What a comparison says: its question first, a winner only where the test says so."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rcad
from made import files, table
from one_line import fails_in_one_line, refusals
from rcad.errors import InputError
from rcad.report import html
from rcad.report.markdown import markdown
from rcad.study.compare import COMPARISON, Comparison, split_methods
from rcad.study.compare_page import _evidence, difference_tables, document, judged, results_table
from rcad.study.tune import Tuning

pytest.importorskip("scipy.stats")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
N = 10
METRICS = ["accuracy", "nll", "brier"]
ROLES = {"erm": "base", "rcad": "asked", "mixup": "asked", "rcad_random": "control", "confidence_penalty": "control"}
Record = dict[str, Any]


def test_methods_may_be_text_or_values() -> None:
    ours, erm = rcad.methods.rcad(1.0, 0.1), rcad.methods.erm()
    given = split_methods([erm, ours, "mixup, cutmix(p=0.5)"])
    expected = [erm, ours, rcad.methods.mixup(), rcad.methods.cutmix(p=0.5)]
    assert [rcad.Method.parse(text) for text in given] == expected


def cells(gains: dict[str, float], *, n: int = N, noise: float = 0.4, seed: int = 0) -> dict[str, Record]:
    """Accuracies around 80 with a gain for each method; nll and brier fall as accuracy grows."""
    draw = np.random.default_rng(seed)
    base = draw.normal(80, 2, n)
    methods = {}
    for k, (name, gain) in enumerate({"erm": 0.0, **gains}.items()):
        accuracies = (base + gain + noise * draw.normal(size=n)).tolist()
        tests = [{"accuracy": a, **dict.fromkeys(("nll", "brier"), 1 - a / 100)} for a in accuracies]
        runs = {str(seed): {"chosen": {"lam": 0.1}, "test": test} for seed, test in enumerate(tests)}
        cell = {"role": ROLES[name], "space": ["lam=log(0.01, 1)"], "seconds": 2.0, "runs": n, "passes": 90.0 * (k + 1)}
        methods[name] = {"key": name, "name": name, **cell, "seeds": runs}
    return methods


def compared(methods: dict[str, Record], ratio: float = 0.0) -> Record:
    """The record of a finished comparison."""
    settings = {"data": "<my> data.csv", "command": "rcad compare --data x", "budget": 8, "epochs": 30}
    settings |= {"cost": "CPU time", "next": {"why": "Train it", "command": "rcad train --data x"}}
    settings |= {"test_ratio": ratio, "sizes": {"train": 1234, "validation": 30, "test": 80}}
    settings |= {"held_out": {"told": "chosen by 30 validation examples"}, "versions": {"rcad": "0.1.0"}}
    return json.loads(json.dumps({**settings, **judged(methods, METRICS, ratio)}))


def said(methods: dict[str, Record], ratio: float = 0.0) -> list[str]:
    return compared(methods, ratio)["sentences"]


@pytest.fixture
def record() -> Record:
    """Mixup is worse than ERM; RCAD would be better, but one of its runs diverged; of its control every run did."""
    methods = cells({"mixup": -2.0, "rcad": 2.0, "rcad_random": 0.0})
    methods["rcad"]["seeds"]["3"]["test"] = None
    for run in methods["rcad_random"]["seeds"].values():
        run["test"] = None
    return compared(methods, 0.25)


def test_the_question_is_answered_first() -> None:
    lines = said(cells({"mixup": 0.0, "rcad": 2.0}))
    assert re.fullmatch(r"Accuracy: rcad is better than ERM \(gain \+.* points, p < 0.001, 10 splits\)\.", lines[0])
    assert lines[1] == "Accuracy: none of the other methods is shown to differ from ERM."
    assert said(cells({"rcad": -2.0}))[0].startswith("Accuracy: rcad is worse than ERM (gain -")
    worse = said(cells({"rcad": 0.0, "mixup": -3.0}))[1]
    assert re.fullmatch(r"Accuracy: mixup \(gain -.* is worse than ERM\.", worse)


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
    # An interval that leaves out zero does not seem to end there, and a p-value is seen to be below the level.
    gap |= {"mean": -0.01816, "low": -0.03613, "high": -0.00019, "p_holm": 0.0498}
    assert _evidence(gap) == "gain -0.0182 [-0.0361, -0.0002] nats, p = 0.04980"


def test_where_erm_solves_the_task_the_verdict_does_not_matter() -> None:
    methods = cells({"rcad": 0.3})

    def second(*metrics: str, **numbers: float) -> str:
        for run in (run for cell in methods.values() for run in cell["seeds"].values()):
            run["test"] = {"accuracy": 99.75, "nll": 0.01, "brier": 0.004, **numbers}
        return " ".join(judged(methods, metrics, 0.0)["sentences"][1:2])

    solved = "ERM already solves this task, with 99.75% accuracy: no method can gain more than 0.01 nats,"
    assert second("nll", "accuracy") == f"{solved} too little to matter, whatever the verdict."
    # Sure of its few mistakes, or of few of its labels: there is something to gain.
    for numbers in ({"nll": 0.3}, {"accuracy": 99.0}):
        assert "solves" not in second("nll", "accuracy", **numbers)
    assert "solves" not in second("nll")  # regression: the NLL of real targets has no floor


def test_what_weakens_a_verdict_is_said_beside_it() -> None:
    methods = cells({"rcad": 0.3})
    lines = judged(methods, METRICS, 0.0, looked=[3, 5])["sentences"]
    assert lines[1] == (
        "The number of splits was raised after a look at the results, from 3 and 5 to 10: such a test finds a "
        "difference where there is none more often than in 5% of the cases."
    )
    for k, run in enumerate(methods["erm"]["seeds"].values()):
        run["more_epochs"] = 80 if k < 6 else None
    assert said(methods)[1] == (
        "ERM is undertrained, so the verdict is about short training. The validation NLL was still falling in the "
        "last epoch, after fewer than 500 steps: train longer, --epochs 80."
    )
    methods["erm"]["seeds"]["0"]["more_epochs"] = None  # half of the splits
    assert "undertrained" not in str(said(methods))


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

    assert compare()["next"]["why"].startswith("Tune weight decay")
    file = Path("out/compare.json")
    plain = json.loads(file.read_text())
    assert plain.pop("sha256")
    ours = plain["methods"]["rcad"]
    ours["seeds"]["0"]["test"]["accuracy"] = 99.5
    file.write_text(json.dumps({**plain, "sha256": "0" * 64}))
    with pytest.raises(InputError, match=r"in out/compare.json: .* their checksum, .*; move it away to make the comp"):
        compare()
    with pytest.raises(InputError, match="checksum"):
        Comparison.read(file)
    file.write_text(json.dumps({**plain, "methods": {"rcad": {**ours, "seeds": {}}}}))
    with fails_in_one_line("expected the comparison in out to hold what its kind has"):
        compare()


def test_the_page_says_it_all(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "compare.json"
    path.write_text(json.dumps(COMPARISON.stamp(record)))
    page = html.page(Comparison.read(path).document)
    assert "<my>" not in page
    for text in (
        "Does it help on &lt;my&gt; data.csv?",
        record["sentences"][0],
        "1,234 examples for training",
        "n_test/n_train = 0.25",
        "hyperparameters are chosen by 30 validation examples.",
        "<pre><code>rcad train --data x</code></pre>",
        "What was chosen",
    ):
        assert text in page
    assert page.count("<svg") == 6  # dots and differences of three metrics
    untuned = document({**record, "budget": 1})
    assert "What was chosen" not in markdown(untuned)
    assert untuned.sections[0].verdict.splitlines()[-1].startswith("Untuned: each method was trained once on each")
    assert "has its own test set" in markdown(document({**record, "test_ratio": 0.0}))


def test_results_and_cost(record: Record) -> None:
    erm, _, ours, control = results_table(record).cells
    summary = record["results"]["erm"]["accuracy"]["summary"]
    assert (erm[1].text, erm[-1].text) == (f"{summary['mean']:.1f} ± {summary['sd']:.1f}", "1.0")
    assert (ours[-1].text, ours[1].note) == ("3.0", "1 diverged")
    assert (control[1].text, control[0].note, control[0].mark) == ("-", "control", "aside")
    for cell in record["methods"].values():
        del cell["passes"]  # as before they were counted
    assert "cost, ERM = 1" not in results_table(record).header


def test_differences(record: Record) -> None:
    question, against_erm, controls = difference_tables(record)
    assert [cell.text for cell in question.cells[0]] == ["rcad", "accuracy", "-", "not tested", "-", "-", "-", "-"]
    assert question.caption == "The question, judged alone. 1 of the runs diverged, so nothing is shown."
    mixup, gap = against_erm.cells[0], record["differences"][1]
    assert [mixup[k].text for k in (0, 1, 3, 4, 6)] == ["mixup", "accuracy", "worse", "<0.001", "0 of 10"]
    assert mixup[3].mark == "bad"
    assert mixup[2].text.startswith(f"{gap['mean']:.2f} [{gap['low']:.2f}, ")
    assert [cell.text for cell in controls.cells[0]][:2] == ["rcad", "accuracy"]
    methods = cells({"rcad": 2.0}, noise=0.0)
    for seed in "37":
        methods["rcad"]["seeds"][seed]["test"] = methods["erm"]["seeds"][seed]["test"]
    rows = [row for shown in difference_tables(compared(methods)) for row in shown.cells]
    assert {(row[6].text, row[6].note) for row in rows} == {("8 of 10", "2 ties")}


def test_data_in_memory_are_to_be_written_to_a_file() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"a": [1]})
    for call, data, save in ((rcad.compare, frame, "DataFrame; .*to_csv"), (rcad.tune, np.eye(2), "ndarray; .*savez")):
        with pytest.raises(InputError, match=f"expected data to be a name, a file or a folder, but got {save}"):
            call(data)


@pytest.mark.usefixtures("undrawn")
def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files(my_dot_csv=table())
    found = rcad.compare("my.csv", "rcad", target="price", seeds=3, budget=2, epochs=1, controls=False)
    assert (found.question["metric"], found.next[:5], found.verdict[:10]) == ("nll", "rcad ", "NLL: rcad ")
    assert [row[0].text for row in found.table.cells] == ["erm", "rcad"]
    assert found.verdict.splitlines()[0] in found._repr_markdown_()
    assert "<svg" in found._repr_html_()
    assert repr(found) == str(found)  # a notebook's file holds both forms, and the record is long
    tuned = rcad.tune("my.csv", "rcad(alpha=0.3)", target="price", budget=2, epochs=1)
    assert set(tuned.best["values"]) == {"optim.weight_decay", "lam"}  # type: ignore[index]
    assert (found.files, tuned.files) == ((), ())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.csv"]


UNFIT = (
    ({"budget": 0}, "expected budget to be a whole number >= 1, but got 0"),
    ({"seeds": 0}, "expected seeds to be a number >= 1 or a list of seeds, each once, but got 0"),
    ({"devices": 2}, 'expected devices to be names such as ("cuda:0", "cuda:1"), but got 2'),
    ({"seeds": [0.5]}, "expected each of seeds to be a whole number >= 0, but got 0.5"),
)
test_numbers_that_cannot_be = refusals(
    *((call, *row) for call in (rcad.compare, rcad.tune) for row in UNFIT),
    of=lambda call, given: call("digits[:60]", **given),
)
DAMAGED = ((Comparison, "question"), (Comparison, "next"), (Tuning, "best"))
test_a_damaged_record_is_told_in_one_line = refusals(
    *((one({}), name, "to hold what its kind has, but got KeyError") for one, name in DAMAGED),
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
