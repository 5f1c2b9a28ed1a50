"""T8: two moons among hundreds of noise dimensions. Tuned on a draw of its own, then fresh draws, each tested once.

The plane holds two half circles of radius 1: class 0 is (cos t, sin t), class 1 is (1 - cos t, 1/2 - sin t), with t
uniform in [0, pi). The same seed gives the same examples on every machine and NumPy: only raw 64-bit draws of
`PCG64(SeedSequence)` are used, which NumPy keeps fixed, and normal numbers are made from them by Box and Muller's
formula. Example i depends on the seed, d and i alone, so a smaller set is the beginning of a larger one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rcad.loss.methods import adversarial_training, confidence_penalty, erm, me_ada, rcad, rcad_random
from rcad.paper import stacked_tuning
from rcad.paper.claims import CONTROLS, PlannedClaim, judge_all, plan_claims
from rcad.paper.record import OnProgress, Series, Study
from rcad.paper.stacked_tuning import TUNING_SEED, Arm, Candidate, Fold, Job, Protocol, fit, refit
from rcad.paper.targets import NOTES, TARGETS
from rcad.stacked.model import StackedMLP
from rcad.study.judge import CLAIM_RULE

Noise = Literal["all", "rest"]
Real = npt.NDArray[np.float64]

# One stream for each purpose: test examples are not training examples of a larger n.
_ARC, _NOISE = range(2)
_TRAIN, _TEST = range(2)
# Rows of noise made at a time: bounds the memory of the 64-bit draws.
_BLOCK = 2048


def arc(t: npt.ArrayLike, label: int) -> Real:
    """The points of a class's half circle at the angles t, shape (..., 2)."""
    angle = np.asarray(t, dtype=np.float64)
    x, y = np.cos(angle), np.sin(angle)
    return np.stack([x, y], -1) if label == 0 else np.stack([1 - x, 0.5 - y], -1)


def bayes_accuracy(sigma: float, noise: Noise = "all") -> float:
    """The accuracy, in [0, 1], of the best possible classifier, good to about 1e-5.

    Quadrature in the plane, as the further dimensions tell it nothing: a class's density is the Gaussian averaged along
    its half circle (Gauss-Legendre nodes), the error half the integral of the smaller density (midpoint rule).
    """
    # Without noise in the plane, and below any noise that could cross the gap, the half circles do not touch.
    if noise == "rest" or sigma < 0.02:
        return 1.0
    step = min(sigma / 12, 0.02)
    margin = 7 * sigma
    across, along = (np.arange(low - margin, high + margin, step) for low, high in ((-1.0, 2.0), (-0.5, 1.0)))
    nodes, weights = np.polynomial.legendre.leggauss(max(48, math.ceil(16 / sigma)))
    angle, share = (nodes + 1) * (math.pi / 2), weights / 2

    def density(label: int) -> Real:
        # The Gaussian is a product over the two axes, so the average along the arc is one matrix product.
        points = arc(angle, label)
        left = _gaussian(across[:, None] - points[:, 0], sigma) * share
        return np.asarray(left @ _gaussian(along[:, None] - points[:, 1], sigma).T)

    error = 0.5 * float(np.minimum(density(0), density(1)).sum()) * step**2
    return 1.0 - error


@dataclass(frozen=True)
class Cell:
    """A distribution: d dimensions, Gaussian noise on all of them or on the d - 2 others; which methods it compares.

    sigma: deviation of the noise, in units of the moons' radius.
    """

    d: int
    sigma: float
    noise: Noise = "all"
    methods: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"d={self.d}, sigma={self.sigma:g}, noise on {'all' if self.noise == 'all' else 'the d-2 others'}"


def examples(cell: Cell, n: int, seed: int, *, test: bool = False) -> tuple[Tensor, Tensor]:
    """n examples of a distribution: x float32 (n, d), labels int64 (n,); `test` is another stream of the same seed.

    The classes take turns, so any number of first examples is balanced to within one.
    """
    part = _TEST if test else _TRAIN
    labels = np.arange(n, dtype=np.int64) % 2
    angle = math.pi * _uniform(_stream(seed, part, _ARC), n)
    x = np.zeros((n, cell.d), np.float32)
    x[:, :2] = np.where(labels[:, None] == 0, arc(angle, 0), arc(angle, 1))
    bits = _stream(seed, part, _NOISE)
    for start in range(0, n, _BLOCK):
        rows = x[start : start + _BLOCK]
        added = cell.sigma * _normal(bits, len(rows), cell.d)
        if cell.noise == "rest":
            added[:, :2] = 0.0
        rows += added.astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(labels)


def _stream(seed: int, *purpose: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=purpose))


def _uniform(bits: np.random.PCG64, count: int) -> Real:
    """Numbers in [0, 1): the upper 53 bits of each draw."""
    raw = np.asarray(bits.random_raw(count), dtype=np.uint64)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _normal(bits: np.random.PCG64, rows: int, columns: int) -> Real:
    """Standard normal numbers (rows, columns); a row takes the same number of draws whatever follows it."""
    pairs = (columns + 1) // 2
    u = _uniform(bits, rows * pairs * 2).reshape(rows, pairs, 2)
    radius = np.sqrt(-2 * np.log1p(-u[..., 0]))
    turn = 2 * math.pi * u[..., 1]
    return np.stack([radius * np.cos(turn), radius * np.sin(turn)], -1).reshape(rows, -1)[:, :columns]


def _gaussian(z: Real, sigma: float) -> Real:
    return np.asarray(np.exp(-0.5 * (z / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)))


PROTOCOL = Protocol("sgd", 0.05, 128, 100, (128,))
PRINTED_SIZE = (20_000, 3, 300)
"""The paper's own number of examples and of epochs, with so many draws of ours; the last of the study over n."""
LABELS, PRINTED = TARGETS["T8"].rows, TARGETS["T8"].printed
CONTROLLED = ("erm", "rcad", "rcad_random")
FGSM = partial(adversarial_training, norm="linf", bounds=None)


@dataclass(frozen=True)
class Settings:
    """All that the numbers depend on besides the versions.

    Args:
        cells: the first is the one whose weights and sizes are studied.
        seeds: fresh draws, numbered from 0; the tuning draw has a number of its own.
        sweep: (n, draws, epochs) of the study over n.
    """

    cells: tuple[Cell, ...] = (
        Cell(625, 0.10),
        Cell(625, 0.75),
        Cell(1000, 0.10),
        Cell(625, 0.10, "rest", CONTROLLED),
        Cell(625, 0.75, "rest", CONTROLLED),
        Cell(1000, 0.10, "rest", CONTROLLED),
    )
    n: int = 1000
    n_validation: int = 2000
    n_test: int = 5000
    seeds: int = 5
    budget: int | None = None
    protocol: Protocol = PROTOCOL
    sweep: tuple[tuple[int, int, int], ...] = (
        (100, 5, 100),
        (300, 5, 100),
        (1000, 5, 100),
        (3000, 3, 100),
        (10_000, 2, 30),
        PRINTED_SIZE,
    )
    ratio_epochs: tuple[int, ...] = (1, 2, 5, 10, 20, 40, 60, 80, 100)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "arms": {arm.name: arm.to_dict() for arm in self.arms()}}

    def arms(self) -> list[Arm]:
        return [arm.cut(self.budget) for arm in build_arms(self.protocol.epochs)]


SCALES = {
    "full": Settings(),
    "small": Settings(cells=(Cell(625, 0.10),), n_test=2000, seeds=3, budget=4, sweep=((300, 3, 100), (1000, 3, 100))),
    "smoke": Settings(
        cells=(Cell(10, 0.1), Cell(10, 0.1, "rest", CONTROLLED)),
        n=40,
        n_validation=50,
        n_test=50,
        seeds=3,
        budget=2,
        protocol=Protocol("sgd", 0.05, 32, 10, (8,)),
        sweep=((20, 2, 5), (40, 2, 5)),
        ratio_epochs=(1, 5, 10),
    ),
}


def build_arms(epochs: int) -> list[Arm]:
    """Every method with eight configurations."""
    both = {"alpha": (0.25, 0.5, 1.0, 4.0), "lam": (0.3, 1.0)}
    stops = [max(1, round(epochs * share)) for share in (1.0, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05)]
    grown = {"step_size": (0.005, 0.05, 0.5, 5.0), "eta": (0.1, 1.0)}
    return [
        Arm.of("erm", erm, epochs=stops),
        Arm.of("fgsm_l2", partial(FGSM, norm="l2"), alpha=(0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0)),
        Arm.of("fgsm_linf", FGSM, alpha=(0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)),
        Arm.of("me_ada", partial(me_ada, levels=None), **grown),
        Arm.of("rcad", rcad, **both),
        Arm.of("rcad_random", rcad_random, **both),
        Arm.of("confidence_penalty", confidence_penalty, lam=(0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)),
    ]


def run(settings: Settings, data_dir: Path | None, on_progress: OnProgress) -> Study:
    cells = {cell.name: tune_and_refit(cell, settings, on_progress) for cell in settings.cells}
    first = settings.cells[0]
    arms, tuning = {arm.name: arm for arm in settings.arms()}, cells[first.name]["tuning"]
    chosen = {name: arms[name].candidates[tuning[name]["chosen"]] for name in CONTROLLED[1:]}
    chosen = {"erm": arms["erm"].candidates[0], **chosen}  # the last epoch
    return describe(
        settings, cells, sweep(first, chosen, settings, on_progress), ratios(first, chosen, settings, on_progress)
    )


def describe(settings: Settings, cells: Mapping[str, Any], by_size: Sequence[Any], weights: Mapping[str, Any]) -> Study:
    """The record of what was computed."""
    above = [
        f"{column}: {row} {number.mean:g}, while no classifier exceeds {cell['bayes']:.1f}"
        for column, cell in cells.items()
        for row, number in PRINTED.get(column, {}).items()
        if number.mean > cell["bayes"]
    ]
    impossible = [NOTES["impossible_moons"].format(above="; ".join(above))] if above else []
    _, draws, _ = PRINTED_SIZE
    seconds = [row["seconds"] for row in by_size if (row["n"], row["draws"], row["epochs"]) == PRINTED_SIZE]
    size = NOTES["as_many_moons" if seconds else "fewer_moons"].format(draws=draws, minutes=sum(seconds) / 60)
    return stacked_tuning.describe(
        "T8",
        settings,
        {name: cell["methods"] for name, cell in cells.items()},
        ("accuracy", "nll"),
        {"own_size": size, "budget": len(settings.arms()[0].candidates)},
        controls=CONTROLS,
        rule=f"{CLAIM_RULE}. Draws are independent: the ordinary paired t-test",
        notes=[*TARGETS["T8"].notes, *impossible],
        series=[
            Series(LABELS[method], [row["n"] for row in by_size], [row["accuracy"][method] for row in by_size])
            for method in by_size[0]["accuracy"]
        ],
        along="training examples",
        ceiling={column: cell["bayes"] for column, cell in cells.items()},
        details={
            "cells": {column: {key: cell[key] for key in ("d", "sigma", "noise")} for column, cell in cells.items()},
            "tuning": {column: cell["tuning"] for column, cell in cells.items()},
            "sweep": [{key: value for key, value in row.items() if key != "accuracy"} for row in by_size],
            "weight_ratio": weights,
        },
    )


def judge(study: Study) -> Study:
    """Who is more accurate, as printed; and that RCAD beats a random direction, which is how the paper explains it."""
    pairs = [("RCAD", "ERM"), ("RCAD", "ME-ADA"), ("RCAD", "FGSM linf"), ("FGSM linf", "ERM")]
    planned: list[PlannedClaim] = []
    for column in study.columns:
        run = [pair for pair in pairs if all((row, column) in study.places for row in pair)]
        planned += plan_claims([column], PRINTED, run)
    cells = dict(study.cells())
    for where, accuracies in at_printed_size(study).items():
        planned += plan_claims([where], {where: PRINTED[study.columns[0]]}, [("RCAD", "ERM")])
        cells |= {(label, where): dict(enumerate(values)) for label, values in accuracies.items()}
    return replace(study, claims=judge_all(planned, cells, trial=study.scale == "smoke", count_all=True))


def at_printed_size(study: Study) -> dict[str, dict[str, list[float | None]]]:
    """The first distribution with as many examples and epochs as the paper has: accuracies by label, if it was run."""
    sizes = [(row["n"], row["draws"], row["epochs"]) for row in study.details["sweep"]]
    if PRINTED_SIZE not in sizes:
        return {}
    at, (n, _, epochs) = sizes.index(PRINTED_SIZE), PRINTED_SIZE
    where = f"{study.columns[0]}, n={n:,}, {epochs} epochs"
    return {where: {series.name: list(series.y[at]) for series in study.series}}


def tune_and_refit(cell: Cell, settings: Settings, on_progress: OnProgress) -> dict[str, Any]:
    """One distribution: every method tuned on one draw, refitted on fresh ones."""
    tuning = draw(cell, settings.n, settings.n_validation, TUNING_SEED)
    fresh = [draw(cell, settings.n, settings.n_test, seed) for seed in range(settings.seeds)]
    arms = [arm for arm in settings.arms() if not cell.methods or arm.name in cell.methods]
    methods, tried = stacked_tuning.tune_and_refit(
        cell.name, arms, [tuning], fresh, settings.protocol, "accuracy", on_progress
    )
    if not cell.methods:
        methods["fgsm_linf at 0.03"] = refit(Candidate({}, FGSM(alpha=0.03)), fresh, settings.protocol)
    choices = {name: {"chosen": choice, "validation": scores} for name, ((scores,), (choice,)) in tried.items()}
    about = {"d": cell.d, "sigma": cell.sigma, "noise": cell.noise}
    return {**about, "bayes": 100 * bayes_accuracy(cell.sigma, cell.noise), "methods": methods, "tuning": choices}


def sweep(
    cell: Cell, chosen: Mapping[str, Candidate], settings: Settings, on_progress: OnProgress
) -> list[dict[str, Any]]:
    """Accuracy by the number of examples, with the configurations chosen at `settings.n`."""
    rows = []
    for n, draws, epochs in settings.sweep:
        on_progress(f"n = {n}", 0, 1)
        start = time.process_time()
        folds = [draw(cell, n, settings.n_test, seed) for seed in range(draws)]
        protocol = replace(settings.protocol, epochs=epochs)
        longest = {name: replace(candidate, epochs=None) for name, candidate in chosen.items()}
        accuracy = {name: refit(candidate, folds, protocol)["accuracy"] for name, candidate in longest.items()}
        seconds = round(time.process_time() - start, 1)
        rows.append({"n": n, "draws": draws, "epochs": epochs, "accuracy": accuracy, "seconds": seconds})
    return rows


def ratios(cell: Cell, chosen: Mapping[str, Candidate], settings: Settings, on_progress: OnProgress) -> dict[str, Any]:
    """How much larger the first layer's weights on a true dimension are than on a noise dimension, by epoch."""
    folds = draws_held(cell, settings.n, settings.seeds, draw(cell, 2, settings.n_validation, TUNING_SEED))
    result: dict[str, Any] = {"epochs": list(settings.ratio_epochs)}
    for name, candidate in chosen.items():
        on_progress(f"weights of {name}", 0, 1)
        looks = [replace(candidate, epochs=epoch) for epoch in settings.ratio_epochs]
        jobs = [Job(look, k, k) for k in range(len(folds)) for look in looks]
        values = [weight_ratio(model) for model in fit(jobs, folds, settings.protocol).models]
        result[name] = np.reshape(values, (len(folds), -1)).tolist()
    return result


def weight_ratio(model: StackedMLP) -> float:
    """Root mean square of the first layer's weights on the two true dimensions, over that on the others."""
    weight: Tensor = model.weights[0][0].double()
    return float(weight[:, :2].square().mean().sqrt() / weight[:, 2:].square().mean().sqrt())


def draw(cell: Cell, n: int, n_held: int, seed: int) -> Fold:
    """A training set and held-out examples of its own."""
    return Fold(*examples(cell, n, seed), *examples(cell, n_held, seed, test=True), classes=2)


def draws_held(cell: Cell, n: int, draws: int, tuning: Fold) -> list[Fold]:
    """Fresh training sets with the held-out rows of the tuning draw: no test row is read."""
    fresh = (draw(cell, n, 2, seed) for seed in range(draws))
    return [fold._replace(held_x=tuning.held_x, held_y=tuning.held_y) for fold in fresh]
