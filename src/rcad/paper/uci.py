"""T7: test likelihood on UCI regression. Tuned on an inner hold-out, refitted on all training rows, tested once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rcad.data.dataset import Dataset, Split, holdout
from rcad.data.registry import load
from rcad.data.scaling import Standardizer, TargetScaler
from rcad.data.small_sets import UCI
from rcad.loss import methods
from rcad.loss.methods import Method, compose, gaussian, rcad
from rcad.paper import stacked_tuning
from rcad.paper.claims import CONTROLS, judge_all, plan_claims
from rcad.paper.record import OnProgress, Study
from rcad.paper.stacked_tuning import TUNING_SEED, Arm, Candidate, Fold, Job, Protocol, describe, fit
from rcad.paper.targets import TARGETS
from rcad.study.judge import CLAIM_RULE

PROTOCOL = Protocol("adamw", 3e-3, 32, 40, (50,))


@dataclass(frozen=True)
class Settings:
    """All that the numbers depend on besides the data and the versions.

    Args:
        datasets: names of `data.small_sets.UCI`, or "synthetic".
        validation: share of the training rows that is held out to tune.
        cap: of the log-variance inside the entropy, in units of the standardised target; None for no cap.
        budget: configurations used of each method's list; None for all.
        lambdas, lambda_alpha: of the uncapped study.
    """

    datasets: tuple[str, ...] = tuple(UCI)
    splits: int = 20
    validation: float = 0.2
    cap: float | None = 0.0
    budget: int | None = None
    protocol: Protocol = PROTOCOL
    lambdas: tuple[float, ...] = (0.0, 0.3, 0.5, 0.7, 0.8, 0.89, 0.95, 1.0, 1.2)
    lambda_alpha: float = 0.3

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "arms": {arm.name: arm.to_dict() for arm in self.arms()}}

    def arms(self) -> list[Arm]:
        return [arm.cut(self.budget) for arm in build_arms(self.cap, self.protocol.epochs)]


SCALES = {
    "full": Settings(),
    "small": Settings(splits=5, budget=4),
    "smoke": Settings(
        ("synthetic",), 3, budget=2, protocol=Protocol("adamw", 3e-3, 16, 4, (8,)), lambdas=(0.0, 0.5, 1.2)
    ),
}


def build_arms(cap: float | None, epochs: int) -> list[Arm]:
    """Every method with eight configurations, written down before any was run."""

    def gaussian_arm(name: str, recipe: Callable[..., Method], **grid: Sequence[float]) -> Arm:
        return Arm.of(name, lambda **own: compose(gaussian(cap=cap), recipe(**own)), **grid)

    both = {"alpha": (0.1, 0.3, 1.0, 3.0), "lam": (0.1, 0.5)}
    # A Gaussian's loss has no upper limit in x: from steps of 0.01 on every ascent ran away on the validation rows.
    steps = (0.0001, 0.0003, 0.001, 0.003)
    fgsm = partial(methods.adversarial_training, norm="l2", bounds=None)
    stops = sorted({max(1, epochs * k // 8) for k in range(1, 9)}, reverse=True)
    return [
        gaussian_arm("erm", methods.erm, epochs=stops),
        gaussian_arm("erm_weight_decay", methods.erm, weight_decay=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)),
        gaussian_arm("ada", partial(methods.ada, levels=None), step_size=steps, gamma=(1.0, 10.0)),
        gaussian_arm("me_ada", partial(methods.me_ada, levels=None), step_size=steps, eta=(0.1, 1.0)),
        gaussian_arm("adversarial_training", fgsm, alpha=(0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)),
        gaussian_arm("rcad", methods.rcad, **both),
        gaussian_arm("rcad_random", methods.rcad_random, **both),
        gaussian_arm("confidence_penalty", methods.confidence_penalty, lam=(0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)),
    ]


def run(settings: Settings, data_dir: Path | None, on_progress: OnProgress) -> Study:
    tables = {name: tune_and_refit(read(name, data_dir), settings, on_progress) for name in settings.datasets}
    first = settings.datasets[0]
    return describe(
        "T7",
        settings,
        {name: table["methods"] for name, table in tables.items()},
        ("nll", "rmse"),
        {"budget": len(settings.arms()[0].candidates)},
        metric="nll",
        higher_is_better=False,
        unit="nats",
        controls=CONTROLS,
        rule=f"{CLAIM_RULE}. Paired over splits, variance factor 1/k + n_test/n_train",
        overlap={name: table["rows"]["test"] / table["rows"]["train"] for name, table in tables.items()},
        details={
            "rows": {name: table["rows"] for name, table in tables.items()},
            "tuning": {name: table["tuning"] for name, table in tables.items()},
            "uncapped": {"dataset": first, **uncapped(read(first, data_dir), settings, on_progress)},
        },
    )


def judge(study: Study) -> Study:
    """Who is lower, as printed; and that RCAD beats a random direction, which is how the paper explains it."""
    pairs, printed = [("RCAD", "ERM"), ("RCAD", "ME-ADA")], TARGETS["T7"].printed
    planned = plan_claims(study.columns, printed, pairs, better="has lower NLL than", lower=True)
    how: dict[str, Any] = {"higher_is_better": False, "trial": study.scale == "smoke", "count_all": True}
    return replace(study, claims=judge_all(planned, study.cells(), overlap=study.overlap, **how))


def read(name: str, data_dir: Path | None) -> Dataset:
    return synthetic() if name == "synthetic" else load(name, data_dir=data_dir)


def synthetic(rows: int = 60, splits: int = 20) -> Dataset:
    """A small made-up regression with splits, for trying the study without data."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 4, generator=generator).numpy()
    noise = torch.randn(rows, generator=generator).numpy()
    y = (x[:, 0] - 0.5 * x[:, 1] ** 2 + 0.3 * noise).astype(np.float32)
    pairs = tuple(holdout(y, 0.1, seed=seed, stratified=False) for seed in range(splits))
    return Dataset("synthetic", "regression", Split(x, y), standard_splits=pairs, note="made up")


def tune_and_refit(data: Dataset, settings: Settings, on_progress: OnProgress) -> dict[str, Any]:
    """One data set: every method tuned and refitted on every split."""
    inner = [_inner(data, settings, k) for k in range(settings.splits)]
    pairs = data.standard_splits[: settings.splits]
    outer = [fold(data, np.sort(train), np.sort(test)) for train, test in pairs]
    results, tried = stacked_tuning.tune_and_refit(
        data.name, settings.arms(), inner, outer, settings.protocol, "nll", on_progress
    )
    tuning = {
        name: {
            "chosen": chosen,
            "validation_mean": np.mean(scores, 0).tolist(),
            "tuning_diverged": int((~np.isfinite(scores)).sum()),
        }
        for name, (scores, chosen) in tried.items()
    }
    sizes = {"train": len(pairs[0][0]), "test": len(pairs[0][1]), "validation": len(inner[0].held_y)}
    return {"rows": {**sizes, "features": int(data.train.x.shape[1])}, "methods": results, "tuning": tuning}


def _inner(data: Dataset, settings: Settings, split: int) -> Fold:
    """Training rows of a standard split, some of them held out to tune by."""
    rows = np.sort(data.standard_splits[split][0])
    fitted, held = holdout(data.train.y[rows], settings.validation, seed=split, stratified=False)
    return fold(data, rows[fitted], rows[held])


def uncapped(data: Dataset, settings: Settings, on_progress: OnProgress) -> dict[str, Any]:
    """RCAD with and without the cap over lambda, on inner validation rows of the first splits: no test row is read."""
    folds = [_inner(data, settings, k) for k in range(min(5, settings.splits))]
    result: dict[str, Any] = {"lambdas": list(settings.lambdas), "alpha": settings.lambda_alpha}
    for name, cap in (("capped", 0.0), ("uncapped", None)):
        candidates = [
            Candidate({"lam": w}, compose(gaussian(cap=cap), rcad(settings.lambda_alpha, w)), may_diverge=True)
            for w in settings.lambdas
        ]
        on_progress(f"{data.name}: entropy {name}", 0, 1)
        jobs = [Job(candidate, k, TUNING_SEED + k) for candidate in candidates for k in range(len(folds))]
        values = np.reshape(fit(jobs, folds, settings.protocol).metrics["nll"], (len(candidates), -1))
        result[name] = {"validation_nll": values.tolist(), "diverged": (~np.isfinite(values)).sum(1).tolist()}
    return result


def fold(data: Dataset, train: Any, held: Any) -> Fold:
    """These rows, inputs and targets scaled by the statistics of those to train on."""
    inputs = Standardizer.fit(data.train.x[train], keep_binary=False)
    targets = TargetScaler.fit(data.train.y[train])
    x, held_x = (torch.from_numpy(inputs.transform(data.train.x[rows])) for rows in (train, held))
    y, held_y = (torch.from_numpy(targets.transform(data.train.y[rows])) for rows in (train, held))
    return Fold(x, y, held_x, held_y, 0, targets.scale)
