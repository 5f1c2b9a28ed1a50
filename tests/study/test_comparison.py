"""Who is compared, on which splits, and that the stacked twin gives the numbers of single runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rcad.data.dataset import Dataset, Split
from rcad.data.splits import resolve
from rcad.errors import InputError
from rcad.loss.method_rows import label, method_rows, parse_method
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.store import Store
from rcad.study.comparison import (
    Contestant,
    Metrics,
    check_suitable,
    compete,
    controls_of,
    lineup,
    overlap,
    split_of,
    typical,
)
from rcad.study.stacked_backend import StackedBackend, can_stack
from rcad.train.place import Place
from rcad.train.run import method_defaults, run
from rcad.train.task import Problem, prepare, read

DEFAULTS = method_defaults()
SEEDS = (0, 3)


def table(classes: int, rows: int = 70) -> str:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(rows, 2))
    score = x[:, 0] + np.abs(x[:, 1]) + 0.5 * draw.normal(size=rows)
    y = np.digitize(score, [0.3, 1.2]) if classes else np.round(10 * score, 3)
    names = ["low", "mid", "high"]
    lines = [f"{a:.3f},{b:.3f},{names[v] if classes else v}" for (a, b), v in zip(x, y.tolist(), strict=True)]
    return "\n".join(["a,b,y", *lines]) + "\n"


@pytest.fixture(params=[3, 0], ids=["labels", "reals"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> RunConfig:
    path = tmp_path / "data.csv"
    path.write_text(table(request.param))
    return configure({"name": str(path), "target": "y"}, parse_method("erm"), epochs=4)


def splits_of(config: RunConfig) -> dict[int, tuple[RunConfig, Problem]]:
    dataset = read(config.data, None, None)
    configs = {seed: split_of(config, seed, dataset) for seed in SEEDS}
    return {seed: (one, prepare(one, dataset, torch.device("cpu"))) for seed, one in configs.items()}


def contestant(text: str) -> Contestant:
    rows = parse_method(text)
    return Contestant(label(rows), rows, "asked")


class Recorded:
    """A backend that remembers what it was asked for, and gives made-up numbers."""

    def __init__(self, scores: list[float | None]) -> None:
        self.scores, self.configs, self.tested = scores, [], []  # type: ignore[var-annotated]

    def fit(self, configs: Any, progress: Any) -> list[Metrics | None]:
        self.configs = list(configs)
        return [None if s is None else {"accuracy": s, "nll": 100 - s} for s in self.scores]

    def test(self, chosen: Any) -> list[Metrics | None]:
        self.tested = list(chosen)
        return [None if self.scores[k] is None else {"accuracy": 50.0 + k, "nll": 1.0} for k in chosen]

    def seconds(self) -> float:
        return 12.5


def test_each_split_chooses_by_its_held_out_rows_and_tests_one(config: RunConfig) -> None:
    splits = splits_of(config)
    backend = Recorded([70.0, 80.0, None, 60.0, 60.0, 50.0])
    cell = compete(contestant("rcad"), splits, 3, backend, DEFAULTS, lambda a, b: None)
    assert backend.tested == [1, 3]  # the best of each split, the first of equals
    assert [one.seed for one in backend.configs] == [0, 0, 0, 3, 3, 3]
    assert cell["seeds"]["0"]["test"] == {"accuracy": 51.0, "nll": 1.0}
    assert len(cell["seeds"]["3"]["trials"]) == 3
    assert (cell["runs"], cell["seconds"]) == (6, 12.5)


def test_every_method_has_the_same_budget(config: RunConfig) -> None:
    splits = splits_of(config)
    for name in ("erm", "confidence_penalty", "rcad", "rcad_random", "me_ada", "adversarial_training"):
        for budget in (1, 4):
            backend = Recorded([1.0] * 2 * budget)
            compete(contestant(name), splits, budget, backend, DEFAULTS, lambda a, b: None)
            assert len(backend.configs) == 2 * budget, name
            assert len(set(backend.configs)) == 2 * budget, name


def test_a_run_that_diverged_everywhere_has_no_result(config: RunConfig) -> None:
    cell = compete(contestant("rcad"), splits_of(config), 1, Recorded([None, 2.0]), DEFAULTS, lambda a, b: None)
    assert cell["seeds"]["0"]["test"] is None
    assert cell["seeds"]["3"]["test"] is not None


def test_what_was_done_is_not_done_again(config: RunConfig) -> None:
    splits = splits_of(config)
    first = compete(contestant("rcad"), splits, 1, Recorded([1.0, 2.0]), DEFAULTS, lambda a, b: None)
    idle = Recorded([])
    again = compete(contestant("rcad"), splits, 1, idle, DEFAULTS, lambda a, b: None, known=first)
    assert (again, idle.configs) == (first, [])
    for other in (2, 1):
        changed = {s: (replace(c, train=replace(c.train, epochs=9)), p) for s, (c, p) in splits.items()}
        backend = Recorded([1.0] * 2 * other)
        compete(
            contestant("rcad"), splits if other == 2 else changed, other, backend, DEFAULTS, lambda a, b: None, first
        )
        assert backend.configs


@pytest.mark.parametrize("name", ["erm", "rcad", "rcad_random", "confidence_penalty", "adversarial_training"])
def test_stacked_runs_equal_single_runs(config: RunConfig, name: str, tmp_path: Path) -> None:
    """Held-out numbers of every trial and test numbers of the chosen ones, against the engine."""
    splits = splits_of(config)
    backend = StackedBackend({seed: problem for seed, (_, problem) in splits.items()})
    asked: list[RunConfig] = []

    class Spy:
        def fit(self, configs: Any, progress: Any) -> Any:
            asked.extend(configs)
            return backend.fit(configs, progress)

        def test(self, chosen: Any) -> Any:
            self.chosen = list(chosen)
            return backend.test(chosen)

        def seconds(self) -> float:
            return backend.seconds()

    spy = Spy()
    cell = compete(contestant(name), splits, 2, spy, DEFAULTS, lambda a, b: None)
    assert all(can_stack(one, splits[one.seed][1]) for one in asked)
    store = Store.open(tmp_path / "runs")
    records = [run(one, Place(store)) for one in asked]
    trials = [trial for one in cell["seeds"].values() for trial in one["trials"]]
    for record, trial in zip(records, trials, strict=True):
        own = {k.removeprefix("val_"): v for k, v in record.metrics.items() if k.startswith("val_")}
        assert trial["validation"] == pytest.approx(own, rel=1e-3, abs=1e-4)
    for k, one in zip(spy.chosen, cell["seeds"].values(), strict=True):
        own = {k.removeprefix("test_"): v for k, v in records[k].metrics.items() if k.startswith("test_")}
        assert one["test"] == pytest.approx({name: own[name] for name in one["test"]}, rel=1e-3, abs=1e-4)


def test_stacked_training_never_holds_the_test_rows(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    from rcad.study import stacked_backend as stacked

    splits = splits_of(config)
    given: list[Problem] = []
    real = stacked.train_configs

    def spying(configs: Any, problems: Any, **options: Any) -> Any:
        given.extend(problems)
        return real(configs, problems, **options)

    monkeypatch.setattr(stacked, "train_configs", spying)
    backend = StackedBackend({seed: problem for seed, (_, problem) in splits.items()})
    backend.fit([one for one, _ in splits.values()], lambda a, b: None)
    assert given
    assert all(len(problem.test[1]) == 0 for problem in given)


def test_parts_are_put_together_in_order(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    from rcad.study import stacked_backend as stacked

    splits = splits_of(config)
    problems = {seed: problem for seed, (_, problem) in splits.items()}
    configs = [replace(one, optim=replace(one.optim, lr=lr)) for lr in (0.001, 0.03) for one, _ in splits.values()]
    whole = StackedBackend(problems).fit(configs, lambda a, b: None)
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(stacked, "MOST_NUMBERS", 1)
    parts = StackedBackend(problems).fit(configs, lambda done, total: seen.append((done, total)))
    for a, b in zip(whole, parts, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert seen[-1] == (16, 16)


def test_images_are_not_stacked() -> None:
    config = configure("digits", parse_method("erm"))
    dataset = read(config.data, None, None)
    assert not can_stack(config, prepare(config, dataset, torch.device("cpu")))


def test_rcad_brings_its_controls() -> None:
    asked = [parse_method("rcad"), parse_method("label_smoothing")]
    assert [(label(rows), role) for rows, role in lineup(asked, controls=True)] == [
        ("erm", "base"),
        ("rcad", "asked"),
        ("label_smoothing", "asked"),
        ("rcad_random", "control"),
        ("confidence_penalty", "control"),
    ]
    assert [label(rows) for rows, _ in lineup(asked, controls=False)] == ["erm", "rcad", "label_smoothing"]
    assert [role for _, role in lineup([parse_method("erm"), parse_method("mixup")], controls=True)] == [
        "base",
        "asked",
    ]
    # A control that was asked for is no control.
    twice = lineup([parse_method("rcad_random"), parse_method("rcad")], controls=True)
    assert dict(twice)[parse_method("rcad_random")] == "asked"


def test_controls_take_what_they_share() -> None:
    rows = method_rows([("mixup", ()), ("rcad", {"alpha": 2.0, "lam": 0.3, "steps": 4})])
    assert [label(one) for one in controls_of(rows)] == [
        "mixup + rcad_random(alpha=2.0, lam=0.3)",
        "mixup + confidence_penalty(lam=0.3)",
    ]


def test_the_overlap_of_splits() -> None:
    x = np.zeros((100, 2), np.float32)
    whole = Dataset("d", "classification", Split(x, np.arange(100) % 2), classes=("a", "b"))
    assert overlap(whole, resolve(whole)) == pytest.approx(20 / 80)
    assert overlap(whole, resolve(whole, n=30)) == pytest.approx(20 / 80)
    own = replace(whole, test=Split(x[:10], np.arange(10) % 2))
    assert overlap(own, resolve(own)) == 0.0
    standard = replace(whole, standard_splits=((np.arange(90), np.arange(90, 100)),))
    assert overlap(standard, resolve(standard)) == pytest.approx(10 / 90)


def test_seeds_go_through_the_standard_splits() -> None:
    x = np.zeros((10, 2), np.float32)
    halves = (np.arange(5), np.arange(5, 10))
    data = Dataset("d", "classification", Split(x, np.arange(10) % 2), standard_splits=(halves, halves[::-1]))
    config = configure("d", parse_method("erm"))
    assert [split_of(config, seed, data).data.split for seed in (0, 1, 2)] == [0, 1, 0]
    fixed = replace(config, data=replace(config.data, split=1))
    assert split_of(fixed, 0, data).data.split == 1
    assert split_of(config, 5, replace(data, standard_splits=())).data.split is None


def test_methods_for_labels_are_refused_on_real_targets(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(table(0))
    config = configure({"name": str(path), "target": "y"}, parse_method("erm"))
    problem = splits_of(config)[0][1]
    check_suitable([contestant("erm"), contestant("rcad"), contestant("me_ada")], config, problem)
    with pytest.raises(
        InputError, match=r"^expected methods for real targets \(erm,.*rcad.*'label_smoothing'"
    ) as found:
        check_suitable([contestant("rcad"), contestant("label_smoothing")], config, problem)
    offered = str(found.value).partition("(")[2].partition(")")[0].split(", ")
    assert not {"label_smoothing", "mixup", "ls_on_adv", "gaussian"} & set(offered)


def test_typical() -> None:
    assert typical([0.1, 0.1]) == "0.1"
    assert typical([0.1, 0.3, 0.2]) == "0.2 (0.1 to 0.3)"
    assert typical(["l2", "linf", "l2"]) == "l2, linf"
