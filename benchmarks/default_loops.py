"""The front page's loop with other networks and optimizers: where is RCAD with its defaults worse than ERM, and why?

A part of `default_values.py`, which runs it and has its page. What is varied is judged by held-out examples; test
examples, which are others, judge the defaults.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

import rcad
from rcad.data.dataset import subset
from rcad.data.registry import load
from rcad.data.small_sets import load_embedded
from rcad.loss.growth import as_unit_float
from rcad.loss.terms import WEIGHT

NETWORKS = ("MLP", "CNN", "CNN, BatchNorm", "CNN, GroupNorm")
OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
    "Adam": partial(torch.optim.Adam, lr=1e-3),
}
LAMS, SHARES = (0.02, 0.05, 0.1, 0.2, 0.5), (0.25, 0.5, 1.0, 2.0)
CROSS = [(1.0, lam) for lam in LAMS] + [(share, WEIGHT) for share in SHARES if share != 1]
"""Shares of the measured alpha, and lam: one is varied, the other is the default."""
WORST = "digits; CNN, BatchNorm; Adam"
"""Where a reader found the default worse than ERM."""
LOOPS: Mapping[str, Mapping[str, Any]] = {
    "100 epochs, batches of 25, lr 0.001": {},
    "25 epochs": {"epochs": 25},
    "200 epochs": {"epochs": 200},
    "400 epochs": {"epochs": 400},
    "batches of 10": {"batch": 10},
    "batches of 50": {"batch": 50},
    "lr 0.0003": {"lr": 3e-4},
    "lr 0.003": {"lr": 3e-3},
    "lr 0.01": {"lr": 1e-2},
}
"""What is changed of WORST's loop, one thing at a time."""
HELD, TEST = range(5), range(100, 110)
"""Seeds, each with a training set of its own."""


class Split(NamedTuple):
    """A training set and the examples that judge."""

    x: Tensor
    y: Tensor
    judge_x: Tensor
    judge_y: Tensor


Draw = Callable[[bool, int], Split]
"""A split by whether test examples judge, and by seed."""
Make = Callable[[Sequence[Split]], Any]
"""The loss for these training sets."""


def digits(test: bool, seed: int) -> Split:
    """100 labels of one half of the digits, judged by its rest; the halves are those of `default_values.digits`."""
    data = load_embedded("digits").train
    rows = np.array_split(np.random.default_rng(0).permutation(len(data.y)), 2)[int(test)]
    chosen = rows[subset(data.y[rows], 100, seed=seed)]
    rest = np.setdiff1d(rows, chosen)
    x, y = as_unit_float(torch.from_numpy(data.x)), torch.from_numpy(data.y)
    return Split(x[chosen], y[chosen], x[rest], y[rest])


def cifar(folder: Path) -> Draw:
    """20 grey images, 16 x 16, of each of CIFAR-100's first 10 classes, judged by 500 others or by its test set."""

    def grey(part: Any) -> tuple[Tensor, Tensor]:
        known = part.y < 10
        x = avg_pool2d(as_unit_float(torch.from_numpy(part.x[known])).mean(1, keepdim=True), 2)
        return x, torch.from_numpy(part.y[known]).long()

    data = load("cifar100", data_dir=folder)
    (x, y), judge = grey(data.train), grey(data.test)

    def draw(test: bool, seed: int) -> Split:
        rows = subset(y.numpy(), 700, seed=seed)
        chosen = rows[subset(y.numpy()[rows], 200, seed=seed)]
        rest = np.setdiff1d(rows, chosen)
        return Split(x[chosen], y[chosen], *(judge if test else (x[rest], y[rest])))

    return draw


class Linear(nn.Module):
    """One linear layer for each seed: (B, seeds * inputs) -> (B, seeds * outputs)."""

    def __init__(self, seeds: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(seeds, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(seeds, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(x), len(self.weight), -1).transpose(0, 1)
        return torch.baddbmm(self.bias, rows, self.weight).transpose(0, 1).flatten(1)


class Networks(nn.Module):
    """Networks of some seeds side by side, which share no weight: (seeds * B, 1, side, side) -> (seeds * B, 10).

    Five of them trained together take half the time of five trained alone.
    """

    def __init__(self, kind: str, side: int, seeds: int = 1, width: int = 16) -> None:
        super().__init__()
        self.seeds = seeds
        norms: dict[str, Callable[[int], nn.Module]] = {
            "BatchNorm": lambda outputs: nn.BatchNorm2d(seeds * outputs),
            "GroupNorm": lambda outputs: nn.GroupNorm(4 * seeds, seeds * outputs),
        }
        norm = norms.get(kind.rpartition(", ")[2], lambda _: nn.Identity())
        layers: list[nn.Module]
        if kind == "MLP":
            layers = [nn.Flatten(), Linear(seeds, side**2, 128), nn.ReLU(), Linear(seeds, 128, 128), nn.ReLU()]
            features = 128
        else:
            layers, features = [], 2 * width * (side // 4) ** 2
            for inputs, outputs in ((1, width), (width, 2 * width)):
                conv = nn.Conv2d(seeds * inputs, seeds * outputs, 3, padding=1, groups=seeds)
                layers += [conv, norm(outputs), nn.ReLU(), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.Flatten(), Linear(seeds, features, 10))

    def forward(self, x: Tensor) -> Tensor:
        side_by_side = x.reshape(self.seeds, -1, *x.shape[2:]).transpose(0, 1)
        output: Tensor = self.layers(side_by_side)
        return output.reshape(len(output), self.seeds, -1).transpose(0, 1).flatten(0, 1)


def train(
    splits: Sequence[Split],
    *,
    kind: str,
    optimizer: str,
    seed: int,
    make: Make | None,
    epochs: int,
    batch: int,
    **options: Any,
) -> dict[str, list[float]]:
    """A network for each split by the front page's loop, ERM where `make` is None; how they do at the end."""
    torch.manual_seed(seed)
    count = len(splits)
    model = Networks(kind, splits[0].x.shape[-1], count)
    update = OPTIMIZERS[optimizer](model.parameters(), **options)
    criterion = rcad.Criterion() if make is None else make(splits)
    x, y, judge_x, judge_y = (torch.stack(parts) for parts in zip(*splits, strict=True))
    for _ in range(epochs):
        for rows in torch.randperm(x.shape[1]).split(batch):
            update.zero_grad()
            # `share` makes the mean over all networks' examples each network's own.
            criterion.backward(model, x[:, rows].flatten(0, 1), y[:, rows].flatten(), share=count)
            update.step()
    model.eval()
    with torch.no_grad():
        output = model(judge_x.flatten(0, 1)).double().unflatten(0, (count, -1))
    confidence, predicted = output.softmax(2).max(2)
    return {
        "accuracy": (100 * (predicted == judge_y).double().mean(1)).tolist(),
        "nll": cross_entropy(output.transpose(1, 2), judge_y, reduction="none").mean(1).tolist(),
        "confidence": (100 * confidence.mean(1)).tolist(),
    }


def measured(splits: Sequence[Split]) -> float:
    """One alpha for networks that are trained together: the median of their training sets' own."""
    return float(np.median([rcad.suggest_alpha(one.x, one.y, sample=None) for one in splits]))


def at(share: float, lam: float) -> Make:
    return lambda splits: rcad.RCAD(alpha=share * measured(splits), lam=lam)


def capped(share: float) -> Make:
    """The entropy counts up to a share of log 10 alone."""

    def measure(likelihood: rcad.Likelihood, output: Tensor, target: Tensor) -> Tensor:
        return -likelihood.entropy(output).clamp(max=share * math.log(10))

    def make(splits: Sequence[Split]) -> rcad.Criterion:
        where = rcad.GradientStep(measured(splits))
        return rcad.Criterion(terms=[rcad.Term("nll"), rcad.Term("rcad", measure, WEIGHT, where)])

    return make


def uniform(lam: float) -> Make:
    """The cross-entropy of the uniform distribution in place of the entropy."""
    return lambda splits: rcad.RCAD(measured(splits), lam, measure="uniform_cross_entropy")


MEASURES: Mapping[str, Make] = {
    **{f"entropy up to {share:g} log K, lam {WEIGHT:g}": capped(share) for share in (0.25, 0.5)},
    **{f"uniform, lam {lam:g}": uniform(lam) for lam in (0.005, 0.01, 0.02)},
}
"""Other rewards at x' than the entropy."""
SNIPPET: Mapping[str, Make | None] = {
    "ERM": None,
    "RCAD": lambda _: rcad.RCAD(),
    "random direction": lambda _: rcad.methods.rcad_random().criterion(),
    "uniform": lambda _: rcad.RCAD(lam=0.01, measure="uniform_cross_entropy"),
}
"""The front page's line, its control, and the other reward that held-out examples chose; alpha is measured."""


def study(folder: Path, known: dict[str, Any], keep: Callable[[], object]) -> None:
    """Adds to `known` what is not there yet: by part and "data; network; optimizer", each method's metrics by seed."""
    logging.getLogger("rcad").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*alpha.*")
    sets: dict[str, tuple[Draw, int, int]] = {"digits": (digits, 100, 25), "CIFAR-100": (cifar(folder), 50, 25)}

    def cell(part: str, name: str, methods: Mapping[str, Make | None], **changed: Any) -> None:
        data, kind, optimizer = name.split("; ")[:3]
        draw, epochs, batch = sets[data]
        done = known.setdefault(part, {}).setdefault(name, {})
        seeds = TEST if part == "test" else HELD
        splits = [draw(part == "test", seed) for seed in seeds]
        options = {"epochs": epochs, "batch": batch, **changed}
        for method in (method for method in methods if method not in done):
            fit = partial(train, kind=kind, optimizer=optimizer, make=methods[method], **options)
            if part == "test":
                runs = [fit([one], seed=seed) for one, seed in zip(splits, seeds, strict=True)]
                done[method] = {metric: [value for run in runs for value in run[metric]] for metric in runs[0]}
            else:
                done[method] = fit(splits, seed=0)
        keep()

    names = ["; ".join(one) for one in product(sets, NETWORKS, OPTIMIZERS)]
    for name in names:
        grid = CROSS if name.startswith("digits") else CROSS[: len(LAMS)]
        grid = list(product(SHARES, LAMS)) if name == WORST else grid
        cell("held", name, {"ERM": None, **{f"{share:g}, {lam:g}": at(share, lam) for share, lam in grid}})
        cell("test", name, SNIPPET)
    for name in names[: len(names) // 2]:
        cell("measures", name, MEASURES)
    for words, changed in LOOPS.items():
        cell("loops", f"{WORST}; {words}", {"ERM": None, "RCAD": at(1.0, WEIGHT)}, **changed)
