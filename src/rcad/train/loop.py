"""The one training loop: epochs of steps, one synchronisation per epoch, a pause possible between any two steps."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from rcad.augmentations import augment
from rcad.composition import Method
from rcad.criterion import Criterion
from rcad.experiments.config import RunConfig
from rcad.growth import as_unit_float
from rcad.train.metrics import measure
from rcad.train.optimizers import build_optimizer, set_learning_rate
from rcad.train.problem import Problem
from rcad.train.reporting import Reporter, Silent
from rcad.train.schedule import learning_rate
from rcad.train.seeds import derived

Outcome = Literal["done", "interrupted", "diverged"]


class Trainer:
    """A run in progress. What it will do next depends on its attributes alone, so saving them saves the run.

    Attributes:
        epoch, step: finished epochs, and finished batches of the epoch under way.
        sums: loss, correct predictions and examples of the epoch under way, on the device.
        rows: the numbers of each finished epoch.
        best_epoch, best_score, best_weights: the selected epoch (from 1) so far.
        x, y: the training examples, including grown ones.
    """

    def __init__(
        self, config: RunConfig, problem: Problem, method: Method, model: nn.Module, reporter: Reporter | None = None
    ) -> None:
        self.config, self.problem, self.method = config, problem, method
        self.reporter = reporter or Silent()
        memory_format = torch.channels_last if config.train.channels_last else torch.preserve_format
        self.model: nn.Module = model.to(problem.device, memory_format=memory_format)  # type: ignore[call-overload]
        self.average = None if config.train.ema is None else copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = build_optimizer(config.optim, self.model)
        likelihood = method.likelihood or problem.likelihood
        # The readers have checked the data: reading it again at every step would only cost time.
        self.criterion = Criterion(likelihood, method.terms, units="input", checks="first")
        self.generator = torch.Generator(problem.device)
        self.x, self.y = problem.train
        self.epoch = self.step = 0
        self.sums = torch.zeros(3, device=problem.device, dtype=torch.float64)
        self.rows: list[dict[str, float]] = []
        self.best_epoch, self.best_score = 0, (-math.inf, -math.inf)
        self.best_weights: dict[str, Tensor] = {}
        self.seconds = 0.0

    @property
    def selected(self) -> nn.Module:
        """The model that is evaluated: the average where there is one."""
        return self.model if self.average is None else self.average

    def announce(self) -> None:
        """Tells the reporter what is to come."""
        self.reporter.started(self.config.train.epochs, len(self._batches()), self.epoch)

    def fit(self, pause: Callable[[], bool] = lambda: False) -> Outcome:
        """Trains to the end, until `pause()` says so after a step, or until the loss is no longer finite."""
        epochs = self.config.train.epochs
        with _deterministic(self.config.train.deterministic):
            while self.epoch < epochs and not self._out_of_patience():
                start = time.perf_counter()
                if self.step == 0:
                    self._seed_epoch()
                finished = self._run_steps(pause)
                self.seconds += time.perf_counter() - start
                if not finished:
                    return "interrupted"
                if not self._end_epoch(start):
                    return "diverged"
        return "done"

    def restore_selected(self) -> None:
        """Puts the selected epoch's weights into the model that is evaluated."""
        if self.best_weights:
            self.selected.load_state_dict(self.best_weights)

    def _seed_epoch(self) -> None:
        """Every epoch has its own streams: resuming needs no history."""
        self.generator.manual_seed(derived(self.config.seed, "noise", self.epoch))
        torch.manual_seed(derived(self.config.seed, "dropout", self.epoch))

    def _batches(self) -> tuple[Tensor, ...]:
        """This epoch's batches of indices, the last one perhaps smaller."""
        generator = torch.Generator().manual_seed(derived(self.config.seed, "batches", self.epoch))
        order = torch.randperm(len(self.y), generator=generator).to(self.problem.device)
        return torch.split(order, self.config.train.batch_size)

    def _run_steps(self, pause: Callable[[], bool]) -> bool:
        """The steps that are left of this epoch; False if paused before the end."""
        batches = self._batches()
        self.model.train()
        size = self.config.train.accumulate
        while self.step < len(batches):
            group = batches[self.step : self.step + size]
            progress = self.epoch + self.step / len(batches)
            set_learning_rate(self.optimizer, learning_rate(self.config.optim, self.config.train.epochs, progress))
            self._optimizer_step(group, first=self.epoch * len(batches) + self.step)
            self.step += len(group)
            self.reporter.stepped(self.epoch + 1, self.step)
            if self.step < len(batches) and pause():  # after a step, so that every call makes some progress
                return False
        return True

    def _optimizer_step(self, group: tuple[Tensor, ...], first: int) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for offset, index in enumerate(group):
            self._batch(index, len(group), first + offset)
        if self.config.optim.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optim.clip)
        self.optimizer.step()
        if self.average is not None:
            update_average(self.average, self.model, self.config.train.ema or 0.0)

    def _batch(self, index: Tensor, accumulate: int, number: int) -> None:
        """One batch forward and backward; nothing here waits for the device."""
        y = self.y[index]
        raw = as_unit_float(self.x[index])
        if self.config.train.channels_last:
            raw = raw.contiguous(memory_format=torch.channels_last)
        x, target = augment(self.method.augment, raw, y, classes=self.problem.classes, generator=self.generator)
        with self._precision():
            losses = self.criterion.backward(
                self.model,
                x,
                target,
                raw=raw,
                raw_target=y,
                accumulate=accumulate,
                generator=self.generator,
                step=number,
            )
        self.sums[0] += losses.total * len(y)
        self.sums[2] += len(y)
        if self.problem.classes and losses.output is not None:
            self.sums[1] += (losses.output.argmax(1) == y).sum()

    def _precision(self) -> AbstractContextManager[object]:
        if self.config.train.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.problem.device.type, dtype=torch.bfloat16)

    def _end_epoch(self, start: float) -> bool:
        """Reads the sums, validates, selects, grows; False if the loss is not finite."""
        loss, correct, count = self.sums.tolist()
        row = {"epoch": self.epoch + 1.0, "loss": loss / count, "lr": self.optimizer.param_groups[0]["lr"]}
        if self.problem.classes:
            row["accuracy"] = 100 * correct / count
        finite = math.isfinite(loss)
        if finite and len(self.problem.val[1]):
            scores = measure(self.selected, self.problem, *self.problem.val)
            row |= {f"val_{name}": value for name, value in scores.items()}
            self._select(row)
        row["seconds"] = time.perf_counter() - start
        self.rows.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.sums.zero_()
        self.reporter.epoch(self.epoch, row)
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
        x, y = growth.grow(
            self.model,
            self.x,
            self.y,
            self.criterion.loss.likelihood,
            generator=generator,
            progress=lambda done, total: self.reporter.preparing("growing the training set", done, total),
        )
        self.x, self.y = torch.cat([self.x, x]), torch.cat([self.y, y])


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """average <- decay * average + (1 - decay) * model; buffers are copied."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
    for kept, now in zip(average.buffers(), model.buffers(), strict=True):
        kept.copy_(now)


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
