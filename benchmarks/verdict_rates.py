"""How far our verdicts can be trusted: simulated studies whose truth is known, judged by the rules as they stand.

    python benchmarks/verdict_rates.py --out results/statistics

Writes verdict_rates.json and verdict_rates.md, in about a minute on one core.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything loads a linear algebra library

import numpy as np
import scipy
from common import write
from scipy.stats import t as student
from simulated_studies import UCI, Array, images, our_spread, record, recorded, tables
from verdict_rates_page import page

from rcad.paper.tables import T1 as SUITE
from rcad.runs.files import write_text
from rcad.study.judge import CLAIM_RULE as RULE
from rcad.study.judge import VERDICTS, Verdict, judge_claims
from rcad.study.statistics import LEVEL, Paired, holm

STUDIES, SEED = 4_000, 0
SKLEARN, FOLDS = (569, 178, 442), "scikit-learn's tables, 10 x 5 folds"  # rows of three of its tables


class Tests(NamedTuple):
    """The paired t-tests of many studies at once, each (studies, claims): the numbers of `statistics.paired`."""

    mean: Array
    se: Array
    low: Array
    high: Array
    t: Array
    less: Array
    greater: Array
    two: Array

    @classmethod
    def of(cls, differences: Array, ratio: float = 0.0) -> Tests:
        runs = differences.shape[-1]
        mean, se = differences.mean(-1), np.sqrt(differences.var(-1, ddof=1) * (1 / runs + ratio))
        half, t = student.ppf(1 - LEVEL / 2, runs - 1) * se, mean / se
        less, greater = student.cdf(t, runs - 1), student.sf(t, runs - 1)
        return cls(mean, se, mean - half, mean + half, t, less, greater, 2 * np.minimum(less, greater))


def verdicts(differences: Array, published: Sequence[float | None], ratio: float = 0.0) -> list[list[Verdict]]:
    """The verdict of every claim of every study."""
    df, found = differences.shape[-1] - 1, []
    for study in zip(*(part.tolist() for part in Tests.of(differences, ratio)), strict=True):
        gains = [Paired(m, se, low, high, t, df, *p) for m, se, low, high, t, *p in zip(*study, strict=True)]
        found.append([claim.verdict for claim in judge_claims(gains, published)])
    return found


def one_sided(differences: Array, published: Sequence[float | None], ratio: float = 0.0) -> dict[str, Any]:
    """The rule of the paper's tables: of claims and of pages, the share with each verdict."""
    found = np.asarray(verdicts(differences, published, ratio))
    return {
        "claims": found.shape[1],
        "runs": differences.shape[-1],
        "single": float((Tests.of(differences, ratio).greater < LEVEL).mean()),
        "single_plain": float((Tests.of(differences).greater < LEVEL).mean()),
        "share": {name: float((found == name).mean()) for name in VERDICTS},
        "page": {name: float((found == name).any(1).mean()) for name in VERDICTS},
        "page_decided": float(np.isin(found, ("reproduced", "opposite")).any(1).mean()),
        "reproduced_by_claim": (found == "reproduced").mean(0).tolist(),
    }


def two_sided(differences: Array, ratio: float) -> dict[str, Any]:
    """The rule of `rcad compare` and of scikit-learn's tables: better or worse where Holm's two-sided p is small."""
    p = Tests.of(differences, ratio).two
    return {
        "claims": p.shape[1],
        "runs": differences.shape[-1],
        "single": float((p < LEVEL).mean()),
        "single_plain": float((Tests.of(differences).two < LEVEL).mean()),
        "page_decided": float((np.asarray([holm(row) for row in p.tolist()]) < LEVEL).any(1).mean()),
    }


def simulate(studies: int, seed: int) -> dict[str, Any]:
    """Every cell of the page."""
    rng = np.random.default_rng(seed)
    sizes = [claim.published for claim in SUITE.claims]
    ours, calm, ratio = our_spread("erm", "rcad"), our_spread("erm"), 1 / 9
    designs: dict[str, tuple[int, dict[str, Any]]] = {
        "10 seeds": (10, {"spread": 1.0}),
        "3 seeds": (3, {"spread": 1.0}),
        "10 seeds, some runs of RCAD slip": (10, {"spread": calm, "odd": "slips"}),
        "10 seeds, our spread, one test set": (10, {"spread": ours, "odd": "test set"}),
        "10 seeds, the paper's spread, one test set": (10, {"odd": "test set"}),
    }
    null = {
        f"T1, {name}": one_sided(images(rng, studies, seeds, true=False, **options), sizes)
        for name, (seeds, options) in designs.items()
    }
    null["T7, 20 splits of 90/10"] = one_sided(tables(rng, studies, UCI, share=0.1, splits=20), [None] * 15, ratio)
    sided = {
        "compare, 5 splits of 80/20": two_sided(tables(rng, studies, (300,), share=0.2, splits=5), 0.25),
        "compare, 10 splits of 80/20": two_sided(tables(rng, studies, (300,), share=0.2, splits=10), 0.25),
        FOLDS: two_sided(tables(rng, studies, SKLEARN, share=0.2, splits=50, folds=True), 0.25),
    }
    spreads = {"the paper's": None, f"our ERM's, {calm:.2f} points": calm, f"ours, {ours:.2f} points": ours}
    power = {
        f"T1, {seeds} seeds, spread: {name}": one_sided(images(rng, studies, seeds, true=True, spread=sd), sizes)
        for name, sd in spreads.items()
        for seeds in (3, 10)
    }
    for name, file, overlap in (("T7, 20 splits", "uci/uci", ratio), ("T8, 5 draws", "moons/moons", 0.0)):
        claims = [one for one in record(file)["claims"] if one["gain"] and one["published"]]
        claims = [one for one in claims if one["gain"]["df"] == claims[0]["gain"]["df"]]  # T8 has fewer at full size
        found = one_sided(recorded(rng, studies, claims, overlap), [one["published"] for one in claims], overlap)
        power[name] = found | {"names": [f"{one['where']}: {one['statement']}" for one in claims]}
    return {"null": null, "two_sided": sided, "power": power, "our_spread": {"ERM": calm, "ERM and RCAD": ours}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--studies", type=int, default=STUDIES)
    options = parser.parse_args()
    start = time.perf_counter()
    found = simulate(options.studies, SEED)
    made = {
        "studies": options.studies,
        "seed": SEED,
        "seconds": round(time.perf_counter() - start, 1),
        "versions": {"numpy": np.__version__, "scipy": scipy.__version__},
        "rule": RULE,
        "T1": [f"{claim.where}: {claim.statement}" for claim in SUITE.claims],
        **found,
    }
    write(options.out / "verdict_rates.json", made)
    write_text(options.out / "verdict_rates.md", page(made))
    print(f"{options.out / 'verdict_rates.md'}: {made['seconds']:.0f} s")


if __name__ == "__main__":
    main()
