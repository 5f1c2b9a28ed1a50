"""The demo's experiments: presets of the paper's studies and of `rcad compare`, judged by its rule.

The linear theory and the moons are the paper's (F5 and T8, whose draws and numbers they use again, so they repeat a
known result and are no new evidence); the digits and the diabetes data are `rcad compare` as anybody would call it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rcad.report import html
from rcad.runs.files import dumps, make_folder, write_text
from rcad.runs.record import versions
from rcad.study.outputs import check_packages, earlier
from rcad.train.progress import SILENT, Portion, Progress

ACTS = {"linear": "linear theory", "moons": "moons", "digits": "digits, 100 labels", "diabetes": "diabetes"}
SHARES = {"linear": 4.0, "moons": 40.0, "digits": 42.0, "diabetes": 14.0}
"""Of the time, roughly, in percent."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What the numbers depend on, beside the versions. The moons' alpha, lam and step of FGSM are those T8 chose."""

    draws: int = 200
    moons_d: int = 625
    moons_n: int = 1000
    moons_test: int = 5000
    moons_draws: int = 5
    moons_epochs: int = 100
    moons_hidden: int = 128
    moons_grid: int = 75
    alpha: float = 0.5
    lam: float = 1.0
    fgsm: float = 0.01
    digits_seeds: int = 6
    digits_epochs: int = 40
    digits_width: int = 16
    diabetes_seeds: int = 10
    diabetes_budget: int = 8
    diabetes_epochs: int | None = None


FULL = Settings()
FAST = Settings(20, 20, 100, 200, 3, 5, 16, 15, 0.5, 1.0, 0.01, 3, 1, 4, 3, 2, 2)
"""A trial of seconds, whose numbers mean nothing."""
TRIAL = "This was a trial on tiny data: its numbers mean nothing, and nothing is judged."


def linear(settings: Settings, progress: Progress) -> Record:
    """The paper's linear theory: RCAD starts where ERM ended; test accuracies are exact."""
    from rcad.paper.theory.simulation import LARGE, SMALL, run_trajectories
    from rcad.paper.theory.simulation import Settings as Linear

    progress.overall(0, 1, "ERM, then RCAD")
    begun = time.process_time()
    study = run_trajectories(Linear(draws=settings.draws))
    names = (f"rcad(alpha={LARGE:g})", f"rcad(alpha={SMALL:g})")
    ends = {"erm": study.erm[-1], names[0]: study.path(LARGE)[-1], names[1]: study.path(SMALL)[-1]}
    results = {name: {"accuracy": (100 * study.accuracy(w)).tolist()} for name, w in ends.items()}
    return _judged(results, ["accuracy"], dict.fromkeys(results, time.process_time() - begun))


def moons(settings: Settings, progress: Progress) -> Record:
    """Two moons among hundreds of noise dimensions, and the predictions of ERM and RCAD in their plane."""
    from rcad.loss.methods import METHODS
    from rcad.paper.boundaries import SHOWN, grid, probability
    from rcad.paper.moons import Cell, draw
    from rcad.paper.stacked_tuning import Candidate, Job, Protocol, fit
    from rcad.study.study import passes

    d, seeds = settings.moons_d, range(settings.moons_draws)
    folds = [draw(Cell(d, 0.1), settings.moons_n, settings.moons_test, seed) for seed in seeds]
    protocol = Protocol("sgd", 0.05, 128, settings.moons_epochs, (settings.moons_hidden,))
    numbers: dict[str, tuple[Any, ...]] = {
        "erm": (),
        "rcad": (settings.alpha, settings.lam),
        "adversarial_training": (settings.fgsm, "linf", None),
        "rcad_random": (settings.alpha, settings.lam),
        "confidence_penalty": (settings.lam,),
    }
    methods = {name: METHODS[name](*values) for name, values in numbers.items()}
    results, planes, seconds = {}, {}, {}
    for k, (name, method) in enumerate(methods.items()):
        part, begun = Portion(progress, k, 1, len(numbers), name), time.process_time()
        jobs = [Job(Candidate({}, method), seed, seed) for seed in seeds]
        fitted = fit(jobs, folds, protocol, lambda done, total, part=part: part.overall(done, total, ""))  # type: ignore[misc]
        results[name] = {metric: fitted.metrics[metric] for metric in ("accuracy", "nll")}
        seconds[name] = time.process_time() - begun
        if name in ("erm", "rcad"):
            plane = probability(fitted.models[0], grid(settings.moons_grid), d)
            planes[name] = [round(100 * value) for value in plane.tolist()]
    points = {"x": folds[0].x[:SHOWN, :2].double().tolist(), "y": folds[0].y[:SHOWN].tolist()}
    costs = {name: passes(method, settings.moons_epochs) for name, method in methods.items()}
    return {**_judged(results, ["accuracy", "nll"], seconds, costs), "planes": planes, "points": points}


def digits(settings: Settings, progress: Progress) -> Record:
    """100 images: a small CNN, label smoothing and both controls."""
    network = {"model": "small_cnn", "settings": (f"model.width={settings.digits_width}", "model.norm=none")}
    return _compared("digits[:100]", progress, seeds=settings.digits_seeds, epochs=settings.digits_epochs, **network)


def diabetes(settings: Settings, progress: Progress) -> Record:
    """A table with a regression target: every method tuned alike, with enough rows to choose by."""
    tuned = {"budget": settings.diabetes_budget, "settings": ("data.validation=0.3",)}
    return _compared("diabetes", progress, seeds=settings.diabetes_seeds, epochs=settings.diabetes_epochs, **tuned)


def _compared(data: str, progress: Progress, **options: Any) -> Record:
    from rcad.study.compare import compare

    return dict(compare(data, device="cpu", progress=progress, **options).record)


def _judged(
    results: Mapping[str, Mapping[str, Sequence[float]]],
    metrics: Sequence[str],
    seconds: Mapping[str, float],
    passes: Mapping[str, float] | None = None,
) -> Record:
    """Numbers by method, metric and draw as `rcad compare` judges them; draws are independent."""
    from rcad.study.compare_page import judged

    controls = ("rcad_random", "confidence_penalty")
    cells = {}
    for name, by_metric in results.items():
        count = len(by_metric[metrics[0]])
        tests = [{metric: by_metric[metric][k] for metric in metrics} for k in range(count)]
        cells[name] = {
            "role": "base" if name == "erm" else "control" if name in controls else "asked",
            "seconds": seconds[name],
            "passes": None if passes is None else passes[name],
            "runs": count,
            "seeds": {
                str(k): {"chosen": {}, "test": test if all(v == v for v in test.values()) else None}
                for k, test in enumerate(tests)
            },
        }
    return {**judged(cells, metrics, 0.0), "cost": "CPU time"}


@dataclass(frozen=True)
class Demo:
    """What was made: the files and the record."""

    page: Path
    record_file: Path
    record: Record


def run_demo(out: Path, progress: Progress, *, fast: bool = False) -> Demo:
    """Compute, judge, write OUT/demo.json and OUT/index.html; an interruption leaves nothing behind."""
    check_packages(("scipy.stats", "scipy", "data"), ("sklearn.datasets", "scikit-learn", "sklearn"))
    from rcad.demo.page import document, verdicts
    from rcad.paper import record as records

    settings, scale = (FAST, "fast") if fast else (FULL, "full")
    page, file = out / "index.html", out / "demo.json"
    earlier([page, file], "demo", target="demo")
    if fast:
        records.refuse_to_replace_larger(file, "small")
    with _folder(out), _one_thread():
        started, results, before = time.perf_counter(), {}, 0.0
        for name, act in ACTS.items():
            part = Portion(progress, before, SHARES[name], sum(SHARES.values()), act)
            part.note = SILENT.note  # how each run ended is not what a demo is about
            results[name] = globals()[name](settings, part)
            if fast:
                results[name]["sentences"] = [TRIAL]
            before += SHARES[name]
        record: Record = {
            "target": "demo",
            "scale": scale,
            "settings": records.as_stored(asdict(settings)),
            "versions": versions(("rcad", "torch", "numpy", "scipy")),
            "seconds": round(time.perf_counter() - started, 1),
            "results": records.as_stored(results),
        }
        record["verdicts"] = verdicts(record["results"])
        text = html.page(document(record))
        write_text(file, dumps(record, indent=None).replace('}, "', '},\n"') + "\n")
        write_text(page, text)
    return Demo(page, file, record)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The networks are so small that more threads would only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _folder(out: Path) -> Iterator[None]:
    """The folder, made now if it is missing, so that a mistake shows before the work; one that stays empty goes."""
    is_new = not out.exists()
    make_folder(out)
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # what holds a file stays
                out.rmdir()
