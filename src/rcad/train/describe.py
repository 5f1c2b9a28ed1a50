"""A run in words: what was read, what is trained, with which values, whether alpha is too small, how long it takes."""

from __future__ import annotations

import math
import time

import torch
from torch import nn

from rcad.data.dataset import Dataset
from rcad.errors import InputError, MissingExtraError
from rcad.loss.growth import as_unit_float
from rcad.loss.method_rows import label, method_rows, without_defaults
from rcad.loss.methods import Method, method_defaults
from rcad.loss.suggest_alpha import FAR_BELOW, STEPS, measured
from rcad.runs.config import RunConfig
from rcad.runs.words import duration, plural
from rcad.train.machine import device_words, suitable_threads
from rcad.train.place import Place
from rcad.train.task import Problem, Reader, method_of, model_of, prepare

EXAMPLES = 256
"""Examples that say whether alpha is far too small."""
TRIED = 2
"""Steps that are taken to see how long one takes; the first is not counted."""


def data_words(dataset: Dataset, problem: Problem) -> str:
    """What was read, in one line."""
    kind = f"{len(dataset.classes)} classes" if problem.classes else "a regression target"
    sizes = ", ".join(
        f"{len(part[1]):,} {name}"
        for name, part in (("training", problem.train), ("validation", problem.val), ("test", problem.test))
        if len(part[1])
    )
    shape, columns = tuple(problem.train[0].shape[1:]), len(dataset.columns)
    inputs = "x".join(map(str, shape)) + (" images" if dataset.is_image else " inputs")
    if 0 < columns < shape[0] and not dataset.is_image:
        inputs += f" ({columns} features, {shape[0] - columns} for missing values)"
    return f"{dataset.name}: {inputs}, {kind}; {sizes} examples"


def network_words(model: nn.Module) -> str:
    """The network and its size."""
    return f"{getattr(model, 'title', type(model).__name__)}, {sum(p.numel() for p in model.parameters()):,} parameters"


def run_words(model: nn.Module, method: Method, device: torch.device, config: RunConfig, examples: int) -> str:
    """A run in one line, with the numbers that "auto" stands for."""
    rows = label(without_defaults(method_rows(method.recipe), method_defaults())) or method.name
    steps = math.ceil(examples / config.train.batch_size)
    words = f"{plural(config.train.epochs, 'epoch')} of {plural(steps, 'step')}"
    start = f", weights: {config.model.weights}" if config.model.weights else ""
    return f"{network_words(model)}{start}; {rows}; {device_words(device)}; {words}"


def low_alpha(method: Method, problem: Problem) -> list[str]:
    """A sentence where alpha is far below the distance between classes, as a criterion warns in a loop."""
    x, y = problem.train
    moves = [term.where for term in method.terms if isinstance(term.where, STEPS) and term.where.norm == "l2"]
    if not problem.classes or not any(move.distance for move in moves):
        return []
    rows = torch.arange(min(EXAMPLES, len(y)))  # images that stay on disk are asked for by number
    half = measured(as_unit_float(x[rows]), y[rows], problem.likelihood)
    low = [move.distance for move in moves if half is not None and 0 < move.distance < FAR_BELOW * half]
    return [
        f"alpha={alpha:g} is far below {half:.3g}, half the median distance between classes; so short a step tends to "
        "make models worse. alpha=auto takes the measured one"
        for alpha in low
    ]


def plan_of(config: RunConfig, place: Place) -> str:
    """`run_words` before anything is trained, with an estimate of the time; or why the run cannot begin."""
    device, _ = place.resolve()
    try:
        problem = prepare(config, Reader(place)(config.data), device)
        method, model = method_of(config, problem), model_of(config, problem).to(device)
    except (InputError, MissingExtraError) as error:
        return f"this run cannot begin here: {error}"
    (x, y), size = problem.train, config.train.batch_size
    criterion, took = method.criterion(), 0.0
    with torch.random.fork_rng(), suitable_threads(x):
        for _ in range(TRIED):
            start = time.perf_counter()
            rows = torch.arange(min(size, len(y)))
            criterion.backward(model, as_unit_float(x[rows]), y[rows])
            took = time.perf_counter() - start
    total = took * math.ceil(len(y) / size) * config.train.epochs
    return f"{run_words(model, method, device, config, len(y))}, about {duration(total)} without evaluation"
