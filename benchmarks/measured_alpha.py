"""How good is the measured alpha? Half the median distance to another class, against the best alpha by grid.

    python benchmarks/measured_alpha.py --uci results/uci/uci.json --images results --data-dir DATA

Writes alpha.json (every number) and alpha.md (the page). Linear theory: the window is known. Moons in d dimensions and
digits: the best of a grid on held-out examples, which are no test set. There two rules that ask a model trained by ERM
are tried too. UCI: regression has no classes; another rule is tried there against the alphas that the table T7 chose.
CIFAR-100: against the runs of F4 and of T4's search.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from prediction_changes import FARTHEST, change_distances, drawn, image_flips
from torch import Tensor

from rcad.data.dataset import subset
from rcad.data.registry import load
from rcad.data.small_sets import load_embedded
from rcad.errors import InputError, MissingExtraError
from rcad.loss.growth import as_unit_float
from rcad.loss.methods import erm, rcad
from rcad.loss.suggest_alpha import suggest_alpha
from rcad.paper import record as records
from rcad.paper.moons import Cell, draw
from rcad.paper.record import OnProgress, Study
from rcad.paper.run import compute, write_study
from rcad.paper.stacked_tuning import Candidate, Fold, Job, Protocol, fit, refit
from rcad.paper.theory.problem import Problem, final, rcad_step
from rcad.paper.theory.simulation import Settings as Theory
from rcad.paper.theory.simulation import run_finals, start, window
from rcad.paper.uci import fold, read
from rcad.runs.pack import packs_in
from rcad.runs.store import Store

ABOUT = (
    "How good is the measured alpha? `rcad suggest-alpha` (and `alpha=auto`) takes half the median distance from a "
    "training example to its nearest one of another class. Here it is held against the best alpha of a grid, chosen on "
    "held-out examples; no test set is read."
)
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
MOONS = Protocol("sgd", 0.05, 128, 100, (128,))
DIGITS = Protocol("adamw", 3e-3, 25, 60, (128,))
TUNING_SEED = 2000
"""Other draws than those of the moons' table."""


@dataclass(frozen=True)
class Settings:
    """All that the numbers depend on besides data and versions.

    Args:
        betas, linear_draws: of the linear problem.
        dimensions, moons_draws, n: of the moons, whose noise is 0.1 on every dimension.
        labels, sets: training sets of the digits, which share no image; `held` others judge.
        lam: RCAD's weight wherever alpha varies.
        factors: the grid, in multiples of the suggestion; moons have a grid of their own, the same for every d.
        datasets, splits: of T7's record.
    """

    betas: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    linear_draws: int = 200
    dimensions: tuple[int, ...] = (2, 10, 50, 200, 625)
    moons_alphas: tuple[float, ...] = (0.1, 0.175, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
    moons_draws: int = 3
    n: int = 1000
    moons: Protocol = MOONS
    labels: int = 100
    sets: int = 5
    held: int = 500
    digits: Protocol = DIGITS
    lam: float = 0.5
    factors: tuple[float, ...] = FACTORS
    splits: int = 20


SCALES = {
    "full": Settings(),
    "smoke": Settings(
        betas=(0.5,),
        linear_draws=10,
        dimensions=(2, 5),
        moons_alphas=(0.25, 1.0),
        moons_draws=2,
        n=40,
        moons=Protocol("sgd", 0.05, 32, 3, (8,)),
        labels=20,
        sets=2,
        held=50,
        digits=Protocol("adamw", 3e-3, 10, 3, (8,)),
        factors=(0.5, 1.0),
        splits=2,
    ),
}


def linear(settings: Settings, on_progress: OnProgress) -> list[dict[str, Any]]:
    """By beta: the window, the suggestions of many draws, and the exact accuracy with each draw's own suggestion."""
    rows = []
    for beta in settings.betas:
        on_progress(f"linear theory, beta {beta:g}", 0, 1)
        base = Theory(Problem(beta=beta), draws=settings.linear_draws)
        found = window(beta, base)
        sample, _ = start(base)
        labels = (sample.y > 0).long()
        alphas = [suggest_alpha(x, y, sample=None) for x, y in zip(sample.x.float(), labels, strict=True)]
        row: dict[str, Any] = {"beta": beta, "erm": 100 * found["erm"], "best": 100 * found["best"]}
        row |= {"best_alpha": found["best_alpha"], "helpful": found["helpful"]}
        row["suggested"] = _linear_rule(base, torch.tensor(alphas, dtype=torch.float64))
        rows.append(row)
    return rows


def _linear_rule(base: Theory, alphas: Tensor) -> dict[str, float]:
    """The median alpha, and the exact accuracy of RCAD from ERM's end on, each draw with its own."""
    step = rcad_step(start(base)[0], base.problem.gamma, alphas, lr=base.rcad_lr)
    accuracy = base.problem.accuracy(final(step, _linear_erm(base), base.steps))
    return {"alpha": float(alphas.quantile(0.5)), "accuracy": 100 * float(accuracy.mean())}


def _linear_erm(base: Theory) -> Tensor:
    return run_finals(replace(base, alphas=()), rcad_steps=1)[0]


def moons(settings: Settings, on_progress: OnProgress) -> list[dict[str, Any]]:
    """By dimension: held-out accuracy over alpha, and where the suggestion lies."""
    rows = []
    for d in settings.dimensions:
        folds = _moon_folds(settings, d)
        progress = partial(on_progress, f"moons in {d} dimensions")
        found = _tried(folds, settings.moons_alphas, _suggestions(folds), settings.lam, settings.moons, progress)
        rows.append({"d": d, **found})
    return rows


def _moon_folds(settings: Settings, d: int) -> list[Fold]:
    return [draw(Cell(d, 0.1), settings.n, 2000, TUNING_SEED + k) for k in range(settings.moons_draws)]


def _digit_folds(settings: Settings) -> list[Fold]:
    """Images that no training set holds judge."""
    data = load_embedded("digits").train
    nested = [subset(data.y, settings.labels * (k + 1), seed=1) for k in range(settings.sets + 1)]
    sets = [np.setdiff1d(large, small) for small, large in pairwise(nested)]
    left = np.setdiff1d(np.arange(len(data.y)), nested[-1])
    held = left[subset(data.y[left], settings.held, seed=1)]
    x, y = as_unit_float(torch.from_numpy(data.x)).flatten(1), torch.from_numpy(data.y)
    return [Fold(x[rows], y[rows], x[held], y[held], 10) for rows in sets]


def digits(settings: Settings, on_progress: OnProgress) -> dict[str, Any]:
    """Held-out accuracy over multiples of the suggestion."""
    folds = _digit_folds(settings)
    measured = _suggestions(folds)
    middle = float(np.median(measured))
    alphas = [middle * factor for factor in settings.factors]
    return _tried(folds, alphas, measured, settings.lam, settings.digits, partial(on_progress, "digits"))


def flips(settings: Settings, on_progress: OnProgress) -> dict[str, dict[str, Any]]:
    """By setting, two rules that ask a model trained by ERM where its prediction changes: training set's medians."""
    rules: dict[str, dict[str, Any]] = {}
    for beta in settings.betas:
        on_progress(f"linear theory, beta {beta:g}: where ERM changes its mind", 0, 1)
        base = Theory(Problem(beta=beta), draws=settings.linear_draws)
        sample, w = start(base)[0], _linear_erm(base)[..., None]
        lines = torch.nn.functional.normalize(torch.randn(sample.x.shape, generator=drawn(), dtype=w.dtype), dim=-1)
        output = (sample.x @ w).squeeze(-1)
        right = output * sample.y > 0
        far = {
            "random": output.abs() / (lines @ w).squeeze(-1).abs(),
            "gradient": (output.abs() / w.norm(dim=1)).masked_fill(~right, FARTHEST),
        }
        rules[f"linear, beta {beta:g}"] = {rule: _linear_rule(base, one.median(1).values) for rule, one in far.items()}
    for d in settings.dimensions:
        on_progress(f"moons in {d} dimensions: where ERM changes its mind", 0, 1)
        rules[f"moons, d = {d}"] = _flips(_moon_folds(settings, d), settings.lam, settings.moons)
    on_progress("digits: where ERM changes its mind", 0, 1)
    rules["digits"] = _flips(_digit_folds(settings), settings.lam, settings.digits)
    return rules


def _flips(folds: Sequence[Fold], lam: float, protocol: Protocol) -> dict[str, Any]:
    """The median alpha of each rule over folds, and the held-out accuracy where each fold has its own."""
    models = fit([Job(Candidate({}, erm()), k, k) for k in range(len(folds))], folds, protocol).models
    alphas: dict[str, list[float]] = {"random": [], "gradient": []}
    for one, stacked in zip(folds, models, strict=True):
        for rule, distance in change_distances(stacked.module(0).eval(), one.x, one.y).items():
            alphas[rule].append(distance)
    jobs = [Job(Candidate({}, rcad(alpha, lam)), k, k) for found in alphas.values() for k, alpha in enumerate(found)]
    accuracy = np.reshape(fit(jobs, folds, protocol).metrics["accuracy"], (len(alphas), -1)).mean(1)
    return {
        rule: {"alpha": float(np.median(found)), "accuracy": float(value)}
        for (rule, found), value in zip(alphas.items(), accuracy, strict=True)
    }


def regression(
    settings: Settings, table: Study, data_dir: Path | None, on_progress: OnProgress
) -> list[dict[str, Any]]:
    """T7's tuned alphas beside a rule for regression: half the median distance to a row a deviation away or more.

    A target a deviation away stands for "another class". Nothing is trained here.
    """
    rows = []
    for name, tuning in table.details["tuning"].items():
        on_progress(f"{name}: distances", 0, 1)
        candidates = table.settings["arms"]["rcad"]["candidates"]
        tuned = [candidates[index]["alpha"] for index in tuning["rcad"]["chosen"]][: settings.splits]
        data = read(name, data_dir)
        rule = []
        for train, test in data.standard_splits[: len(tuned)]:
            scaled = fold(data, np.sort(train), np.sort(test))
            distance = torch.cdist(scaled.x, scaled.x)
            near = (scaled.y[:, None] - scaled.y).abs() < 1
            rule.append(0.5 * float(distance.masked_fill(near, math.inf).amin(1).median()))
        rows.append({"dataset": name, "tuned": tuned, "rule": rule})
    return rows


def run(settings: Settings, uci: Study | None, data_dir: Path | None, on_progress: OnProgress) -> Study:
    """Everything of the page; `uci` is T7's record, or None where the data are not there."""
    return Study(
        target="alpha",
        title="alpha, measured",
        about=ABOUT,
        settings=asdict(settings),
        details={
            "linear": linear(settings, on_progress),
            "moons": moons(settings, on_progress),
            "digits": digits(settings, on_progress),
            "uci": None if uci is None else regression(settings, uci, data_dir, on_progress),
        },
    )


def _suggestions(folds: Sequence[Fold]) -> list[float]:
    return [suggest_alpha(fold.x, fold.y, sample=None) for fold in folds]


def _tried(
    folds: Sequence[Fold],
    alphas: Sequence[float],
    measured: Sequence[float],
    lam: float,
    protocol: Protocol,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Held-out accuracy by alpha, (alphas, folds), the best of them, each fold with its own suggestion, and ERM.

    Args:
        measured: the suggestion, fold by fold.
    """
    tried = [*([alpha] * len(folds) for alpha in alphas), measured]
    jobs = [Job(Candidate({}, rcad(alpha, lam)), k, k) for line in tried for k, alpha in enumerate(line)]
    values = np.asarray(fit(jobs, folds, protocol, progress).metrics["accuracy"]).reshape(-1, len(folds))
    means = values.mean(1)
    best = int(means[: len(alphas)].argmax())
    return {
        "alphas": list(alphas),
        "grid": values[: len(alphas)].tolist(),
        "erm": float(np.mean(refit(Candidate({}, erm()), folds, protocol)["accuracy"])),
        "best_alpha": alphas[best],
        "best": float(means[best]),
        "suggested": {"alpha": float(np.median(measured)), "accuracy": float(means[-1])},
    }


SEEDS = range(5)
"""Of F4's runs."""
SEARCHES = {"ResNet-18": "T4-tuned", "a small CNN without BatchNorm": "T4-tuned-small_cnn"}


def images(results: Path, data_dir: Path | None, on_progress: OnProgress) -> list[dict[str, Any]]:
    """CIFAR-100: the suggestion beside F4's curve on held-out images, and beside what T4's searches chose.

    Nothing is trained. The runs are those of the packs in RESULTS/images.
    """
    on_progress("images: distances", 0, 1)
    train = load("cifar100", data_dir=data_dir).train

    def suggested(count: int) -> float:
        chosen = [subset(train.y, count, seed=seed) for seed in SEEDS]
        found = [suggest_alpha(train.x[rows], train.y[rows], sample=None) for rows in chosen]
        return float(np.median(found))

    f4 = Study.read(results / "F4" / "F4.json")
    by_id = {record.id: record for record in Store(results / "images", tuple(packs_in(results / "images"))).records()}

    def scores(row: str, column: str) -> list[float]:
        """Held-out NLL at the last epoch and accuracy at the chosen one, means over seeds."""
        runs = [by_id[run.id] for run in f4.places[row, column].runs if run.id is not None]
        both = [(run.epochs[-1]["val_nll"], run.metrics["val_accuracy"]) for run in runs]
        return [float(value) for value in np.mean(np.array(both, dtype=float), 0)]

    alphas = [float(column.removeprefix("alpha ")) for column in f4.columns]
    nll, accuracy = (list(values) for values in zip(*(scores("RCAD", column) for column in f4.columns), strict=True))
    rows: list[dict[str, Any]] = [
        {
            "setting": "2,000 images, ResNet-18, lam 0.1 (F4)",
            "suggested": suggested(2000),
            "alphas": alphas,
            "nll": nll,
            "accuracy": accuracy,
            "erm": scores("ERM", f4.columns[0]),
            "best": {"NLL": alphas[int(np.argmin(nll))], "accuracy": alphas[int(np.argmax(accuracy))]},
        }
    ]
    for network, name in SEARCHES.items():
        choices = Study.read(results / "T4" / f"{name}.json").details["search"]["choices"]
        (one,) = (one for one in choices if (one["row"], one["column"]) == ("RCAD", "n=500"))
        alpha = one["trials"][one["chosen"]]["values"]["RCAD.alpha"]
        row = {"setting": f"500 images, {network}, tuned (T4)", "suggested": suggested(500), "best": {"NLL": alpha}}
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute what is not there yet, then write OUT/alpha.json and OUT/alpha.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/alpha"), metavar="DIR")
    parser.add_argument("--scale", choices=list(SCALES), default="full")
    parser.add_argument("--uci", type=Path, metavar="FILE", help="T7's record; without it UCI is left out")
    parser.add_argument("--images", type=Path, metavar="DIR", help="results/; without it CIFAR-100 is left as it was")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder that holds uci/ and cifar100/")
    given = parser.parse_args(arguments)
    try:
        uci = None if given.uci is None else Study.read(given.uci)
        path, settings = given.out / "alpha.json", SCALES[given.scale]
        kept = records.finished(path, asdict(settings), given.scale)
        stale = kept is not None and (kept.details["uci"] is None) != (uci is None)
        study, _ = compute(
            path, given.scale, asdict(settings), lambda: run(settings, uci, given.data_dir, _print_part), again=stale
        )
        if "flips" not in study.details:
            study = replace(study, details={**study.details, "flips": flips(settings, _print_part)})
        if given.images is not None:
            more: dict[str, Any] = {"images": images(given.images, given.data_dir, _print_part)}
            if "image_flips" not in study.details:
                more["image_flips"] = image_flips(given.data_dir, _print_part)
            study = replace(study, details={**study.details, **more})
        files, note = write_study(study, path, "python benchmarks/measured_alpha.py")
    except (InputError, MissingExtraError) as error:
        print(f"alpha: {error}", file=sys.stderr)
        return 2
    if note:
        print(note, file=sys.stderr)
    print(files[1])
    return 0


def _print_part(part: str, done: int, total: int) -> None:
    if done in (0, total):
        print(part, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
