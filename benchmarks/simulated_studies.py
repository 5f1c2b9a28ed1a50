"""Studies in which the truth is known: differences (studies, claims, runs), positive for the claim, of each design."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from rcad.paper.claims import CONTROLS
from rcad.paper.tables import T1 as SUITE
from rcad.paper.targets import Printed
from rcad.runs.pack import read_pack
from rcad.study.statistics import LEVEL

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Odd = Literal["", "slips", "test set"]
ROOT = Path(__file__).parents[1]
UCI = (506, 1030, 768, 1599, 308)  # rows of T7's tables
FEATURES = 4
SLIP, CHANCE = 5.0, 0.1
"""Points that a run may lose, and how often: so did one of our ten of RCAD, whose 200 validation images chose badly."""
DRIFT = 0.1
"""Points, sd: what 10,000 test images give where two methods' chances to be right differ by 0.1 from image to image."""


def record(name: str) -> Mapping[str, Any]:
    return json.loads((ROOT / f"results/{name}.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def our_spread(*methods: str) -> float:
    """Sd of a run's test accuracy on 2,000 CIFAR-100 images, pooled over the methods, from the records."""
    groups: dict[str, list[float]] = {}
    for run in read_pack(ROOT / "results/cifar100-2k-bf16.jsonl.gz").values():
        *_, (name, parameters) = run.record.config.method
        if "every" not in dict(parameters):
            groups.setdefault(name, []).append(run.record.metrics["test_accuracy"])
    return math.sqrt(np.mean([np.var(groups[name], ddof=1) for name in methods]))


def printed_spread(one: Printed) -> float:
    """Sd of a run as the paper's 95% interval has it."""
    runs = one.n or 0
    return (one.half or 0.0) * math.sqrt(runs) / float(student.ppf(1 - LEVEL / 2, runs - 1))


def images(
    rng: np.random.Generator, studies: int, seeds: int, *, true: bool, spread: float | None = None, odd: Odd = ""
) -> Array:
    """The claims of T1, with the runs that they share; every seed has a training set of its own.

    Args:
        true: the means are those that are printed, a control's ERM's; else all are equal.
        spread: sd of a method's runs in points; None for the paper's own.
        odd: "slips": some runs of RCAD lose much while its mean stays where it is; "test set": all seeds share one,
            which suits one method or the other by chance.
    """
    runs: dict[tuple[str, str], Array] = {}
    for column, cells in SUITE.published.items():
        for row in SUITE.rows:
            one = cells["ERM" if row in CONTROLS else row]
            sd = printed_spread(one) if spread is None else spread
            values = rng.normal(one.mean if true else 0.0, sd, (studies, seeds))
            if odd == "slips" and row == "RCAD":
                values += SLIP * (CHANCE - (rng.random((studies, seeds)) < CHANCE))
            if odd == "test set":
                values += rng.normal(0.0, DRIFT / math.sqrt(2), (studies, 1))
            runs[row, column] = values
    return np.stack([runs[claim.winner] - runs[claim.loser] for claim in SUITE.claims], 1)


def recorded(rng: np.random.Generator, studies: int, claims: Sequence[Mapping[str, Any]], ratio: float) -> Array:
    """A page of ours if the paper's differences were true: each claim with the spread that our runs have.

    Splits that overlap are correlated as Nadeau and Bengio assume: n_test / (n_test + n_train).
    """
    shared, parts = ratio / (1 + ratio), []
    for one in claims:
        runs = one["gain"]["df"] + 1
        sd = one["gain"]["se"] / math.sqrt(1 / runs + ratio)
        common, own = rng.normal(size=(studies, 1)), rng.normal(size=(studies, runs))
        parts.append(one["published"] + sd * (math.sqrt(shared) * common + math.sqrt(1 - shared) * own))
    return np.stack(parts, 1)


def held_out(rng: np.random.Generator, rows: int, share: float, splits: int, *, folds: bool) -> Index:
    """Test rows of each split, (splits, rows of a test set): drawn anew for each, or the folds of repeated rounds."""
    count = round(share * rows)
    per_round = rows // count if folds else 1
    order = rng.random((math.ceil(splits / per_round), rows)).argsort(1)
    return order[:, : per_round * count].reshape(-1, count)[:splits]


def least_squares(rng: np.random.Generator, rows: int, test: Index, learners: int = 3) -> Array:
    """Test NLL of learners that see different columns of one fresh table, (learners, splits).

    The columns are alike, so no learner is better over all tables; on one table one is, by chance, in every split.
    """
    x = rng.normal(size=(rows, learners, FEATURES))
    y = 0.5 * x.sum((1, 2)) + rng.normal(size=rows)
    held, target = x[test], y[test]
    gram = np.einsum("rmf,rmg->mfg", x, x) - np.einsum("stmf,stmg->smfg", held, held)
    cross = np.einsum("rmf,r->mf", x, y) - np.einsum("stmf,st->smf", held, target)
    weight = np.linalg.solve(gram, cross[..., None])[..., 0]
    left = (y @ y - (target**2).sum(1))[:, None] - (cross * weight).sum(-1)
    variance = left / (rows - test.shape[1])
    error = target[..., None] - np.einsum("stmf,smf->stm", held, weight)
    nll: Array = 0.5 * (np.log(2 * np.pi * variance) + (error**2).mean(1) / variance)
    return nll.T


def tables(
    rng: np.random.Generator, studies: int, sizes: Sequence[int], *, share: float, splits: int, folds: bool = False
) -> Array:
    """Three learners without a true difference on each table of these sizes: each pair of them is a claim."""
    found = []
    for _ in range(studies):
        results = [least_squares(rng, n, held_out(rng, n, share, splits, folds=folds)) for n in sizes]
        found.append([pair for a, b, c in results for pair in (b - a, c - a, c - b)])
    return np.asarray(found)
