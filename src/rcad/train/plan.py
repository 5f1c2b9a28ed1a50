"""What a run will do, in one line: network, method with its numbers, device, how many steps and about how long."""

from __future__ import annotations

import math
import time

import torch
from torch import nn

from rcad.errors import InputError, MissingExtraError
from rcad.loss.growth import as_unit_float
from rcad.loss.method import Method
from rcad.loss.method_rows import label, method_rows, without_defaults
from rcad.runs.config import RunConfig
from rcad.runs.words import duration, plural
from rcad.train.machine import device_words, suitable_threads
from rcad.train.place import Place
from rcad.train.task import Reader, method_of, model_of, prepare

TRIED = 2
"""Steps that are taken to see how long one takes; the first is not counted."""


def network_words(model: nn.Module) -> str:
    """The network and its size."""
    return f"{type(model).__name__}, {sum(p.numel() for p in model.parameters()):,} parameters"


def described(model: nn.Module, method: Method, device: torch.device, config: RunConfig, examples: int) -> str:
    """A run in one line, with the numbers that "auto" stands for."""
    from rcad.train.run import method_defaults

    rows = label(without_defaults(method_rows(method.recipe), method_defaults())) or method.name
    steps = math.ceil(examples / config.train.batch_size)
    words = f"{plural(config.train.epochs, 'epoch')} of {plural(steps, 'step')}"
    return f"{network_words(model)}; {rows}; {device_words(device)}; {words}"


def plan_of(config: RunConfig, place: Place) -> str | None:
    """The same before anything is trained, and about how long it will take; None where the data are not there."""
    device, _ = place.resolve()
    try:
        problem = prepare(config, Reader(place)(config.data), device)
        method, model = method_of(config, problem), model_of(config, problem).to(device)
    except (InputError, MissingExtraError):
        return None  # training says what is wrong
    (x, y), size = problem.train, config.train.batch_size
    criterion, took = method.criterion(), 0.0
    with torch.random.fork_rng(), suitable_threads(x):
        for _ in range(TRIED):
            start = time.perf_counter()
            rows = torch.arange(min(size, len(y)))
            criterion.backward(model, as_unit_float(x[rows]), y[rows])
            took = time.perf_counter() - start
    total = took * math.ceil(len(y) / size) * config.train.epochs
    return f"{described(model, method, device, config, len(y))}, about {duration(total)} without evaluation"
