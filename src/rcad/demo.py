"""`rcad demo`: four experiments without a download, judged as `rcad compare` judges, and their page.

The linear theory and the moons repeat the paper's F5 and T8 with the same draws and numbers, and are no new evidence;
the digits and the diabetes data are `rcad compare` as anybody would call it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rcad.report import html
from rcad.report.document import Command, Document, Figure, Part, Section, Table
from rcad.report.drawing import BLACK, BLUE, GREEN, axes, grid, legend
from rcad.report.numbers import listed, named_values, with_interval, with_spread
from rcad.runs.files import dumps, make_folder, write_text
from rcad.runs.record import versions
from rcad.study.compare import compare
from rcad.study.compare_page import UNTRAINED, difference_tables, judged, results_table
from rcad.study.judge import QUESTION_RULE
from rcad.study.outputs import check_packages, earlier
from rcad.study.pictures import dots, forests
from rcad.study.study import HIGHER_IS_BETTER, UNITS, WORDS, passes
from rcad.train.machine import suitable_threads
from rcad.train.progress import SILENT, Portion, Progress

ACTS = {"linear": "linear theory", "moons": "moons", "digits": "digits, 100 labels", "diabetes": "diabetes"}
SHARES = {"linear": 4.0, "moons": 40.0, "digits": 42.0, "diabetes": 14.0}
"""Of the time, roughly, in percent."""
Record = dict[str, Any]
HEADER = ("data", "method", "accuracy or RMSE", "NLL", "RCAD better by", "RCAD")
OUTCOMES = {"better": "wins", "worse": "loses", "undecided": "undecided"}
ABOUT = {
    "linear": "One feature separates two classes, eight are noise, and twenty examples are too few to tell them "
    "apart. ERM puts much of its weight on the noise. RCAD continues from ERM's weights with the paper's substitute "
    "for the entropy. Test accuracies are exact.",
    "moons": "Two half moons in the first two of many dimensions, with noise on all of them. The hyperparameters are "
    "those of table T8, which chose them on other data. The controls are RCAD with a random direction of the same "
    "length, and RCAD without a step: if they do as well, the adversarial direction is not what helps.",
    "digits": "100 images, a small CNN without normalisation, every method with its defaults: `rcad compare` without "
    "tuning.",
    "diabetes": "Regression on a few hundred rows: `rcad compare` with the same tuning budget for every method.",
}
NEXT = (
    Command("rcad compare --data my.csv --target COLUMN", "Does it help on your data? Images: --data FOLDER."),
    Command("rcad train --data my.csv --target COLUMN --method rcad", "Train with it:"),
    Command("python -c 'import rcad; help(rcad.RCAD)'", "The loss in your own training loop:"),
)


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
    return _judged(results, dict.fromkeys(results, time.process_time() - begun))


def moons(settings: Settings, progress: Progress) -> Record:
    """Two moons among hundreds of noise dimensions, and the predictions of ERM and RCAD in their plane."""
    from rcad.loss.methods import METHODS
    from rcad.paper import boundaries
    from rcad.paper.moons import Cell, draw
    from rcad.paper.stacked_tuning import Candidate, Job, Protocol, fit

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
            plane = boundaries.probability(fitted.models[0], boundaries.grid(settings.moons_grid), d)
            planes[name] = [round(100 * value) for value in plane.tolist()]
    points = {"x": folds[0].x[: boundaries.SHOWN, :2].double().tolist(), "y": folds[0].y[: boundaries.SHOWN].tolist()}
    costs = {name: passes(method, settings.moons_epochs) for name, method in methods.items()}
    return {**_judged(results, seconds, costs), "planes": planes, "points": points}


def digits(settings: Settings, progress: Progress) -> Record:
    """100 images: a small CNN, label smoothing and both controls."""
    network = (f"model.width={settings.digits_width}", "model.norm=none")
    how = {"seeds": settings.digits_seeds, "epochs": settings.digits_epochs, "model": "small_cnn", "settings": network}
    record = compare("digits[:100]", device="cpu", progress=progress, **how).record  # type: ignore[arg-type]
    # The demo's epochs are fixed: how many more to take is advice for `rcad compare`.
    short = [text.partition(". ")[0] + "." if text.startswith(UNTRAINED) else text for text in record["sentences"]]
    return {**record, "sentences": short}


def diabetes(settings: Settings, progress: Progress) -> Record:
    """A table with a regression target: every method tuned alike, with enough rows to choose by."""
    how = {"seeds": settings.diabetes_seeds, "epochs": settings.diabetes_epochs, "budget": settings.diabetes_budget}
    rows = {"settings": ("data.validation=0.3",)}
    return dict(compare("diabetes", device="cpu", progress=progress, **how, **rows).record)  # type: ignore[arg-type]


def _judged(
    results: Mapping[str, Mapping[str, Sequence[float]]],
    seconds: Mapping[str, float],
    costs: Mapping[str, float] | None = None,
) -> Record:
    """Numbers by method, metric and draw as `rcad compare` judges them; draws are independent."""
    controls = ("rcad_random", "confidence_penalty")
    metrics, cells = list(results["erm"]), {}
    for name, by_metric in results.items():
        draws = zip(*by_metric.values(), strict=True)
        tests = [None if np.isnan(draw).any() else dict(zip(metrics, draw, strict=True)) for draw in draws]
        cells[name] = {
            "role": "base" if name == "erm" else "control" if name in controls else "asked",
            "seconds": seconds[name],
            "passes": None if costs is None else costs[name],
            "runs": len(tests),
            "seeds": {str(k): {"chosen": {}, "test": test} for k, test in enumerate(tests)},
        }
    return {**judged(cells, metrics, 0.0), "cost": "CPU time"}


def run_demo(out: Path, progress: Progress, *, fast: bool = False) -> tuple[Record, Path, Path]:
    """The record, written to OUT/demo.json, and OUT/index.html; an interruption leaves nothing behind."""
    check_packages(("scipy.stats", "scipy", "data"), ("sklearn.datasets", "scikit-learn", "sklearn"))
    from rcad.paper import record as records

    settings, scale = (FAST, "fast") if fast else (FULL, "full")
    page, file = out / "index.html", out / "demo.json"
    earlier([page, file], "demo", target="demo")
    if fast:
        records.refuse_to_replace_larger(file, "small")
    with _folder(out), suitable_threads(torch.empty(0, 0)):
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
    return record, file, page


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


def verdicts(results: Mapping[str, Record]) -> dict[str, str]:
    """One text per act: the answer to its question and, if RCAD is better, whether its direction is the reason."""
    texts = {name: "\n".join(answers(act)) for name, act in results.items()}
    few = "\n".join(f"{ACTS[name].capitalize()}: {texts[name]}" for name in ("digits", "diabetes"))
    return {"linear": texts["linear"], "moons": texts["moons"], "few_labels": few}


def answers(act: Record) -> list[str]:
    """The sentences that the table's last column sums up, and who has a better mean than RCAD and was not tested."""
    told, method = list(act["sentences"][: 1 + (act["question"]["outcome"] == "better")]), act["question"]["method"]
    if told == [TRIAL] or not (ahead := _ahead(act)):
        return told
    names = [f"{name} has {_spread(act, name, act['metric'])}" for name in (*ahead, method)]
    return [*told, f"Not tested: {listed(names)}."]


def _ahead(act: Record) -> dict[str, float]:
    """Whose mean is better than RCAD's, without a test between them; and what RCAD gains over them, below 0."""
    method, metric = act["question"]["method"], act["metric"]
    tested = {pair["against"] for pair in act["differences"] if pair["method"] == method}
    summaries = {name: by[metric]["summary"] for name, by in act["results"].items() if name not in tested}
    if summaries[method] is None:
        return {}
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    gains = {name: sign * (summaries[method]["mean"] - one["mean"]) for name, one in summaries.items() if one}
    return {name: gain for name, gain in gains.items() if gain < 0}


def table(record: Record, *, judged: bool = False) -> Table:
    """A line for each method of each act, judged by the act's question.

    Args:
        judged: those alone that RCAD was compared with, which fits 80 columns.
    """
    rows = []
    for name, act in record["results"].items():
        pairs = [pair for pair in act["differences"] if pair["metric"] == act["metric"]]
        by_rival = {pair["against"]: pair for pair in pairs if pair["method"] == act["question"]["method"]}
        for method in act["methods"]:
            accuracy, rmse, nll = (_spread(act, method, metric) for metric in ("accuracy", "rmse", "nll"))
            gain = outcome = ""
            if (pair := by_rival.get(method)) is not None:
                gain = with_interval(pair["mean"], pair["low"], pair["high"])
                outcome = OUTCOMES[pair["outcome"]] if record["scale"] == "full" else "a trial"
            elif record["scale"] == "full" and (ahead := _ahead(act).get(method)):
                gain = with_interval(ahead, None, None)
            elif judged:
                continue
            rows.append([ACTS[name], method, accuracy or rmse, nll, gain, outcome])
    units: dict[str, list[str]] = {}
    for name, act in record["results"].items():
        unit = f"{UNITS[act['metric']].strip()} of {WORDS[act['metric']]}"
        units.setdefault(unit, []).append(ACTS[name].partition(",")[0])
    words = "; ".join(f"{unit} on {listed(names)}" for unit, names in units.items())
    caption = (
        f"RCAD better by: {words}. Positive is better. Verdicts are corrected for the number of comparisons (Holm), "
        "the 95% intervals are not. A gain without one was not tested."
    )
    return Table(HEADER, rows, caption, spare=["NLL", "accuracy or RMSE"])


def _spread(act: Record, method: str, metric: str) -> str:
    summary = act["results"][method].get(metric, {}).get("summary")
    return "" if summary is None else with_spread(summary["mean"], summary["sd"]) + "%" * (metric == "accuracy")


def document(record: Record) -> Document:
    """The page: the answers, then an act after the other, then what to do next."""
    is_trial, results = record["scale"] != "full", record["results"]
    lead = (
        "RCAD rewards a model for being unsure at a point one large step up the loss gradient. Four experiments on "
        "this machine: where it should help, whether its direction is what helps, and where it does not."
    )
    short = "\n".join(f"{ACTS[name].capitalize()}: {answers(act)[0]}" for name, act in results.items())
    extra: dict[str, list[Part]] = {"linear": [_histogram(results["linear"])], "moons": [_planes(results["moons"])]}
    command = "rcad demo --fast" if is_trial else "rcad demo"
    return Document(
        "Does RCAD help?",
        f"{lead} {TRIAL}" if is_trial else lead,
        [
            Section("In short", (), [table(record)], TRIAL if is_trial else short),
            *(_act(name, act, extra.get(name, []), judged=not is_trial) for name, act in results.items()),
            Section("How it was judged", [f"{QUESTION_RULE}. The rule is part of the program; no result changes it."]),
            Section("What to do next", (), NEXT),
        ],
        {
            "Made by": f"{command}, in {record['seconds']:.0f} s",
            "Versions": named_values(record["versions"]),
            "Numbers": "demo.json",
        },
    )


def _act(name: str, act: Record, extra: list[Part], *, judged: bool) -> Section:
    drawn = [dots(act, metric) for metric in act["metrics"][:2]]
    tables = [results_table(act), *(difference_tables(act) if judged else [])]
    parts = [*extra, *tables, *drawn, *forests(act, 2)]
    number = list(ACTS).index(name) + 1
    return Section(f"{number}: {ACTS[name]}", [ABOUT[name]], parts, "\n".join(act["sentences"]))


def _histogram(act: Record) -> Figure:
    figure, ax = axes(4.6, 3.2)
    for (name, result), colour in zip(act["results"].items(), (BLACK, BLUE, GREEN), strict=False):
        ax.hist(list(result["accuracy"]["values"].values()), bins=25, histtype="step", lw=1.8, color=colour, label=name)
    ax.set(xlabel="test accuracy, % (exact)", ylabel="draws")
    legend(figure, ax.get_legend_handles_labels()[0], 3)
    return Figure(figure, "Test accuracy over the draws.", "Histograms of test accuracy by classifier.")


def _planes(act: Record) -> Figure:
    """The plane of the true features under ERM and under RCAD, in the first draw."""
    from rcad.paper.report.pictures import draw_plane

    figure, panels = grid(7.4, 2.9, 1, 2)
    for ax, (name, flat) in zip(panels.flat, act["planes"].items(), strict=True):
        across = next(k for k in range(2, len(flat) + 1) if k * max(2, k * 2 // 3) == len(flat))
        draw_plane(ax, flat, across, act["points"], line=1.8, dot=9)
        ax.set_title(name, fontsize=9.5)
    caption = (
        "The first draw: colour is the probability of a class where all noise dimensions are 0; the line: the boundary."
    )
    return Figure(figure, caption, "The plane of the true features coloured by the predictions of ERM and RCAD.", True)
