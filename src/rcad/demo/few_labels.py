"""Act 3: real data with few labels. Digits with a small CNN and a perceptron, diabetes with a Gaussian head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from rcad.data.dataset import Dataset
from rcad.data.embedded import load
from rcad.data.splits import holdout, subset
from rcad.demo.settings import LABELS, Digits, Say, Settings, rivals, sign_step
from rcad.loss.growth import as_unit_float
from rcad.loss.method import Method, compose
from rcad.loss.methods import gaussian
from rcad.loss.suggest_alpha import suggest_alpha
from rcad.paper.arms import Candidate
from rcad.paper.stacked_tuning import Fold, Job, Protocol, fit
from rcad.paper.uci import fold
from rcad.runs.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from rcad.runs.recipes import RECIPES
from rcad.train.loop import Trainer
from rcad.train.task import Problem, measure, model_of, prepare

# About how the time divides: the CNN's, the perceptron's, the diabetes data's share.
SHARES = (0.85, 0.1, 0.05)


def run(settings: Settings, say: Say) -> dict[str, Any]:
    """Three contests (see `verdicts.Contest`)."""
    digits = settings.digits
    data = disjoint_sets(load("digits"), digits)
    base = _config(digits)
    configs = [replace(base, data=replace(base.data, split=k), seed=k) for k in range(digits.sets)]
    problems = [prepare(config, data, torch.device("cpu")) for config in configs]
    alphas = [suggest_alpha(*problem.train, sample=None) for problem in problems]
    step = sign_step(digits.fgsm, pixels=True)
    methods = [rivals(alpha, digits.lam, step, digits.smoothing) for alpha in alphas]
    cnn = _contest("digits, small CNN", "accuracy", 0.0, _cnn(configs, problems, methods, _part(say, 0)))
    folds = [_flat(problem) for problem in problems]
    mlp = _contest("digits, perceptron", "accuracy", 0.0, _stacked(folds, methods, digits.protocol, _part(say, 1)))
    table = load("diabetes")
    pairs = [
        holdout(table.train.y, settings.diabetes.test, seed=k, stratified=False)
        for k in range(settings.diabetes.splits)
    ]
    plain = rivals(settings.diabetes.alpha, settings.diabetes.lam, sign_step(settings.diabetes.fgsm, pixels=False))
    heads = {name: compose(gaussian(), method) for name, method in plain.items()}
    folds = [fold(table, train, test) for train, test in pairs]
    found = _stacked(folds, [heads] * len(folds), settings.diabetes.protocol, _part(say, 2))
    ratio = len(pairs[0][1]) / len(pairs[0][0])
    return {
        "digits": {
            "alphas": alphas,
            "train": digits.labels,
            "test": len(problems[0].test[1]),
            "contests": [cnn, mlp],
        },
        "diabetes": {
            "train": len(pairs[0][0]),
            "test": len(pairs[0][1]),
            "contests": [_contest("diabetes, perceptron", "nll", ratio, found)],
        },
    }


def disjoint_sets(data: Dataset, digits: Digits) -> Dataset:
    """The digits with splits whose training sets share no image, and whose test set is what none of them holds.

    Subsets of one seed lie inside each other, so each set is what the next larger subset adds.
    """
    nested = [
        subset(data.train.y, digits.labels * (k + 1), seed=digits.seed, balanced=True) for k in range(digits.sets)
    ]
    sets = [nested[0], *(np.setdiff1d(large, small) for small, large in pairwise(nested))]
    test = np.setdiff1d(np.arange(len(data.train)), nested[-1])
    return replace(data, standard_splits=tuple((train, test) for train in sets))


def _config(digits: Digits) -> RunConfig:
    small = RECIPES["small"]
    return RunConfig(
        data=DataConfig(name="digits", validation=0.0),
        model=ModelConfig(name="small_cnn", width=digits.width, norm="none"),
        method=(("erm", ()),),
        optim=small.optim,
        train=TrainConfig(epochs=digits.epochs, batch_size=digits.batch_size, selection="last"),
    )


def _cnn(
    configs: Sequence[RunConfig], problems: Sequence[Problem], methods: Sequence[dict[str, Method]], say: Say
) -> dict[str, Any]:
    names, results = list(methods[0]), {}
    for k, name in enumerate(names):
        rows = []
        for number, (config, problem, chosen) in enumerate(zip(configs, problems, methods, strict=True)):
            say(f"digits, small CNN: {LABELS[name]}", (k + number / len(configs)) / len(names))
            with torch.random.fork_rng(devices=[]):  # the loop seeds the global stream for dropout
                trainer = Trainer(config, problem, chosen[name], model_of(config, problem))
                finished = trainer.fit() == "done"
            numbers = measure(trainer.model, problem, *problem.test) if finished else {}
            rows.append({metric: numbers.get(metric, float("nan")) for metric in ("accuracy", "nll")})
        results[name] = {metric: [row[metric] for row in rows] for metric in ("accuracy", "nll")}
    return results


def _stacked(folds: Sequence[Fold], methods: Sequence[dict[str, Method]], protocol: Protocol, say: Say) -> Any:
    names, results = list(methods[0]), {}
    kind = "digits, perceptron" if folds[0].classes else "diabetes"
    metrics = ("accuracy", "nll") if folds[0].classes else ("nll", "rmse")
    for k, name in enumerate(names):
        say(f"{kind}: {LABELS[name]}", k / len(names))
        jobs = [Job(Candidate({}, chosen[name]), seed, seed) for seed, chosen in enumerate(methods)]
        found = fit(jobs, folds, protocol).metrics
        results[name] = {metric: found[metric] for metric in metrics}
    return results


def _flat(problem: Problem) -> Fold:
    """Pixels as columns, still in [0, 1]: alpha keeps its unit."""
    (x, y), (held_x, held_y) = problem.train, problem.test
    return Fold(as_unit_float(x).flatten(1), y, as_unit_float(held_x).flatten(1), held_y, problem.classes)


def _contest(title: str, primary: str, ratio: float, methods: dict[str, Any]) -> dict[str, Any]:
    return {"title": title, "primary": primary, "test_ratio": ratio, "methods": methods}


def _part(say: Say, index: int) -> Say:
    before, share = sum(SHARES[:index]), SHARES[index]
    return lambda what, done: say(what, before + share * done)
