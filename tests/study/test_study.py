"""Who is compared, on which splits, and that the stacked twin gives the numbers of single runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from made import table
from rcad.data.dataset import Dataset, Split, resolve
from rcad.errors import InputError
from rcad.loss.method_rows import method_text, parse_method
from rcad.loss.methods import Method
from rcad.loss.perturbations import RandomStep
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.store import Store
from rcad.study import backends, study
from rcad.study.backends import HELD_OUT, Metrics, Stacked, can_stack, numbers_of
from rcad.train.place import Place
from rcad.train.progress import SILENT
from rcad.train.run import run
from rcad.train.task import Problem, method_of, prepare, read
from runs.conftest import make_record

SEEDS = (0, 3)
Splits = dict[int, tuple[RunConfig, Problem]]


def config_of(folder: Path, target: str) -> RunConfig:
    (folder / "data.csv").write_text(table())
    return configure({"name": str(folder / "data.csv"), "target": target}, parse_method("erm"), epochs=4)


def splits_of(config: RunConfig) -> Splits:
    dataset = read(config.data, None, None)
    configs = {seed: study.split_of(config, seed, dataset) for seed in SEEDS}
    return {seed: (one, prepare(one, dataset, torch.device("cpu"))) for seed, one in configs.items()}


@pytest.fixture(params=["colour", "price"], ids=["labels", "reals"])
def splits(request: pytest.FixtureRequest, tmp_path: Path) -> Splits:
    return splits_of(config_of(tmp_path, request.param))


def contestant(text: str) -> study.Contestant:
    rows = parse_method(text)
    return study.Contestant(method_text(rows), rows, "asked")


def compete(one: study.Contestant, splits: Any, budget: int, backend: Any) -> Any:
    config, problem = next(iter(splits.values()))
    space = study.space_of(one.rows, config, problem, study.Setup(data="d"))
    return study.compete(study.planned(one, splits, space, budget, "nll"), "nll", backend, SILENT)


class Recorded:
    """A backend that remembers what it was asked for, and gives made-up numbers."""

    seconds = 12.5

    def __init__(self, scores: list[float | None]) -> None:
        self.scores, self.configs, self.tested = scores, [], []  # type: ignore[var-annotated]

    def fit(self, configs: Any, progress: Any) -> list[Metrics | None]:
        self.configs = list(configs)
        return [None if s is None else {"accuracy": s, "nll": 100 - s} for s in self.scores]

    def test(self, chosen: Any) -> list[Metrics | None]:
        self.tested = list(chosen)
        return [None if self.scores[k] is None else {"accuracy": 50.0 + k, "nll": 1.0} for k in chosen]

    def more_epochs(self, chosen: Any) -> list[int | None]:
        return [100 + k for k in chosen]


def test_each_split_chooses_by_its_held_out_rows_and_tests_one(splits: Splits) -> None:
    backend = Recorded([70.0, 80.0, None, 60.0, 60.0, 50.0])
    cell = compete(contestant("rcad"), splits, 3, backend)
    assert backend.tested == [1, 3]  # the best of each split, the first of equals
    assert [one.seed for one in backend.configs] == [0, 0, 0, 3, 3, 3]
    assert cell["seeds"]["0"]["test"] == {"accuracy": 51.0, "nll": 1.0}
    assert [run["more_epochs"] for run in cell["seeds"].values()] == [101, 103]
    assert (len(cell["seeds"]["3"]["trials"]), cell["runs"], cell["seconds"]) == (3, 6, 12.5)
    lost = compete(contestant("rcad"), splits, 1, Recorded([None, 2.0]))["seeds"]
    assert (lost["0"]["test"], lost["3"]["test"]) == (None, {"accuracy": 51.0, "nll": 1.0})


def test_every_method_has_the_same_budget(splits: Splits) -> None:
    tried: dict[str, list[RunConfig]] = {}
    for name in ("erm", "confidence_penalty", "rcad", "rcad_random", "me_ada", "adversarial_training"):
        for budget in (1, 4):
            backend = Recorded([1.0] * 2 * budget)
            compete(contestant(name), splits, budget, backend)
            assert len(set(backend.configs)) == len(backend.configs) == 2 * budget, name
            tried[name] = backend.configs
    decays = [tuple(one.optim.weight_decay for one in configs) for configs in tried.values()]
    assert len(set(decays)) == 1
    assert len(set(decays[0])) == 4
    # A control tries the steps and the weights of RCAD.
    rcad, control = ([dict(one.method[0][1]) for one in tried[name]] for name in ("rcad", "rcad_random"))
    assert [{key: row[key] for key in ("alpha", "lam")} for row in rcad] == control


def test_the_first_candidate_is_what_train_uses(splits: Splits) -> None:
    config, problem = splits[SEEDS[0]]
    for name in ("erm", "rcad", "rcad_text", "two_views + rcad", *(["label_smoothing"] if problem.classes else [])):
        trained = configure({"name": config.data.name, "target": config.data.target}, parse_method(name), epochs=4)
        backend = Recorded([1.0] * 4)
        compete(contestant(name), splits, 2, backend)
        assert str(method_of(backend.configs[0], problem)) == str(method_of(trained, problem))
        assert replace(backend.configs[0], method=trained.method, seed=0) == trained


def test_stacked_runs_equal_single_runs(splits: Splits, tmp_path: Path) -> None:
    """Held-out numbers of every trial and test numbers of the chosen ones, against the engine."""
    backend = Stacked({seed: problem for seed, (_, problem) in splits.items()})
    planned = Recorded([1.0] * 4)
    compete(contestant("rcad"), splits, 2, planned)
    assert all(can_stack(one, splits[one.seed][1]) for one in planned.configs)
    place = Place(Store.open(tmp_path / "runs"))
    records = [run(one, place) for one in planned.configs]
    near: Any = {"rel": 1e-3, "abs": 1e-4}
    for found, record in zip(backend.fit(planned.configs, SILENT), records, strict=True):
        assert found == pytest.approx(numbers_of(record, HELD_OUT), **near)
    assert backend.more_epochs(range(4)) == [record.more_epochs for record in records]
    assert any(backend.more_epochs(range(4)))
    for found, record in zip(backend.test(range(4)), records, strict=True):
        assert found == pytest.approx({name: record.metrics[f"test_{name}"] for name in found}, **near)  # type: ignore[union-attr]


def test_stacks_never_hold_the_test_rows_and_parts_are_put_together_in_order(
    splits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = {seed: problem for seed, (_, problem) in splits.items()}
    configs = [replace(one, optim=replace(one.optim, lr=lr)) for lr in (0.001, 0.03) for one, _ in splits.values()]
    spy = Mock(wraps=backends.train_configs)
    monkeypatch.setattr(backends, "train_configs", spy)
    whole = Stacked(problems).fit(configs, SILENT)
    assert [len(problem.test[1]) for problem in spy.call_args.args[1]] == [0, 0, 0, 0]
    monkeypatch.setattr(backends, "MOST_NUMBERS", 1)
    parts = Stacked(problems).fit(configs, seen := Mock())
    for a, b in zip(whole, parts, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert seen.overall.call_args.args[:2] == (16, 16)


def test_rcad_brings_its_controls() -> None:
    def roles(*methods: str, controls: bool = True) -> dict[str, str]:
        asked = [parse_method(text) for text in methods]
        return {method_text(rows): role for rows, role in study.lineup(asked, controls=controls)}

    own, two = {"erm": "base", "rcad": "asked"}, ("rcad_random", "confidence_penalty")
    assert roles("rcad") == own | dict.fromkeys(two, "control")
    assert roles("rcad", controls=False) == own
    assert roles("rcad_random", "rcad")["rcad_random"] == "asked"  # one that was asked for is no control
    shared = ["mixup + rcad_random(alpha=2.0, lam=0.3)", "mixup + confidence_penalty(lam=0.3)"]
    assert list(roles("mixup + rcad(alpha=2.0, lam=0.3, steps=4)"))[2:] == shared


def test_the_overlap_of_splits_and_seeds_go_through_the_standard_ones() -> None:
    x = np.zeros((100, 2), np.float32)
    whole = Dataset("d", "classification", Split(x, np.arange(100) % 2), classes=("a", "b"))
    assert study.overlap(whole, resolve(whole)) == pytest.approx(20 / 80)
    assert study.overlap(whole, resolve(whole, n=30)) == pytest.approx(20 / 80)
    own = replace(whole, test=Split(x[:10], np.arange(10) % 2))
    assert study.overlap(own, resolve(own)) == 0.0
    standard = replace(whole, standard_splits=((np.arange(90), np.arange(90, 100)),) * 2)
    assert study.overlap(standard, resolve(standard)) == pytest.approx(10 / 90)
    config = configure("d", parse_method("erm"))
    assert [study.split_of(config, seed, standard).data.split for seed in (0, 1)] == [0, 1]
    with pytest.raises(
        InputError, match=r"^expected seeds below 2, the number of standard splits of d, but got 2; pass"
    ):
        study.split_of(config, 2, standard)
    fixed = replace(config, data=replace(config.data, split=1))
    assert study.split_of(fixed, 0, standard).data.split == 1
    assert study.split_of(config, 5, whole).data.split is None


def test_methods_for_labels_are_refused_on_real_targets(tmp_path: Path) -> None:
    config = config_of(tmp_path, "price")
    problem = splits_of(config)[0][1]
    study.check_suitable([contestant("erm"), contestant("rcad"), contestant("me_ada")], config, problem)
    with pytest.raises(InputError, match=r"^expected methods for regression \(erm,.*rcad.*'label_smoothing'") as found:
        study.check_suitable([contestant("rcad"), contestant("label_smoothing")], config, problem)
    offered = str(found.value).partition("(")[2].partition(")")[0].split(", ")
    assert not {"label_smoothing", "mixup", "ls_on_adv", "gaussian"} & set(offered)


def test_data_options_are_named() -> None:
    assert study.Setup("my.csv", own={"skip_bad": True}).own == {"skip_bad": True}
    with pytest.raises(InputError, match=r"a key of data_options to be .*, but got 'skipbad'; did you mean 'skip_bad'"):
        study.Setup("my.csv", own={"skipbad": True})


def test_test_numbers_have_no_say() -> None:
    metrics = {"val_accuracy": 90.0, "val_nll": 0.5, "test_accuracy": 99.0, "test_nll": 0.1, "epochs": 3.0}
    assert numbers_of(make_record(metrics=metrics), HELD_OUT) == {"accuracy": 90.0, "nll": 0.5}
    with pytest.raises(InputError, match="validation split"):
        numbers_of(make_record(metrics={"test_nll": 1.0}), HELD_OUT)


def test_how_sure_a_choice_is_is_said_in_one_sentence() -> None:
    scipy = pytest.importorskip("scipy.stats")
    low, high = scipy.binom(12 * 3, 0.5).interval(0.95)
    # The exact interval goes in steps of one example.
    assert study.HeldOut(12, 3, "accuracy").points == pytest.approx(50 * (high - low) / 36, abs=100 / 36)
    told = "chosen by 12 validation examples on each of 3 seeds: an accuracy over them is uncertain by"
    assert str(study.HeldOut(12, 3, "accuracy")).startswith(told)
    assert str(study.HeldOut(1, 1, "nll")).endswith("1 validation example, so few that small differences may be chance")
    assert str(study.HeldOut(5000, 1, "nll")) == "chosen by 5,000 validation examples"
    assert [study.HeldOut(study.FEW - 1, 1, "nll").few, study.HeldOut(study.FEW // 2, 2, "nll").few] == [True, False]


def test_passes_are_counted_over_a_whole_run() -> None:
    for text, expected in {
        "erm": 30 * 3,
        "rcad(alpha=1)": 30 * 6,
        "rcad(alpha=1, every=3)": 30 * 4,
        "ada": 10 * 3 + 31 + 10 * 6 + 2 * 31 + 10 * 12,  # the set doubles after 10 and after 20 epochs
        "ada(epochs=15)": 15 * 3 + 31 + 15 * 6,  # and not after the last
    }.items():
        assert study.passes(Method.parse(text), 30) == pytest.approx(expected), text


def test_the_controls_measure_what_rcad_does_and_as_often() -> None:
    rows = parse_method("rcad(alpha=2.0, lam=0.3, norm=linf, measure=uniform_cross_entropy, every=4, steps=2)")
    terms = [Method.parse(method_text(control)).extra[0] for control in study.controls_of(rows)]
    assert [(term.measure, term.weight, term.every) for term in terms] == [("uniform_cross_entropy", 0.3, 4)] * 2
    assert terms[0].where == RandomStep(2.0, "linf")
