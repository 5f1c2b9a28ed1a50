"""RCADClassifier and RCADRegressor with their defaults against scikit-learn's own, on its embedded tables.

    python benchmarks/sklearn_tables.py --out results/sklearn

Writes tables.json (every run) and tables.md (the page). 10 x 5 folds take about a quarter of an hour on one core.
`--part` makes one part anew and keeps the others: defaults, runs, times.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything loads a linear algebra library

import numpy as np
import sklearn
import sklearn_page
import torch
from sklearn import datasets
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import (
    KFold,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    cross_val_predict,
    train_test_split,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rcad.integrations.sklearn import RCADClassifier, RCADRegressor
from rcad.runs.files import write_text

FOLDS, ROUNDS, TIMED_EPOCHS = 5, 9, 200
CANDIDATES = ((25, "auto"), (50, "auto"), (100, "auto"), (200, "auto"), (25, 32), (50, 32), (100, 32))


class Task(NamedTuple):
    """A data set of the comparison; `labels` is how many training examples are kept, None for all."""

    name: str
    load: Callable[..., Any]
    labels: int | None = None
    real: bool = False


TASKS = (
    Task("breast cancer", datasets.load_breast_cancer),
    Task("wine", datasets.load_wine),
    Task("digits, 100 labels", datasets.load_digits, labels=100),
    Task("diabetes", datasets.load_diabetes, real=True),
)


def models(task: Task, seed: int) -> dict[str, BaseEstimator]:
    """Everything with its defaults; what needs scaled columns, or a scaled target, gets them."""
    if task.real:
        perceptron = make_pipeline(StandardScaler(), MLPRegressor(random_state=seed))
        return {
            "RCADRegressor": RCADRegressor(random_state=seed),
            'RCADRegressor("rcad_random")': RCADRegressor("rcad_random", random_state=seed),
            'RCADRegressor("erm")': RCADRegressor("erm", random_state=seed),
            "MLPRegressor": TransformedTargetRegressor(perceptron, transformer=StandardScaler()),
            "Ridge": make_pipeline(StandardScaler(), Ridge()),
            "HistGradientBoosting": HistGradientBoostingRegressor(random_state=seed),
        }
    return {
        "RCADClassifier": RCADClassifier(random_state=seed),
        'RCADClassifier("rcad_random")': RCADClassifier("rcad_random", random_state=seed),
        'RCADClassifier("erm")': RCADClassifier("erm", random_state=seed),
        "MLPClassifier": make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
        "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression()),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=seed),
    }


def deviation(model: BaseEstimator, x: Any, y: Any) -> float:
    """Of a model without one: the root mean square of its 5-fold out-of-fold errors on the training rows."""
    guess = cross_val_predict(clone(model), x, y, cv=KFold(FOLDS, shuffle=True, random_state=0))
    return float(np.sqrt(np.mean((guess - y) ** 2)))


def normal_nll(y: Any, mean: Any, spread: Any) -> float:
    return float(np.mean(0.5 * np.log(2 * np.pi * spread**2) + (y - mean) ** 2 / (2 * spread**2)))


def measured(task: Task, model: BaseEstimator, train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, float]:
    """One fit and its test results."""
    (x, y), (x_test, y_test) = train, test
    start = time.perf_counter()
    model.fit(x, y)
    result = {"seconds": round(time.perf_counter() - start, 4)}
    if getattr(model, "alpha_", None) is not None:
        result["alpha"] = model.alpha_
    if not task.real:
        p = model.predict_proba(x_test)
        hits = model.classes_[p.argmax(1)] == y_test
        return result | {"accuracy": 100 * float(hits.mean()), "nll": log_loss(y_test, p, labels=model.classes_)}
    if isinstance(model, RCADRegressor):
        mean, spread = model.predict(x_test, return_std=True)
    else:
        mean, spread = model.predict(x_test), np.float64(deviation(model, x, y))
    rmse = float(np.sqrt(np.mean((mean - y_test) ** 2)))
    return result | {"r2": r2_score(y_test, mean), "rmse": rmse, "nll": normal_nll(y_test, mean, spread)}


def runs(task: Task, repeats: int) -> list[dict[str, Any]]:
    """Every model on every fold of every repetition."""
    x, y = task.load(return_X_y=True)
    kind = RepeatedKFold if task.real else RepeatedStratifiedKFold
    rows = []
    for fold, (train, test) in enumerate(kind(n_splits=FOLDS, n_repeats=repeats, random_state=0).split(x, y)):
        if task.labels is not None:
            train, _ = train_test_split(train, train_size=task.labels, stratify=y[train], random_state=fold)
        for name, model in models(task, fold).items():
            found = measured(task, model, (x[train], y[train]), (x[test], y[test]))
            rows.append({"task": task.name, "model": name, "fold": fold, **found})
        print(f"{task.name}: fold {fold + 1} of {FOLDS * repeats}", flush=True)
    return rows


def others() -> dict[str, tuple[Any, Any, bool]]:
    """Data that the comparison does not use, for choosing how long to train."""
    return {
        "iris": (*datasets.load_iris(return_X_y=True), False),
        "classification, 100": (*datasets.make_classification(100, 20, n_informative=6, random_state=0), False),
        "classification, 300": (
            *datasets.make_classification(300, 20, n_informative=6, n_classes=3, random_state=0),
            False,
        ),
        "classification, 1000": (
            *datasets.make_classification(1000, 20, n_informative=6, n_classes=3, random_state=1),
            False,
        ),
        "moons, 300": (*datasets.make_moons(300, noise=0.25, random_state=0), False),
        "friedman1, 100": (*datasets.make_friedman1(100, noise=1.0, random_state=0), True),
        "friedman1, 300": (*datasets.make_friedman1(300, noise=1.0, random_state=0), True),
        "friedman1, 1000": (*datasets.make_friedman1(1000, noise=1.0, random_state=1), True),
        "linear, 200": (*datasets.make_regression(200, 10, n_informative=5, noise=60.0, random_state=0), True),
        "friedman3, 300": (*datasets.make_friedman3(300, noise=0.2, random_state=0), True),
    }


def defaults() -> list[dict[str, Any]]:
    """The held-out likelihood of ERM by number of epochs and size of batches, 5 folds."""
    rows = []
    for (name, (x, y, real)), (epochs, batch) in itertools.product(others().items(), CANDIDATES):
        task = Task(name, datasets.load_iris, real=real)
        kind = KFold if real else StratifiedKFold
        model = (RCADRegressor if real else RCADClassifier)("erm", max_iter=epochs, batch_size=batch, random_state=0)
        folds = kind(FOLDS, shuffle=True, random_state=0).split(x, y)
        found = [measured(task, clone(model), (x[a], y[a]), (x[b], y[b])) for a, b in folds]
        numbers = {key: statistics.fmean(one[key] for one in found) for key in ("nll", "r2" if real else "accuracy")}
        rows.append({"data": name, "real": real, "epochs": epochs, "batch": batch, **numbers})
        print(f"defaults: {name}, {epochs} epochs, batches {batch}", flush=True)
    return rows


def times() -> list[dict[str, Any]]:
    """Seconds of processor time of a fit with equal epochs, width and batches, taken in turns on one thread."""
    rows = []
    for task in TASKS:
        x, y = task.load(return_X_y=True)
        scaled = StandardScaler().fit_transform(x)
        target = (y - y.mean()) / y.std() if task.real else y
        own, theirs = (RCADRegressor, MLPRegressor) if task.real else (RCADClassifier, MLPClassifier)
        same = {"max_iter": TIMED_EPOCHS, "hidden_layer_sizes": (100,), "random_state": 0}
        fits = {
            "MLP": theirs(**same, n_iter_no_change=10**9, tol=0.0),
            "erm": own("erm", **same),
            "rcad": own("rcad", **same),
            "weighted": own("rcad", **same),
        }
        weights = {"weighted": {"sample_weight": np.linspace(0.5, 1.5, len(y))}}
        rounds: list[dict[str, float]] = []
        for _ in range(ROUNDS):
            rounds.append({})
            for name, model in fits.items():
                start = time.process_time()
                clone(model).fit(scaled, target, **weights.get(name, {}))
                rounds[-1][name] = time.process_time() - start
        row: dict[str, Any] = {"task": task.name.split(",")[0], "rows": len(y), "epochs": TIMED_EPOCHS}
        row |= {f"{name} seconds": statistics.median(one[name] for one in rounds) for name in fits}
        row |= {
            f"{name} ratio": statistics.median(one[name] / one["MLP"] for one in rounds)
            for name in ("erm", "rcad", "weighted")
        }
        rows.append(row)
        print(row, flush=True)
    return rows


def _text(record: dict[str, Any]) -> str:
    """JSON with one row of a list on a line."""
    parts = [
        f"{json.dumps(key)}: "
        + ("[\n" + ",\n".join(map(json.dumps, value)) + "\n]" if isinstance(value, list) else json.dumps(value))
        for key, value in record.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of tables.json and tables.md")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--part", choices=("defaults", "runs", "times", "page"), help="make this part only")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    torch.set_num_threads(1)
    path = options.out / "tables.json"
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    parts = {
        "defaults": defaults,
        "runs": lambda: [row for task in TASKS for row in runs(task, options.repeats)],
        "times": times,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for name, make in parts.items():
        if options.part in (None, name):
            start = time.perf_counter()
            record[name] = make()
            record[f"seconds of {name}"] = round(time.perf_counter() - start)
            record["versions"] = {"scikit-learn": sklearn.__version__, "torch": torch.__version__.split("+")[0]}
            record["date"] = datetime.now(UTC).date().isoformat()
            write_text(path, _text(record))
    write_text(options.out / "tables.md", sklearn_page.page(record, FOLDS))


if __name__ == "__main__":
    main()
