"""The one training loop: epochs of steps, one synchronisation per epoch, a pause possible between any two steps."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from rcad.loss.criterion import Criterion
from rcad.loss.methods import Method
from rcad.runs.config import OptimConfig, RunConfig
from rcad.runs.words import epoch_words
from rcad.train.place import Engine
from rcad.train.progress import SILENT, Progress, Row
from rcad.train.step import ALONE, Plan, Ranks, Stepper, Streamed, Update, stepper_for
from rcad.train.task import Problem, derived, fetch, launch_metrics

if TYPE_CHECKING:
    from rcad.train.joined import JoinedStepper

T = TypeVar("T")
Outcome = Literal["done", "interrupted", "diverged"]
Course = Generator[None, None, Outcome]
Pause = Callable[[], bool]


def learning_rate(optim: OptimConfig, epochs: int, progress: float) -> float:
    """The rate after `progress` epochs (a fraction inside an epoch).

    The warm-up is linear and reaches the full rate after `warmup` epochs; "multistep" then drops at the start of
    each milestone epoch, "cosine" falls to zero at the end.
    """
    if progress < optim.warmup:
        return optim.lr * max(progress, 1e-3) / optim.warmup
    if optim.schedule == "cosine":
        done = (progress - optim.warmup) / max(epochs - optim.warmup, 1)
        return optim.lr * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    if optim.schedule == "multistep":
        return optim.lr * optim.gamma ** sum(progress >= milestone for milestone in optim.milestones)
    return optim.lr


def build_optimizer(optim: OptimConfig, model: nn.Module, *, capturable: bool = False) -> torch.optim.Optimizer:
    """SGD or AdamW; `capturable` inside a CUDA graph: one fused kernel, the learning rate a tensor on the device."""
    rate = torch.tensor(optim.lr, device=next(model.parameters()).device) if capturable else optim.lr
    options: dict[str, Any] = {"lr": rate, "weight_decay": optim.weight_decay, "fused": capturable or None}
    if optim.name == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=optim.momentum, nesterov=optim.nesterov, **options)
    return torch.optim.AdamW(model.parameters(), capturable=capturable, **options)


def exhaust(course: Generator[None, None, T]) -> T:
    """Takes all instalments of a course; what it returns at the end."""
    try:
        while True:
            next(course)
    except StopIteration as end:
        value: T = end.value
        return value


class Trainer:
    """A run in progress. What it will do next depends on its attributes alone, so saving them saves the run.

    Without a member among runs that take their steps together it steps by itself; `engine` as `Place` has it.
    """

    def __init__(
        self,
        config: RunConfig,
        problem: Problem,
        method: Method,
        model: nn.Module,
        progress: Progress = SILENT,
        engine: Engine = "eager",
        member: JoinedStepper | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.config, self.problem, self.method, self.progress = config, problem, method, progress
        self.ranks = ranks
        if isinstance(problem.train[0], Streamed) or ranks.size > 1:
            engine = "eager"  # see `stepper_for`; and no graph is captured across processes
        self.on_epoch: Callable[[Row], None] = lambda row: None  # takes the row of each epoch that ends
        memory_format = torch.channels_last if config.train.channels_last else torch.preserve_format
        self.model: nn.Module = model.to(problem.device, memory_format=memory_format)  # type: ignore[call-overload]
        self.average = None if config.train.ema is None else copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = build_optimizer(config.optim, self.model, capturable=engine != "eager")
        likelihood = method.likelihood or problem.likelihood
        # The readers have checked the data: reading it again at every step would only cost time.
        self.criterion = Criterion(likelihood, method.terms, units="input", checks="first")
        self.generator = torch.Generator(problem.device)
        self.x, self.y = problem.train  # and what the set has grown by
        self.epoch = self.step = 0  # finished epochs, and finished batches of the epoch under way
        self.sums = torch.zeros(3, device=problem.device, dtype=torch.float64)  # see `Update`
        self.rows: list[dict[str, float]] = []  # the numbers of each finished epoch
        self.best_epoch, self.best_score = 0, (-math.inf, -math.inf)  # the selected epoch (from 1) so far
        self.best_weights: dict[str, Tensor] = {}
        self.seconds = 0.0
        self._words = -1, ""
        update = Update(
            config=config,
            method=method,
            criterion=self.criterion,
            model=self.model,
            average=self.average,
            optimizer=self.optimizer,
            generator=self.generator,
            sums=self.sums,
            classes=problem.classes,
            x=self.x,
            y=self.y,
        )
        if ranks.size > 1:
            from rcad.train.cluster.ranks import RankStepper

            self.stepper: Stepper = RankStepper(update, ranks)
        else:
            self.stepper = member or stepper_for(update, engine)
            self.stepper.update = update

    @property
    def selected(self) -> nn.Module:
        """The model that is evaluated: the average where there is one."""
        return self.model if self.average is None else self.average

    @property
    def begun(self) -> bool:
        return bool(self.epoch or self.step)

    def report(self) -> None:
        epochs = self.config.train.epochs
        if self._words[0] != len(self.rows):
            row = self.rows[-1] if self.rows else {"epoch": 1.0}
            self._words = len(self.rows), epoch_words(row, epochs)
        self.progress.overall(self.epoch + self.step / self._batches(), epochs, self._words[1])

    def fit(self, pause: Pause = lambda: False) -> Outcome:
        """Trains to the end, until `pause()` says so after a step, or until the loss is no longer finite."""
        return exhaust(self.course(pause))

    def course(self, pause: Pause = lambda: False) -> Course:
        """`fit` in instalments: yields whenever work was launched, so that others may launch theirs beside it."""
        while self.epoch < self.config.train.epochs and not self._out_of_patience():
            start = time.perf_counter()
            if self.step == 0:
                # Every epoch has its own streams: resuming needs no history.
                self.generator.manual_seed(derived(self.config.seed, "noise", self.epoch))
                self.seed_dropout()
            if not (yield from self._run_steps(pause)):
                self.seconds += time.perf_counter() - start
                return "interrupted"
            val = self.problem.val
            scores = launch_metrics(self.selected, self.problem, *val, ranks=self.ranks) if len(val[1]) else {}
            yield from self._until_done()
            finite = self._end_epoch(start, scores)
            self.seconds += time.perf_counter() - start
            if not finite:
                return "diverged"
            if self.epoch < self.config.train.epochs and self.stepper.agreed(pause()):
                return "interrupted"
        return "done"

    def enlarge(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = torch.cat([self.x, x]), torch.cat([self.y, y])
        self.stepper.update.x, self.stepper.update.y = self.x, self.y

    def restore_selected(self) -> None:
        """Puts the selected epoch's weights into the model that is evaluated."""
        if self.best_weights:
            self.selected.load_state_dict(self.best_weights)

    def seed_dropout(self) -> None:
        """Seeds the generator that dropout draws from; each of several processes has masks of its own."""
        own = (self.ranks.rank, self.step) if self.ranks.rank else ()
        torch.manual_seed(derived(self.config.seed, "dropout", self.epoch, *own))

    def _until_done(self) -> Generator[None, None, None]:
        """Hands over until the device has done what was launched: whoever reads then does not keep others waiting."""
        yield
        if self.problem.device.type == "cuda":
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            while not event.query():  # type: ignore[no-untyped-call]
                yield

    def _batches(self) -> int:
        return math.ceil(len(self.y) / self.config.train.batch_size)

    def _plans(self) -> list[Plan]:
        """The optimizer steps of this epoch, the last batch perhaps smaller."""
        size, group, total = self.config.train.batch_size, self.config.train.accumulate, self._batches()
        plans = []
        for turn, first in enumerate(range(0, total, group)):
            starts = range(first * size, min((first + group) * size, len(self.y)), size)
            sizes = tuple(min(size, len(self.y) - start) for start in starts)
            plans.append(Plan(turn, first * size, sizes, self.epoch * total + first))
        return plans

    def _run_steps(self, pause: Pause) -> Generator[None, None, bool]:
        """The steps that are left of this epoch; False if paused before the end."""
        plans, total = self._plans(), self._batches()
        group, epochs = self.config.train.accumulate, self.config.train.epochs
        rates = [learning_rate(self.config.optim, epochs, self.epoch + p.turn * group / total) for p in plans]
        left = plans[self.step // group :]
        generator = torch.Generator().manual_seed(derived(self.config.seed, "batches", self.epoch))
        self.model.train()
        self.stepper.begin(torch.randperm(len(self.y), generator=generator), rates, left[0])
        for plan in left:
            self.stepper.step(plan)
            yield
            self.step += len(plan.sizes)
            if plan is not plans[-1]:  # the last one is reported with its epoch
                self.report()
                # After a step, so that every call makes some progress.
                if self.stepper.agreed(pause()):
                    return False
        return True

    def _end_epoch(self, start: float, scores: dict[str, Tensor]) -> bool:
        """Reads the sums, selects, grows; False if the loss is not finite."""
        loss, correct, count = self.ranks.summed(self.sums).tolist()
        row = {"epoch": self.epoch + 1.0, "loss": loss / count, "lr": self.stepper.rates[-1]}
        if self.problem.classes:
            row["accuracy"] = 100 * correct / count
        finite = math.isfinite(loss)
        if finite and scores:
            row |= {f"val_{name}": value for name, value in fetch(scores).items()}
            self._select(row)
        row["seconds"] = time.perf_counter() - start
        self.rows.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.sums.zero_()
        self.on_epoch(row)
        self.report()
        if finite:
            self._grow()
        return finite

    def _select(self, row: dict[str, float]) -> None:
        """Keeps the best epoch on the held-out split: by accuracy, then by likelihood; the earlier of equals."""
        score = (row.get("val_accuracy", 0.0), -row["val_nll"])
        if score > self.best_score:
            self.best_epoch, self.best_score = self.epoch + 1, score
            if self.config.train.selection == "best":
                self.best_weights = {name: value.clone() for name, value in self.selected.state_dict().items()}

    def _out_of_patience(self) -> bool:
        patience = self.config.train.patience
        return patience is not None and self.epoch - self.best_epoch >= patience

    def _grow(self) -> None:
        growth = self.method.growth
        if growth is None or not growth.due(self.epoch) or self.epoch == self.config.train.epochs:
            return
        generator = torch.Generator(self.x.device).manual_seed(derived(self.config.seed, "growth", self.epoch))
        progress = partial(self.progress.detail, "growing the training set")
        likelihood = self.criterion.loss.likelihood
        self.enlarge(*growth.grow(self.model, self.x, self.y, likelihood, generator=generator, progress=progress))
