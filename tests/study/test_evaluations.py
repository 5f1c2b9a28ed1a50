"""Several runs side by side."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import rcad
from evaluate.saved_run.conftest import QUICK
from rcad.errors import InputError
from rcad.evaluate.corruptions import mce
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.run import Outcome, evaluate
from rcad.runs.files import unsealed
from rcad.runs.store import Store
from rcad.study.evaluations import summary
from rcad.study.statistics import paired
from rcad.train.task import as_asked, measured_alpha
from trained import DIGITS, run_id

pytestmark = pytest.mark.usefixtures("undrawn")

SUITES = ("calibration", "corruptions")


@pytest.fixture(scope="module")
def outcomes(store: Store) -> dict[str, Outcome]:
    loader = RunLoader(store, device="cpu")
    wanted = [run_id(method, seed) for method in ("rcad", "erm") for seed in (1, 0)]
    return {run: evaluate(loader, run, SUITES, QUICK) for run in wanted}


def errors(outcome: Outcome) -> dict[str, list[float]]:
    scores = outcome.evaluations["corruptions"].curves["scores"]
    return {name: [100 - cell["accuracy"] for cell in cells] for name, cells in scores.items()}


def changed(outcome: Outcome, seed: int | None = None, **numbers: float) -> Outcome:
    """The calibration once more with other numbers, and under another seed where one is named."""
    record, measured = outcome.record, outcome.evaluations["calibration"]
    if seed is not None:
        record = replace(record, config=replace(record.config, seed=seed), id="")
    evaluation = replace(measured, numbers={**measured.numbers, **numbers})
    return replace(outcome, record=record, evaluations={"calibration": evaluation})


def of_both(outcomes: dict[str, Outcome], name: str) -> dict[str, list[float]]:
    return {
        method: [outcomes[run_id(method, seed)].evaluations["calibration"].numbers[name] or 0.0 for seed in (0, 1)]
        for method in ("erm", "rcad")
    }


def test_groups_numbers_and_differences(outcomes: dict[str, Outcome]) -> None:
    found = summary(list(outcomes.values()), SUITES, QUICK, 1.0)
    erm, rcad = found["groups"]
    assert [group["name"] for group in (erm, rcad)] == ["erm", "rcad"]
    assert erm["seeds"] == rcad["seeds"] == [0, 1]
    assert rcad["runs"] == [run_id("rcad", 0), run_id("rcad", 1)]
    values = of_both(outcomes, "nll")["rcad"]
    expected = {"mean": pytest.approx(sum(values) / 2), "sd": pytest.approx(abs(values[0] - values[1]) / 2**0.5)}
    assert rcad["numbers"]["nll"] == {"values": values, **expected}
    assert erm["comparison"] is None
    assert erm["numbers"]["mce"]["values"] == [100, 100]
    own = [mce(errors(outcomes[run_id("rcad", s)]), errors(outcomes[run_id("erm", s)])) for s in (0, 1)]
    assert rcad["numbers"]["mce"]["values"] == pytest.approx(own)


def test_three_seeds_are_tested(outcomes: dict[str, Outcome]) -> None:
    more = [changed(outcomes[run_id(name, 0)], 2, nll=nll) for name, nll in (("rcad", 0.5), ("erm", 0.75))]
    _, rcad = summary([*outcomes.values(), *more], SUITES, QUICK, 1.0)["groups"]
    nll = of_both(outcomes, "nll")
    # Each seed draws its own split of one data set, so that test sets overlap.
    expected = paired([*nll["rcad"], 0.5], [*nll["erm"], 0.75], test_ratio=0.2 / 0.8)  # of all rows, as `rcad compare`
    assert rcad["comparison"]["differences"]["nll"] == pytest.approx({**expected.to_dict(), "why": None})
    assert rcad["comparison"]["note"].endswith("intervals are corrected for that (Nadeau and Bengio, 2003).")


def test_without_a_spread_there_is_no_test(outcomes: dict[str, Outcome]) -> None:
    erm = [0.3, 0.7, 98.1]
    # Rounding: the differences are equal on paper only.
    rcad = [value + 0.1 for value in erm]
    assert len({a - b for a, b in zip(rcad, erm, strict=True)}) > 1
    every = []
    for name, values, nll in (("erm", erm, 0.5), ("rcad", rcad, 0.9)):
        first, second = (outcomes[run_id(name, seed)] for seed in (0, 1))
        every += [changed(first, ece=values[0]), changed(second, ece=values[1])]
        every.append(changed(first, 2, nll=nll, ece=values[2]))
    _, group = summary(every, ("calibration",), QUICK, 1.0)["groups"]
    found = group["comparison"]["differences"]
    untested = dict.fromkeys(("se", "low", "high", "t", "df", "p_less", "p_greater", "p_two"))
    assert found["ece"] == {**untested, "mean": pytest.approx(0.1), "why": "no spread"}
    assert found["nll"]["p_two"] > 0


def test_too_few_seeds_of_erm_are_said(outcomes: dict[str, Outcome]) -> None:
    chosen = [outcomes[run_id("rcad", 0)], outcomes[run_id("rcad", 1)], outcomes[run_id("erm", 1)]]
    _, rcad = summary(chosen, SUITES, QUICK, 1.0)["groups"]
    assert rcad["comparison"]["differences"] == {}
    assert rcad["comparison"]["note"] == "A difference to erm needs 2 or more common seeds, but there is 1."
    assert rcad["numbers"]["mce"]["values"][0] is None
    (rcad,) = summary(chosen[:1], SUITES, QUICK, 1.0)["groups"]
    assert (rcad["comparison"], rcad["numbers"]["nll"]["sd"], "mce" in rcad["numbers"]) == (None, None, False)
    assert "No ERM run" in rcad["notes"][0]


def test_names_tell_groups_apart(outcomes: dict[str, Outcome], loader: RunLoader) -> None:
    table = evaluate(loader, run_id("erm", 0, "breast_cancer"), ("calibration",), QUICK)
    found = summary([table, outcomes[run_id("erm", 0)]], ("calibration",), QUICK, 1.0)
    assert {group["name"] for group in found["groups"]} == {"erm on breast_cancer", f"erm on {DIGITS}"}
    one = outcomes[run_id("erm", 0)]
    config = one.record.config
    longer = replace(one.record, config=replace(config, train=replace(config.train, epochs=7)), id="")
    found = summary([one, replace(one, record=longer)], ("calibration",), QUICK, 1.0)
    assert {group["name"] for group in found["groups"]} == {f"erm ({one.record.id[:8]})", f"erm ({longer.id[:8]})"}


def test_alphas_measured_on_each_split_are_one_method(outcomes: dict[str, Outcome], loader: RunLoader) -> None:
    """As `rcad compare` writes them: a number for each split, with four digits."""
    written = []
    for seed in (0, 1):
        outcome = outcomes[run_id("rcad", seed)]
        config, problem = outcome.record.config, loader.load(outcome.record.id).problem
        rows = (("rcad", (("alpha", float(f"{measured_alpha(problem):.4g}")), ("lam", 0.1))),)
        compared = replace(config, method=rows)
        other = replace(config, method=(("rcad", (("alpha", 2 * rows[0][1][0][1]), ("lam", 0.1))),))
        assert as_asked(other, problem) == other
        record = replace(outcome.record, config=compared, id="")
        written.append(replace(outcome, record=record, asked=as_asked(compared, problem)))
    assert written[0].record.config.method != written[1].record.config.method
    erm = [outcomes[run_id("erm", seed)] for seed in (0, 1)]
    _, rcad = summary([*written, *erm], ("calibration",), QUICK, 1.0)["groups"]
    assert (rcad["name"], rcad["seeds"], rcad["comparison"]["seeds"]) == ("rcad", [0, 1], [0, 1])
    # Beside a run that measured its own alpha, of the same seed, they stay what they are.
    own = replace(written[0], record=replace(written[0].record, config=written[0].asked, id=""))
    groups = summary([*written, own], ("calibration",), QUICK, 1.0)["groups"]
    assert sorted(len(group["seeds"]) for group in groups) == [1, 1, 1]


def test_the_python_entry(trained_runs: Path, tmp_path: Path) -> None:
    chosen = [run_id(method, seed)[:12] for method in ("rcad", "erm") for seed in (1, 0)]
    settings = {"limit": 24, "attack_eps": 0.05, "device": "cpu"}  # one radius may be a number
    report = rcad.evaluate_run(chosen, ["calibration"], runs=trained_runs, out=tmp_path / "out", **settings)
    assert list(report.numbers) == ["erm", "rcad"]
    measured = [group["numbers"]["nll"]["mean"] for group in report.record["groups"]]
    assert [numbers["nll"] for numbers in report.numbers.values()] == measured
    assert report.table.header[:2] == ["method", "accuracy, %"]
    assert "<h2>Calibration</h2>" in report._repr_html_()
    assert str(report).count("\nCalibration\n") == 1
    page, text, record = report.files
    assert page.read_text().count("<svg ") == len(report.figures) == 2
    assert "## Against ERM" in text.read_text() == report._repr_markdown_()
    read = type(report).read(record)
    assert unsealed(json.loads(record.read_text())) == report.record
    assert (read.numbers, repr(read)) == (report.numbers, repr(report))
    record.write_text(json.dumps({"kind": "rcad evaluation", "schema": 1, "suites": ["calibration"]}))
    with pytest.raises(InputError, match="expected a record of kind 'rcad evaluation' to hold what its kind has"):
        str(type(report).read(record))
