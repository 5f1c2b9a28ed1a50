"""Many runs of one shape trained together: the fast twin of `loop.Trainer` for perceptrons, equal to it by test.

R replicas of one perceptron train at once, each with its own data or split, batches, seed, learning rate, weight
decay, and numbers of its method. A replica's result depends on its own inputs alone: it draws its weights, batches
and noise from the streams that the single run with its seed would use, and no sum runs over replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

from rcad.composition import Method
from rcad.errors import InputError
from rcad.experiments.config import OptimConfig
from rcad.train.stacked_group import Group
from rcad.train.stacked_method import StackedMethod
from rcad.train.stacked_model import Layout, StackedMLP
from rcad.train.stacked_optim import StackedOptimizer
from rcad.train.stacked_problem import StackedProblem, measure_stacked
from rcad.train.stacked_result import StackedResult
from rcad.validate import one_of, whole

CACHE = 2**25
"""Bytes of parameters and activations that are worked on at a time: about what a last-level cache holds."""

Progress = Callable[[int, int], None]


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
    """
    count = len(seeds)
    method_list = [methods] * count if isinstance(methods, Method) else list(methods)
    optim_list = [optim] * count if isinstance(optim, OptimConfig) else list(optim)
    for name, values in (("methods", method_list), ("optim", optim_list)):
        if len(values) != count or not count:
            raise InputError(f"expected one seed and one of {name} per replica, but got {count} and {len(values)}")
    whole("epochs", epochs, minimum=1)
    whole("batch_size", batch_size, minimum=1)
    one_of("selection", selection, ("last", "best"))
    if selection == "best" and problem.val is None:
        raise InputError("expected held-out examples to select the best epoch, but got none; use selection='last'")
    problem.check_replicas(count)
    x = problem.train.x
    sizes = (x.shape[2], *hidden, problem.outputs)
    model = initial or StackedMLP.initial(seeds, sizes, device=x.device, dtype=x.dtype)
    if model.layout != Layout(count, sizes):
        raise InputError(f"expected initial weights of {Layout(count, sizes)}, but got {model.layout}")
    method = StackedMethod.of(method_list, problem.likelihood, x)
    result = StackedResult.empty(model, _reported(report, epochs))
    result.snapshots = {epoch: model.copy() for epoch in snapshots}
    done = 0

    def advance(replicas: int) -> None:
        nonlocal done
        done += replicas
        if progress is not None:
            progress(done, count * epochs)

    everyone = torch.arange(count, device=x.device)
    for index in torch.split(everyone, group or _group_size(model, batch_size)):
        part = model.take(index)
        optimizer = StackedOptimizer(
            [optim_list[i] for i in index.tolist()], part.layout, part.flat, epochs, decoupled=decoupled
        )
        one = Group(index, seeds, problem.take(index), part, method.take(index), optimizer, result, selection)
        for epoch in range(epochs):
            one.train_epoch(epoch, batch_size)
            one.end_epoch(epoch, last=epoch + 1 == epochs)
            advance(len(index))
    _test(problem, result, group or _group_size(model, batch_size))
    return result


def _reported(report: Sequence[int] | None, epochs: int) -> tuple[int, ...]:
    chosen = tuple(range(1, epochs + 1)) if report is None else tuple(report)
    if not chosen or list(chosen) != sorted(set(chosen)) or not 1 <= chosen[0] <= chosen[-1] <= epochs:
        raise InputError(f"expected report to hold ascending epochs from 1 to {epochs}, but got {list(chosen)}")
    return chosen


def _group_size(model: StackedMLP, batch_size: int) -> int:
    """As many replicas as keep a step inside the caches of a core; all of them on a GPU."""
    if model.flat.device.type != "cpu":
        return model.replicas
    numbers = 5 * model.layout.parameters + 3 * batch_size * sum(model.layout.sizes)
    return max(1, CACHE // (numbers * model.flat.element_size()))


def _test(problem: StackedProblem, result: StackedResult, group: int) -> None:
    """The numbers of the selected weights on the test set; a replica whose numbers are not finite is marked."""
    if problem.test is None:
        return
    everyone = torch.arange(result.model.replicas, device=result.model.flat.device)
    for index in torch.split(everyone[~result.diverged], group):
        part = problem.take(index)
        assert part.test is not None
        values = measure_stacked(result.model.take(index), part.test, part.target_scale)
        result.note_metrics(index, values)
        wrong = ~torch.stack(list(values.values())).isfinite().all(0)
        result.diverged_at[index[wrong]] = result.epochs[-1]
