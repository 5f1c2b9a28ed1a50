"""Many runs of one shape trained together: the fast twin of `loop.Trainer` for perceptrons, equal to it by test.

R replicas of one perceptron train at once, each with its own data or split, batches, seed, learning rate, weight
decay, and numbers of its method. A replica's result depends on its own inputs alone: it draws its weights, batches
and noise from the streams that the single run with its seed would use, and no sum runs over replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import torch

from rcad.errors import InputError, one_of, whole
from rcad.loss.method import Method
from rcad.runs.config import OptimConfig
from rcad.stacked.group import Group
from rcad.stacked.method import StackedMethod
from rcad.stacked.model import Layout, StackedMLP
from rcad.stacked.optim import StackedOptimizer
from rcad.stacked.result import StackedResult
from rcad.stacked.task import StackedProblem, measure_stacked
from rcad.train.task import check_cap

CACHE = 2**25
"""Bytes of parameters and activations that are worked on at a time: about what a last-level cache holds."""

Progress = Callable[[int, int], None]
T = TypeVar("T")


def train_stacked(
    problem: StackedProblem,
    methods: Method | Sequence[Method],
    *,
    seeds: Sequence[int],
    optim: OptimConfig | Sequence[OptimConfig],
    epochs: int,
    batch_size: int,
    hidden: Sequence[int] = (50,),
    selection: Literal["last", "best"] = "last",
    report: Sequence[int] | None = None,
    snapshots: Sequence[int] = (),
    decoupled: bool = True,
    initial: StackedMLP | None = None,
    group: int | None = None,
    progress: Progress | None = None,
    may_diverge: bool = False,
) -> StackedResult:
    """Trains one replica per seed.

    Args:
        problem: the data, shared or per replica.
        methods: one for all, or one per replica; these may differ in numbers only (`StackedMethod.of`).
        seeds: of weights, batches and noise, one per replica.
        optim: one for all, or one per replica; these may differ in lr, weight_decay and clip.
        epochs, batch_size: the last batch of an epoch may be smaller.
        hidden: units of the hidden layers.
        selection: evaluate the last weights, or those that were best on the held-out set at a reported epoch: by
            accuracy, then by likelihood, the earlier of equals.
        report: epochs (from 1) whose numbers are kept, ascending; every epoch by default.
        snapshots: epochs whose weights are kept.
        decoupled: weight decay of Adam acts on the weights (AdamW); False adds it to the gradient (Adam).
        initial: the weights to begin with instead of those of the seeds.
        group: how many replicas are worked on at a time, which changes the speed alone.
        progress: called with (done, total) replica-epochs after each epoch.
        may_diverge: train even what must diverge (see `check_cap`), to show what it does.
    """
    whole("epochs", epochs, minimum=1)
    whole("batch_size", batch_size, minimum=1)
    one_of("selection", selection, ("last", "best"))
    reported = _epochs("report", range(1, epochs + 1) if report is None else report, epochs)
    if selection == "best" and (problem.val is None or not reported):
        raise InputError("expected held-out examples and reported epochs to select the best, but got none of them")
    method_list = _one_each("methods", [methods] * len(seeds) if isinstance(methods, Method) else methods, seeds)
    optim_list = _one_each("optim", [optim] * len(seeds) if isinstance(optim, OptimConfig) else optim, seeds)
    method = _stacked(method_list, problem, may_diverge)
    model = _begun(problem, seeds, hidden, initial)
    size = _group_size(model, batch_size) if group is None else group
    whole("group", size, minimum=1)

    result = StackedResult.empty(model, reported, _epochs("snapshots", snapshots, epochs))
    done = 0
    for index in torch.split(torch.arange(len(seeds), device=model.flat.device), size):
        part, chosen = model.take(index), index.tolist()
        optims, own_seeds = [optim_list[i] for i in chosen], [int(seeds[i]) for i in chosen]
        optimizer = StackedOptimizer(optims, part.layout, part.flat, epochs, decoupled=decoupled)
        one = Group(index, own_seeds, problem.take(index), part, method.take(index), optimizer, result, selection)
        for _ in one.epochs(epochs, batch_size):
            done += len(index)
            if progress is not None:
                progress(done, len(seeds) * epochs)
    _test(problem, result, size, epochs)
    return result


def _epochs(name: str, chosen: Sequence[int], epochs: int) -> tuple[int, ...]:
    values = tuple(chosen)
    if list(values) != sorted(set(values) & set(range(1, epochs + 1))):
        raise InputError(f"expected {name} to hold ascending epochs from 1 to {epochs}, but got {list(values)}")
    return values


def _one_each(name: str, values: Sequence[T], seeds: Sequence[int]) -> list[T]:
    if len(values) != len(seeds) or not len(seeds):
        raise InputError(f"expected one seed and one of {name} per replica, but got {len(seeds)} and {len(values)}")
    return list(values)


def _stacked(methods: Sequence[Method], problem: StackedProblem, may_diverge: bool) -> StackedMethod:
    """The replicas' methods as one, if they suit each other and the data."""
    for method in () if may_diverge else set(methods):
        check_cap(method)
    problem.check_replicas(len(methods))
    stacked = StackedMethod.of(methods, problem.likelihood, problem.train.x)
    stacked.check_task(problem.classes)
    return stacked


def _begun(
    problem: StackedProblem, seeds: Sequence[int], hidden: Sequence[int], initial: StackedMLP | None
) -> StackedMLP:
    """The weights to begin with."""
    x = problem.train.x
    layout = Layout(len(seeds), (x.shape[2], *hidden, problem.outputs))
    if initial is None:
        return StackedMLP.initial(seeds, layout.sizes, device=x.device, dtype=x.dtype)
    if initial.layout != layout or initial.flat.dtype != x.dtype:
        raise InputError(
            f"expected initial weights of {layout} in {x.dtype}, but got {initial.layout} in {initial.flat.dtype}"
        )
    return initial


def _group_size(model: StackedMLP, batch_size: int) -> int:
    """As many replicas as keep a step inside the cache; all of them on a GPU."""
    if model.flat.device.type != "cpu":
        return model.replicas
    numbers = 5 * model.layout.parameters + 3 * batch_size * sum(model.layout.sizes)
    return max(1, CACHE // (numbers * model.flat.element_size()))


def _test(problem: StackedProblem, result: StackedResult, size: int, epochs: int) -> None:
    """The numbers of the selected weights on the test set; a replica whose numbers are not finite is marked."""
    left = (~result.diverged).nonzero()[:, 0]
    if problem.test is None or not len(left):
        return
    for index in torch.split(left, size):
        part = problem.take(index)
        assert part.test is not None
        values = measure_stacked(result.model.take(index), part.test, part.target_scale)
        result.note_metrics(index, values)
        finite = torch.stack(list(values.values())).isfinite().all(0)
        result.mark(index[~finite], epochs)
