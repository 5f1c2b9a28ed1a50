"""Many runs of one shape trained together: the fast twin of `loop.Trainer` for perceptrons, equal to it by test.

R replicas of one perceptron train at once, each with its own data or split, batches, seed, learning rate, weight
decay, and numbers of its method. A replica's result depends on its own inputs alone: it draws its weights, batches
and noise from the streams that the single run with its seed would use, and no sum runs over replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.methods import Method
from rcad.loss.predictions import label_scores, value_scores
from rcad.runs.config import ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.stacked.method import StackedMethod, StackedStep, Step, grow
from rcad.stacked.model import Passes, StackedMLP, StackedOptimizer
from rcad.train.task import Problem, check_cap, derived, method_of

NUMBERS = 2**22  # activations per layer held at a time while evaluating


class Examples(NamedTuple):
    """Examples of every replica, or one set that all share."""

    x: Tensor  # features (R, n, D), or (1, n, D) shared
    y: Tensor  # labels int64 or scaled targets, (R, n), or (1, n) shared; (R, n, T) of several targets each

    @property
    def shared(self) -> bool:
        return len(self.x) == 1

    @property
    def length(self) -> int:
        return self.x.shape[1]

    def stacked(self) -> Examples:
        """With a dimension for the replicas, where all share one set."""
        return self if self.x.ndim == 3 else Examples(self.x[None], self.y[None])

    def take(self, index: Tensor) -> Examples:
        return self if self.shared else Examples(self.x[index], self.y[index])

    def expanded(self, replicas: int) -> Examples:
        """With one entry per replica, without a copy."""
        return Examples(self.x.expand(replicas, -1, -1), self.y.expand(replicas, -1))


@dataclass(frozen=True, eq=False)
class StackedProblem:
    """What the replicas learn from. Sets may be shared, (n, D), or one per replica, (R, n, D)."""

    train: Examples
    classes: int  # K; 0 for regression
    val: Examples | None = None
    target_scale: Tensor | None = None  # the deviation by which regression targets were divided, per replica (R,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "train", self.train.stacked())
        if self.val is not None:
            object.__setattr__(self, "val", self.val.stacked())
        if self.classes == 0 and self.target_scale is None:
            object.__setattr__(self, "target_scale", self.train.x.new_ones(1, dtype=torch.float64))

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> StackedProblem:
        """The problems of single runs, one per replica; their sets must be equally long."""

        def stacked(pairs: Iterable[tuple[Tensor, Tensor]]) -> Examples:
            return Examples(*map(torch.stack, zip(*pairs, strict=True)))

        train, val = stacked(problem.train for problem in problems), stacked(problem.val for problem in problems)
        scales = [problem.target_scale for problem in problems if problem.target_scale is not None]
        scale = torch.tensor(scales, dtype=torch.float64, device=train.x.device) if scales else None
        return cls(train, problems[0].classes, val if val.length else None, scale)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of methods that set none."""
        return Categorical() if self.classes else Gaussian()

    @property
    def outputs(self) -> int:
        """Units of the last layer: K logits, or a mean and a log-variance."""
        return self.classes or 2

    def take(self, index: Tensor) -> StackedProblem:
        """The problem of some of the replicas; no copy of what is shared."""
        scale, val = self.target_scale, None if self.val is None else self.val.take(index)
        scale = scale if scale is None or len(scale) == 1 else scale[index]
        return replace(self, train=self.train.take(index), val=val, target_scale=scale)


@torch.no_grad()
def measure_stacked(model: StackedMLP, examples: Examples, target_scale: Tensor | None) -> dict[str, Tensor]:
    """The numbers of `measure` for each replica, float64 (R,).

    Args:
        target_scale: None for classes: accuracy (percent), nll, brier. Else (R,) or (1,), the unit in which a
            regression was trained: nll and rmse in the target's own unit.
    """
    everyone = examples.expanded(model.replicas)
    size = max(1, NUMBERS // (model.replicas * max(model.layout.sizes[1:])))
    scores = label_scores if target_scale is None else value_scores
    sums: dict[str, Tensor] = {}
    for x, y in zip(*(torch.split(values, size, dim=1) for values in everyone), strict=True):
        output = model(x).flatten(0, 1)
        for name, rows in scores(output, y.reshape(-1)).items():
            part = rows.view(model.replicas, -1).sum(1)
            sums[name] = part if name not in sums else sums[name] + part
    means = {name: total / examples.length for name, total in sums.items()}
    if target_scale is None:
        return {"accuracy": 100 * means["hit"], "nll": means["nll"], "brier": means["brier"]}
    # The density of y in its own unit is that of the scaled target divided by the scale.
    return {"nll": means["nll"] + target_scale.log(), "rmse": means["square"].sqrt() * target_scale}


@dataclass(eq=False)
class StackedResult:
    """Filled while the replicas train.

    Curves, by name (loss, accuracy, val_nll, ...), are float64 (R, E); they and the snapshots of the epochs given to
    `train_stacked` are NaN where a replica had stopped.
    """

    epochs: int  # how many are reported, from the first; 0 for none
    model: StackedMLP  # the weights of the selected epoch; of a diverged replica, those it ended with
    diverged_at: Tensor  # the epoch after which a replica's loss was no longer finite, (R,); 0 for none
    best_epoch: Tensor  # the selected epoch, (R,); 0 where none was selected
    curves: dict[str, Tensor] = field(default_factory=dict)
    snapshots: dict[int, StackedMLP] = field(default_factory=dict)

    @classmethod
    def empty(cls, model: StackedMLP, epochs: int, snapshots: Sequence[int] = ()) -> StackedResult:
        nothing = torch.zeros(model.replicas, dtype=torch.int64, device=model.flat.device)
        blanks = {epoch: StackedMLP(model.layout, torch.full_like(model.flat, float("nan"))) for epoch in snapshots}
        first = StackedMLP(model.layout, model.flat.clone())
        return cls(epochs, first, nothing, nothing.clone(), snapshots=blanks)

    @property
    def diverged(self) -> Tensor:
        """Which replicas stopped before the end, bool (R,)."""
        return self.diverged_at > 0


@dataclass(eq=False)
class Group:
    """Replicas that are worked on together. One that diverges is no longer written down and affects no other."""

    index: Tensor  # which replicas of the whole run these are; the result is written there
    seeds: Sequence[int]
    problem: StackedProblem
    model: StackedMLP
    method: StackedMethod
    optimizer: StackedOptimizer
    result: StackedResult  # of the whole run
    selection: str

    def __post_init__(self) -> None:
        flat = self.model.flat
        self.train: Examples = self.problem.train
        self.shares: Tensor | None = None  # what each example counts, (R, n); 1 each where there are none
        self.counted = bool(self.problem.classes)  # whether the labels that were hit are counted
        self.best = flat.new_full((len(self.index), 2), -float("inf"), dtype=torch.float64)
        self.alive = torch.ones_like(self.index, dtype=torch.bool)  # those that have not diverged
        self.gradient = torch.empty_like(flat)
        self.steps: dict[int, Step] = {}
        self.sums = flat.new_zeros((2, len(self.index)), dtype=torch.float64)
        self.generators = [torch.Generator(flat.device) for _ in self.seeds] if self.method.draws else []

    def train_epoch(self, epoch: int, batch_size: int) -> None:
        """One pass of every replica over its own permutation of its examples."""
        for seed, generator in zip(self.seeds, self.generators, strict=False):
            generator.manual_seed(derived(seed, "noise", epoch))
        count = -(-self.train.length // batch_size)
        losses, hits = self.sums.zero_().unbind(0)
        for number, (batch, target, shares) in enumerate(self._batches(self._orders(epoch), batch_size)):
            size = batch.shape[1]
            loss, output = self._step(size)(batch, target, epoch * count + number, shares)
            self.optimizer.step(self.model.flat, self.gradient, epoch + number / count)
            losses += loss * size
            if self.counted and output is not None:
                hits += (output.argmax(2) == target).sum(1)

    def _batches(self, orders: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """The examples of every replica in its order, (R, B, D) at a time, with targets and shares."""
        x, y = self.train.x.flatten(0, 1), self.train.y.flatten(0, 1)
        shares = None if self.shares is None else self.shares.flatten()
        # One replica's are gathered once an epoch; those of many would not fit where a batch of them does.
        for rows in (orders,) if len(orders) == 1 else torch.split(orders, batch_size, dim=1):
            chosen, shape = rows.reshape(-1), rows.shape
            sets = [x.index_select(0, chosen).view(*shape, -1), y.index_select(0, chosen).view(*shape, *y.shape[1:])]
            if shares is not None:
                sets.append(shares.index_select(0, chosen).view(shape))
            for batch, target, *weight in zip(*(torch.split(part, batch_size, dim=1) for part in sets), strict=True):
                yield batch, target, weight[0] if weight else None

    def end_epoch(self, epoch: int, *, last: bool) -> None:
        """Writes the numbers, gives up what diverged, selects, grows."""
        count, number = self.train.length, epoch + 1
        row = {"loss": self.sums[0] / count}
        if self.problem.classes:
            row["accuracy"] = 100 * self.sums[1] / count
        self._note(number, row)
        # Weights may overflow in the very last step, whose loss was still finite.
        finite = self.sums[0].isfinite() & self.model.finite() if last else self.sums[0].isfinite()
        gone = self.alive & ~finite
        self.result.diverged_at[self.index[gone]] = number
        self._put(self.result.model, gone)
        self.alive &= finite
        if self.problem.val is not None and self.result.epochs:
            scores = measure_stacked(self.model, self.problem.val, self.problem.target_scale)
            self._note(number, {f"val_{name}": value for name, value in scores.items()})
            self._select(scores, number)
        if number in self.result.snapshots:
            self._put(self.result.snapshots[number], self.alive)
        if last and self.selection == "last":
            self._put(self.result.model, self.alive)
        elif self.method.growth and self.method.growth[0].due(number) and not last:
            self._grow()

    def _note(self, epoch: int, row: dict[str, Tensor]) -> None:
        result = self.result
        for name, values in row.items() if result.epochs else ():
            if name not in result.curves:
                shape = result.model.replicas, result.epochs
                result.curves[name] = torch.full(shape, float("nan"), dtype=torch.float64, device=values.device)
            result.curves[name][self.index[self.alive], epoch - 1] = values[self.alive]

    def _put(self, where: StackedMLP, chosen: Tensor) -> None:
        if bool(chosen.any()):
            where.put(self.index[chosen], self.model.take(chosen.nonzero()[:, 0]))

    def _orders(self, epoch: int) -> Tensor:
        """Rows of the flat training set for each replica, (R, n), in the order of this epoch."""
        orders = [
            torch.randperm(self.train.length, generator=torch.Generator().manual_seed(derived(seed, "batches", epoch)))
            for seed in self.seeds
        ]
        order = torch.stack(orders).to(self.model.flat.device)
        if self.train.shared:
            return order
        return order + self.train.length * torch.arange(len(order), device=order.device)[:, None]

    def _step(self, batch: int) -> Step:
        if batch not in self.steps:
            passes = Passes(self.model, self.gradient, batch)
            self.steps[batch] = StackedStep(self.method, passes, self._noise, outputs=self.counted)
        return self.steps[batch]

    def _noise(self, shape: tuple[int, ...]) -> Tensor:
        noise = torch.empty(shape, dtype=self.model.flat.dtype, device=self.model.flat.device)
        for row, generator in zip(noise.unbind(0), self.generators, strict=True):
            row.normal_(generator=generator)
        return noise

    def _select(self, scores: dict[str, Tensor], epoch: int) -> None:
        score = torch.stack([scores.get("accuracy", torch.zeros_like(scores["nll"])), -scores["nll"]], 1)
        ahead, level = score > self.best, score == self.best
        better = self.alive & (ahead[:, 0] | (level[:, 0] & ahead[:, 1]))
        self.best[better] = score[better]
        self.result.best_epoch[self.index[better]] = epoch
        if self.selection == "best":
            self._put(self.result.model, better)

    def _grow(self) -> None:
        x, y = self.train.expanded(len(self.index))
        new = grow(self.method.growth, self.model, x, y, self.method.likelihood)
        self.train = Examples(torch.cat([x, new], 1), torch.cat([y, y], 1))


CACHE = 2**25  # bytes of parameters and activations that are worked on at a time: about what a last-level cache holds

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
    report: bool = True,
    snapshots: Sequence[int] = (),
    group: int | None = None,
    progress: Progress | None = None,
    may_diverge: bool = False,
) -> StackedResult:
    """Trains one replica per seed.

    Args:
        methods: one for all, or one per replica; these may differ in numbers only (`StackedMethod.of`).
        seeds: of weights, batches and noise, one per replica.
        optim: one for all, or one per replica; these may differ in lr, weight_decay and clip.
        selection: keep the last weights, or those that were best on the held-out set: by accuracy, then by likelihood,
            the earlier of equals.
        report: keep the numbers of every epoch, for which the held-out set is measured.
        snapshots: epochs (from 1) whose weights are kept, ascending.
        group: how many replicas are worked on at a time, which changes the speed alone.
        progress: called with (done, total) replica-epochs after each epoch.
        may_diverge: train even what must diverge (see `check_cap`), to show what it does.
    """
    method_list = [methods] * len(seeds) if isinstance(methods, Method) else methods
    optim_list = [optim] * len(seeds) if isinstance(optim, OptimConfig) else optim
    for method in () if may_diverge else set(method_list):
        check_cap(method)
    x = problem.train.x
    model = StackedMLP.initial(seeds, (x.shape[2], *hidden, problem.outputs), device=x.device, dtype=x.dtype)
    if group is None and x.device.type == "cpu":  # as many as keep a step inside the cache; all of them on a GPU
        numbers = 5 * model.layout.parameters + 3 * batch_size * sum(model.layout.sizes)
        group = max(1, CACHE // (numbers * x.element_size()))
    result = StackedResult.empty(model, epochs if report else 0, snapshots)
    done = 0
    for index in torch.split(torch.arange(len(seeds), device=x.device), group or len(seeds)):
        part, chosen = model.take(index), index.tolist()
        stacked = StackedMethod.of([method_list[i] for i in chosen], problem.likelihood, x)
        optimizer = StackedOptimizer([optim_list[i] for i in chosen], part.layout, part.flat, epochs)
        own_seeds = [int(seeds[i]) for i in chosen]
        replicas = Group(index, own_seeds, problem.take(index), part, stacked, optimizer, result, selection)
        for epoch in range(epochs):
            if bool(replicas.alive.any()):
                replicas.train_epoch(epoch, batch_size)
                replicas.end_epoch(epoch, last=epoch + 1 == epochs)
            done += len(index)
            if progress is not None:
                progress(done, len(seeds) * epochs)
    return result


HIDDEN = (128,)  # what `MLP` takes where a config names no hidden layers


def train_configs(
    configs: Sequence[RunConfig], problems: Sequence[Problem], *, progress: Progress | None = None
) -> StackedResult:
    """Trains one replica per config that can be stacked (`why_not`) on its data, as `prepare` gives it."""
    first = configs[0]
    return train_stacked(
        StackedProblem.of(problems),
        [method_of(config, problem) for config, problem in zip(configs, problems, strict=True)],
        seeds=[config.seed for config in configs],
        optim=[config.optim for config in configs],
        epochs=first.train.epochs,
        batch_size=first.train.batch_size,
        hidden=HIDDEN if first.model.hidden is None else first.model.hidden,
        selection=first.train.selection,
        progress=progress,
    )


def why_not(config: RunConfig) -> str | None:
    """Why a config cannot be stacked, as a sentence; None if it can, as far as the config alone tells."""
    if config.model.name not in ("auto", "mlp"):
        return f"expected model.name 'mlp' in a stacked run, but got {config.model.name!r}"
    if replace(config.model, name="auto", hidden=None, dropout=config.model.dropout or None) != ModelConfig():
        return f"expected a perceptron without dropout and given weights in a stacked run, but got {config.model}"
    plain = TrainConfig(epochs=config.train.epochs, batch_size=config.train.batch_size)
    if replace(config.train, selection=plain.selection) != plain:
        return f"expected train to set epochs, batch_size and selection only in a stacked run, but got {config.train}"
    return None
