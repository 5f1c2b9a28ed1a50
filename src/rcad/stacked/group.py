"""The loop of replicas that are worked on together: epochs of steps, and what happens between epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rcad.stacked.growth import grow
from rcad.stacked.method import StackedMethod
from rcad.stacked.model import StackedMLP
from rcad.stacked.optim import StackedOptimizer
from rcad.stacked.passes import Passes
from rcad.stacked.result import StackedResult
from rcad.stacked.step import StackedStep
from rcad.stacked.task import Examples, StackedProblem, measure_stacked
from rcad.train.seeds import derived


class Group:
    """Replicas that are worked on together; those that diverge leave it.

    Args:
        index: which replicas of the whole run these are; the result is written there.
        seeds, problem, model, method, optimizer: theirs alone.
        result: of the whole run.
        selection: see `train_stacked`.
    """

    def __init__(
        self,
        index: Tensor,
        seeds: Sequence[int],
        problem: StackedProblem,
        model: StackedMLP,
        method: StackedMethod,
        optimizer: StackedOptimizer,
        result: StackedResult,
        selection: str,
    ) -> None:
        self.index, self.seeds, self.problem, self.model = index, seeds, problem, model
        self.method, self.optimizer, self.result, self.selection = method, optimizer, result, selection
        self.train: Examples = problem.train
        self.best = model.flat.new_full((len(index), 2), -float("inf"), dtype=torch.float64)
        self._prepare()

    def _prepare(self) -> None:
        """Memory for the steps; made anew when the replicas change."""
        self.gradient = torch.empty_like(self.model.flat)
        self.steps: dict[int, StackedStep] = {}
        self.sums = self.model.flat.new_zeros((2, len(self.index)), dtype=torch.float64)
        device = self.model.flat.device
        self.generators = [torch.Generator(device) for _ in self.seeds] if self.method.draws else []

    def epochs(self, count: int, batch_size: int) -> Iterator[None]:
        """Trains from the first epoch to the last; hands over after each."""
        for epoch in range(count):
            self.train_epoch(epoch, batch_size)
            self.end_epoch(epoch, last=epoch + 1 == count)
            yield

    def train_epoch(self, epoch: int, batch_size: int) -> None:
        """One pass of every replica over its own permutation of its examples."""
        if not len(self.index):
            return
        for seed, generator in zip(self.seeds, self.generators, strict=False):
            generator.manual_seed(derived(seed, "noise", epoch))
        x, y = self.train.x.flatten(0, 1), self.train.y.flatten()
        batches = torch.split(self._orders(epoch), batch_size, dim=1)
        self.sums.zero_()
        for number, rows in enumerate(batches):
            chosen = rows.reshape(-1)
            shape = rows.shape
            target = y.index_select(0, chosen).view(shape)
            step = self._step(shape[1])
            batch = x.index_select(0, chosen).view(*shape, -1)
            loss, output = step(batch, target, epoch * len(batches) + number)
            self.optimizer.step(self.model.flat, self.gradient, epoch + number / len(batches))
            self.sums[0] += loss * shape[1]
            if self.problem.classes and output is not None:
                self.sums[1] += (output.argmax(2) == target).sum(1)

    def end_epoch(self, epoch: int, *, last: bool) -> None:
        """Writes the numbers, lets go of what diverged, selects, grows."""
        if not len(self.index):
            return
        count, number = self.train.length, epoch + 1
        row = {"loss": self.sums[0] / count}
        if self.problem.classes:
            row["accuracy"] = 100 * self.sums[1] / count
        self.result.note(self.index, number, row)
        # Weights may overflow in the very last step, whose loss was still finite.
        self._drop(~(self.sums[0].isfinite() & self.model.finite() if last else self.sums[0].isfinite()), number)
        if not len(self.index):
            return
        if self.problem.val is not None and number in self.result.epochs:
            scores = measure_stacked(self.model, self.problem.val, self.problem.target_scale)
            self.result.note(self.index, number, {f"val_{name}": value for name, value in scores.items()})
            self._select(scores, number)
        if number in self.result.snapshots:
            self.result.snapshots[number].put(self.index, self.model)
        if last and self.selection == "last":
            self.result.model.put(self.index, self.model)
        elif self.method.growth and self.method.growth[0].due(number) and not last:
            self._grow()

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

    def _step(self, batch: int) -> StackedStep:
        if batch not in self.steps:
            self.steps[batch] = StackedStep(self.method, Passes(self.model, self.gradient, batch), self._noise)
        return self.steps[batch]

    def _noise(self, shape: tuple[int, ...]) -> Tensor:
        noise = torch.empty(shape, dtype=self.model.flat.dtype, device=self.model.flat.device)
        for row, generator in zip(noise.unbind(0), self.generators, strict=True):
            row.normal_(generator=generator)
        return noise

    def _drop(self, diverged: Tensor, epoch: int) -> None:
        """Replicas whose loss is not finite stop here; the others go on without them."""
        if not bool(diverged.any()):
            return
        gone, kept = diverged.nonzero()[:, 0], (~diverged).nonzero()[:, 0]
        self.result.mark(self.index[gone], epoch)
        self.result.model.put(self.index[gone], self.model.take(gone))
        self.index, self.seeds = self.index[kept], [self.seeds[i] for i in kept.tolist()]
        if not len(kept):
            return
        self.model, self.optimizer = self.model.take(kept), self.optimizer.take(kept)
        self.method, self.problem = self.method.take(kept), self.problem.take(kept)
        self.train, self.best = self.train.take(kept), self.best[kept]
        self._prepare()

    def _select(self, scores: dict[str, Tensor], epoch: int) -> None:
        score = torch.stack([scores.get("accuracy", torch.zeros_like(scores["nll"])), -scores["nll"]], 1)
        ahead, level = score > self.best, score == self.best
        better = (ahead[:, 0] | (level[:, 0] & ahead[:, 1])).nonzero()[:, 0]
        self.best[better] = score[better]
        self.result.best_epoch[self.index[better]] = epoch
        if self.selection == "best" and len(better):
            self.result.model.put(self.index[better], self.model.take(better))

    def _grow(self) -> None:
        x, y = self.train.expanded(len(self.index))
        new = grow(self.method.growth, self.model, x, y, self.method.likelihood)
        self.train = Examples(torch.cat([x, new], 1), torch.cat([y, y], 1))
