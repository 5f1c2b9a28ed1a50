"""Which lam beside a measured alpha? Chosen on held-out data; then RCAD with its defaults against ERM on other data.

    python benchmarks/default_values.py --data-dir DATA --out results/defaults

Writes defaults.json (every number) and defaults.md (the page). Digits, moons and tables take about twenty minutes on
one core, the front page's loop with other networks (`default_loops.py`) as long again. CIFAR-100 with 500 labels takes
about an hour; its runs are kept in --runs and not done twice. What defaults.json has is kept: delete it to begin anew.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything loads a linear algebra library

import default_loops
import numpy as np
import torch
from default_values_page import CONSTANT, page
from scipy.stats import rankdata

from rcad.data.dataset import subset
from rcad.data.scaling import Standardizer
from rcad.data.small_sets import load_embedded, load_uci
from rcad.loss.growth import as_unit_float
from rcad.loss.method_rows import parse_method
from rcad.loss.methods import erm, rcad
from rcad.loss.suggest_alpha import suggest_alpha
from rcad.loss.terms import WEIGHT
from rcad.paper.moons import Cell, draw
from rcad.paper.stacked_tuning import Candidate, Fold, Job, Protocol, fit
from rcad.runs.configure import configure
from rcad.runs.files import write_text
from rcad.train.place import Place
from rcad.train.scheduler import schedule

LAMS = (0.02, 0.1, 0.2, 0.5, 1.0)
UNIFORM_LAMS = (0.005, 0.01, 0.02)
SMALL_LAMS, SHARES = (0.01, 0.02, 0.05, 0.1), (0.25, 0.5, 1.0, 2.0)
METRICS = ("accuracy", "nll")
DIGITS, TABLES = Protocol("adamw", 3e-3, 25, 60, (128,)), Protocol("adamw", 3e-3, 32, 40, (50,))
MOONS = Protocol("sgd", 0.05, 128, 100, (128,))
DIMENSIONS = (2, 50, 200, 625)
NOISES, WIDTHS, SIZES = (0.1, 0.3), (2, 10, 50, 200, 625), (100, 300, 1000)
MAP = [*product(NOISES, WIDTHS, SIZES), *product((0.1,), (1000,), SIZES), *product((0.75,), (625,), SIZES)]
"""Of moons: noise, dimensions, training examples; T8's three kinds are among them."""
NEIGHBOUR, DENSITY = (0.01, 0.05), (0.3, 0.6)
"""Of the rules for lam: the error of the nearest neighbour, the ratio of distances, from which on lam is whole."""
CIFAR = "CIFAR-100, 500 labels, small CNN"
Numbers = dict[str, list[float]]


def digits(half: int) -> list[Fold]:
    """Five sets of 100 images that share none, judged by what is left of this half; the halves share nothing either."""
    data = load_embedded("digits").train
    rows = np.array_split(np.random.default_rng(0).permutation(len(data.y)), 2)[half]
    x, y = as_unit_float(torch.from_numpy(data.x)).flatten(1), torch.from_numpy(data.y)
    sets = []
    for _ in range(5):
        chosen = rows[subset(data.y[rows], 100, seed=1)]
        sets.append(chosen)
        rows = np.setdiff1d(rows, chosen)
    return [Fold(x[chosen], y[chosen], x[rows], y[rows], 10) for chosen in sets]


def moons(dimension: int, first: int, count: int, sigma: float = 0.1, n: int = 1000) -> list[Fold]:
    return [draw(Cell(dimension, sigma), n, 2000, first + k) for k in range(count)]


def table(x: Any, y: Any, count: int = 8) -> list[Fold]:
    """Parts of three quarters and one quarter, of 80% of the rows; the others were never read."""
    kept = np.random.default_rng(7).permutation(len(y))[: int(0.8 * len(y))]
    labels = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    folds = []
    for k in range(count):
        fitted, held = np.split(np.random.default_rng(k).permutation(kept), [int(0.75 * len(kept))])
        scale = Standardizer.fit(x[fitted])
        a, b = (torch.from_numpy(scale.transform(x[part])) for part in (fitted, held))
        folds.append(Fold(a, labels[fitted], b, labels[held], int(labels.max()) + 1))
    return folds


def trained(
    folds: Sequence[Fold], protocol: Protocol, lams: Sequence[float], seeds: int = 1, **options: Any
) -> dict[str, Numbers]:
    """By lam, 0 being ERM: each metric over folds and seeds, alpha measured on each fold; `options` of the method."""
    pairs = [(k, seed) for k in range(len(folds)) for seed in range(seeds)]
    alphas = [suggest_alpha(fold.x, fold.y, sample=None) for fold in folds]
    jobs = [Job(Candidate({}, rcad(round(alphas[k], 4), lam, **options)), k, seed) for lam in lams for k, seed in pairs]
    plain = fit([Job(Candidate({}, erm()), k, seed) for k, seed in pairs], folds, protocol).metrics
    found = fit(jobs, folds, protocol).metrics
    size = len(pairs)
    cut = {lam: slice(n * size, (n + 1) * size) for n, lam in enumerate(lams)}
    of_lam = {f"{lam:g}": {name: found[name][rows] for name in METRICS} for lam, rows in cut.items()}
    return {"0": {name: plain[name] for name in METRICS}, **of_lam}


def density(folds: Sequence[Fold]) -> float:
    """The median distance to the nearest example of the same class, over that to the nearest of another."""
    found = []
    for fold in folds:
        far = torch.cdist(fold.x, fold.x).fill_diagonal_(torch.inf)
        same = fold.y[:, None] == fold.y
        near = [far.masked_fill(hidden, torch.inf).amin(1).quantile(0.5).item() for hidden in (~same, same)]
        found.append(near[0] / near[1])
    return float(np.mean(found))


def neighbour_error(fold: Fold) -> float:
    """The share of the training examples whose nearest other one has another label."""
    nearest = torch.cdist(fold.x, fold.x).fill_diagonal_(torch.inf).argmin(1)
    return float((fold.y[nearest] != fold.y).double().mean())


def ruled(folds: Sequence[Fold], protocol: Protocol) -> Numbers:
    """NLL of ERM ("0"), of the default, and with lam by rules that lower it where the classes lie far apart."""
    errors, ratios = [neighbour_error(fold) for fold in folds], [density([fold]) for fold in folds]
    lams = {CONSTANT: [WEIGHT] * len(folds)}
    lams |= {f"error {edge:g}": [WEIGHT * min(1.0, one / edge) for one in errors] for edge in NEIGHBOUR}
    lams |= {f"density {edge:g}": [WEIGHT * min(1.0, one / edge) for one in ratios] for edge in DENSITY}
    alphas = [round(suggest_alpha(fold.x, fold.y, sample=None), 4) for fold in folds]
    # A term of weight 0 is another structure, which a stack cannot hold beside the others.
    every = [(k, max(lam, 1e-9)) for some in lams.values() for k, lam in enumerate(some)]
    plain = fit([Job(Candidate({}, erm()), k, 0) for k in range(len(folds))], folds, protocol).metrics["nll"]
    found = fit([Job(Candidate({}, rcad(alphas[k], lam)), k, 0) for k, lam in every], folds, protocol).metrics["nll"]
    return {"0": plain, **dict(zip(lams, np.reshape(found, (len(lams), -1)).tolist(), strict=True))}


def around(folds: Sequence[Fold], protocol: Protocol) -> dict[str, dict[str, list[float]]]:
    """Shorter and longer steps, smaller weights: NLL minus ERM's by share of the measured alpha, then by lam."""
    pairs = [(k, seed) for k in range(len(folds)) for seed in range(4)]
    alphas = [suggest_alpha(fold.x, fold.y, sample=None) for fold in folds]
    plain = fit([Job(Candidate({}, erm()), k, seed) for k, seed in pairs], folds, protocol).metrics["nll"]
    grid = [(share, lam) for share in SHARES for lam in SMALL_LAMS]
    jobs = [Job(Candidate({}, rcad(round(s * alphas[k], 4), lam)), k, seed) for s, lam in grid for k, seed in pairs]
    found = np.reshape(fit(jobs, folds, protocol).metrics["nll"], (len(SHARES), len(SMALL_LAMS), -1)) - plain
    return {
        f"{share:g}": {f"{lam:g}": found[i, j].tolist() for j, lam in enumerate(SMALL_LAMS)}
        for i, share in enumerate(SHARES)
    }


def cifar(lams: Sequence[float], seeds: int, split: str, place: Place) -> dict[str, Numbers]:
    """The same on images, by the engine: 500 to train on, 500 held out, the test set."""
    texts = {"0": "erm", **{f"{lam:g}": f"rcad(alpha=auto, lam={lam:g})" for lam in lams}}
    settings = ("train.selection=last", "model.name=small_cnn")
    found: dict[str, Numbers] = {}
    for lam, text in texts.items():
        data = {"name": "cifar100[:1000]", "validation": 0.5}
        rows = parse_method(text)
        configs = [configure(data, rows, recipe="small", seed=seed, settings=settings) for seed in range(seeds)]
        records = schedule(configs, place).records
        found[lam] = {name: [float(one.metrics[f"{split}_{name}"] or np.nan) for one in records] for name in METRICS}
    return found


def held_out(wine: Any, embedded: dict[str, Any]) -> dict[str, tuple[list[Fold], Protocol]]:
    """The settings in which lam is chosen."""
    settings = {"digits, 100 labels": (digits(0), DIGITS)}
    settings |= {f"moons, d = {d}": (moons(d, 2000, 3), MOONS) for d in DIMENSIONS}
    settings["wine quality (UCI) as classes"] = (table(wine.x, wine.y.round()), TABLES)
    return settings | {name.replace("_", " "): (table(one.x, one.y), TABLES) for name, one in embedded.items()}


def study(wine: Any, embedded: dict[str, Any], place: Place) -> dict[str, Any]:
    """lam chosen on held-out rows, then the defaults on others."""
    choice = {name: trained(*setting, LAMS) for name, setting in held_out(wine, embedded).items()}
    whole = [[np.mean(found[lam]["nll"]) for lam in found] for found in choice.values()]
    ranks = dict(zip(choice["digits, 100 labels"], np.mean([rankdata(row) for row in whole], 0).tolist(), strict=True))
    choice[CIFAR] = cifar((0.1, 0.5), 2, "val", place)
    check = {"digits, 100 labels": trained(digits(1), DIGITS, (WEIGHT,), seeds=4)}
    check |= {f"moons, d = {d}": trained(moons(d, 3000, 8), MOONS, (WEIGHT,)) for d in DIMENSIONS}
    check[CIFAR] = cifar((WEIGHT,), 4, "test", place)
    return {"ranks": ranks, "chosen": min(ranks, key=lambda lam: ranks[lam]), "choice": choice, "check": check}


def rules(tables: Mapping[str, tuple[list[Fold], Protocol]]) -> dict[str, Numbers]:
    """The rules for lam on held-out examples: digits, tables, and moons of the map's kinds, other draws."""
    settings = {"digits": (digits(0), DIGITS), **tables}
    for sigma, d, n in product(NOISES, WIDTHS[:-1], SIZES):  # with 625 dimensions every rule gives the default
        settings[f"moons {sigma:g}, {d}, {n}"] = (moons(d, 2000, 8, sigma, n), MOONS)
    return {name: ruled(folds, protocol) for name, (folds, protocol) in settings.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    given = parser.parse_args()
    place = Place.of(given.runs, data_dir=given.data_dir, device="cpu")
    wine = load_uci("wine", data_dir=given.data_dir).train
    embedded = {name: load_embedded(name).train for name in ("breast_cancer", "wine_recognition")}
    kept = given.out / "defaults.json"
    record = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else study(wine, embedded, place)
    of_tables = {name.replace("_", " "): table(one.x, one.y) for name, one in embedded.items()}
    if "around" not in record:
        of_moons = {f"moons, d = {d}": moons(d, 2000, 3) for d in (2, 10, *DIMENSIONS[1:])}
        ratios = {name: density(folds) for name, folds in {**of_moons, **of_tables, "digits": digits(0)}.items()}
        record["ratios"] = dict(sorted(ratios.items(), key=lambda pair: pair[1]))
        hard = {name: around(of_moons[name], MOONS) for name in ("moons, d = 2", "moons, d = 10")}
        record["around"] = hard | {"wine recognition": around(of_tables["wine recognition"], TABLES)}
    if "rules" not in record:
        of_tables["wine quality"] = table(wine.x, wine.y.round())
        record["rules"] = rules({name: (folds, TABLES) for name, folds in of_tables.items()})
    if "uniform" not in record:
        options = {"measure": "uniform_cross_entropy"}
        settings = held_out(wine, embedded)
        record["uniform"] = {name: trained(*setting, UNIFORM_LAMS, **options) for name, setting in settings.items()}
    known = record.get("moons", {})
    record["moons"] = {
        name: known.get(name) or trained(moons(d, 4000, 16, sigma, n), MOONS, (WEIGHT,))
        for name, sigma, d, n in ((f"{sigma:g}, {d}, {n}", sigma, d, n) for sigma, d, n in MAP)
    }

    def keep() -> dict[str, Any]:
        """Writes the record as far as it is made, numbers rounded."""
        shown: dict[str, Any] = json.loads(json.dumps(record), parse_float=lambda text: round(float(text), 5))
        given.out.mkdir(parents=True, exist_ok=True)
        write_text(kept, json.dumps(shown) + "\n")
        return shown

    default_loops.study(given.data_dir, record.setdefault("loops", {}), keep)
    write_text(given.out / "defaults.md", page(keep()))


if __name__ == "__main__":
    main()
