"""One run on several devices: processes that torchrun starts, each with its part of every batch.

The run is the one that a single process would make, up to rounding: the batches, their order and their randomness are
those of the whole, BatchNorm takes the statistics of whole batches, and losses are weighted by the parts' sizes. Each
process draws the random numbers of a whole batch and uses its own; gradients are exchanged once a step, in the last
backward. Evaluation is shared. The first process keeps the record. Dropout alone depends on how many there are.
"""

from __future__ import annotations

import logging
import os
import signal
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rcad.errors import InputError
from rcad.loss.augmentations import Part, Source
from rcad.loss.own import imported
from rcad.runs.config import RunConfig
from rcad.runs.record import RunRecord
from rcad.train import processes
from rcad.train.machine import pick_device
from rcad.train.place import Place, world
from rcad.train.progress import SILENT, Progress, show_progress
from rcad.train.run import run
from rcad.train.scheduler import Outcome, Work, schedule
from rcad.train.step import Batch, Ranks, Stepper, Update
from rcad.train.stop import SIGNALS, Interrupted, Stop, kept_handlers, stopping

GOES_ON = "the same command goes on from the last checkpoint"


class _Sum(torch.autograd.Function):
    """The sum over all processes, of a tensor and of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        torch.distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].clone()
        torch.distributed.all_reduce(gradient)
        return gradient


class WholeBatchNorm(_BatchNorm):
    """torch's SyncBatchNorm, which is for GPUs alone, and the same in plain operations on the CPU."""

    has_all = False  # every process has the whole batch: there is nothing to exchange
    process_group = None
    _check_input_dim = nn.SyncBatchNorm._check_input_dim
    _check_non_zero_input_channels = nn.SyncBatchNorm._check_non_zero_input_channels

    def forward(self, x: Tensor) -> Tensor:
        if self.has_all or not self.training:
            return super().forward(x)
        if x.is_cuda:
            return nn.SyncBatchNorm.forward(self, x)  # type: ignore[arg-type]
        over, shape = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
        over_all: Callable[[Tensor], Tensor] = _Sum.apply
        count = float(over_all(x.new_tensor([x.numel() / x.shape[1]])))
        mean = over_all(x.sum(over)) / count
        centred = x - mean.view(shape)
        variance = over_all((centred * centred).sum(over)) / count
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.detach(), momentum)
            self.running_var.lerp_(variance.detach() * count / max(count - 1, 1), momentum)
        scaled = centred * (variance + self.eps).rsqrt().view(shape)
        return scaled if self.weight is None else scaled * self.weight.view(shape) + self.bias.view(shape)


class PartedUpdate(Update):
    """An update whose batches several processes take in parts; each ends a step with the same weights."""

    def __init__(self, whole: Update, ranks: Ranks) -> None:
        super().__init__(**vars(whole))
        self._ranks = ranks
        self._part: Part | None = None
        on_gpu = [self.sums.device.index] if self.sums.is_cuda else None
        wrap: Any = nn.parallel.DistributedDataParallel
        newer = "forward_sync_buffers" in signature(wrap).parameters  # the other name is on its way out
        buffers = {"forward_sync_buffers" if newer else "broadcast_buffers": False}
        self._wrapped: nn.parallel.DistributedDataParallel = wrap(self.model, on_gpu, **buffers)
        # A partner may lie in another's part: then each process makes the whole batch and keeps its own.
        self._mixes = any(step.slot == "mix" for step in self.method.augment)
        self._norms = [layer for layer in self.model.modules() if isinstance(layer, WholeBatchNorm)]

    @contextmanager
    def network(self, *, last: bool) -> Iterator[nn.Module]:
        with nullcontext() if last else self._wrapped.no_sync():
            yield self._wrapped

    @property
    def source(self) -> Source:
        return self.generator if self._part is None else self._part

    def expected(self, index: Tensor) -> Tensor:
        return index if self._mixes else index[self._ranks.part(len(index))]

    def load_batch(self, index: Tensor) -> Batch:
        count, rows = len(index), self._ranks.part(len(index))
        part = Part(self.generator, rows, count)
        if self._mixes:
            whole = super().load_batch(index)
            batch = Batch(whole.x[rows], whole.target[rows], whole.raw[rows], whole.y[rows], part)
        else:
            self._part = part
            try:
                batch = super().load_batch(index[rows])
            finally:
                self._part = None
        size = rows.stop - rows.start
        return batch._replace(share=1.0 if size == count else size * self._ranks.size / count)

    def batch(self, model: nn.Module, index: Tensor, *arguments: Any, **options: Any) -> None:
        has_all = len(index) < self._ranks.size
        before = self.sums.clone()
        for layer in self._norms:
            layer.has_all = has_all
        with warnings.catch_warnings():  # of gradients that lie in memory otherwise than DDP's copies
            warnings.filterwarnings("ignore", "Grad strides do not match", UserWarning)
            super().batch(model, index, *arguments, **options)
        if has_all and not self._ranks.leads:
            self.sums.copy_(before)  # counted once


class RankStepper(Stepper):
    """Takes the steps of a run that several processes make."""

    def __init__(self, update: Update, ranks: Ranks) -> None:
        super().__init__(PartedUpdate(update, ranks))
        self._ranks = ranks
        self.name = f"eager, {ranks.size} processes" + ("" if ranks.sync_batch_norm else ", BatchNorm by process")

    def agreed(self, answer: bool, question: str = "pause") -> bool:
        return self._ranks.any(answer)


@contextmanager
def connected(device: torch.device, *, sync_batch_norm: bool = True) -> Iterator[Ranks]:
    """The processes that torchrun started, connected; that one of them has ended is an InputError in the others."""
    process = world()
    assert process is not None
    rank, size, _ = process
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Ranks(rank, size, sync_batch_norm)
    except RuntimeError as error:
        if _is_loss(error):
            raise _lost(size) from None
        raise
    finally:
        torch.distributed.destroy_process_group()


def _is_loss(error: RuntimeError) -> bool:
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error).lower()


def _lost(count: int, which: str = "") -> InputError:
    return InputError(f"expected all {count} processes to go on, but one has ended{which}; {GOES_ON}")


def as_rank(config: RunConfig, place: Place, progress: Progress, *, minutes: float | None) -> Outcome:
    """Makes a run as one of the processes that torchrun started; each is given the outcome."""
    process = world()
    assert process is not None
    local, devices = process[2], place.devices
    if devices and local >= len(devices):
        raise InputError(f"expected a device for every process, but --devices names {len(devices)}")
    name = devices[local] if devices else f"cuda:{local}" if pick_device(place.device).type == "cuda" else "cpu"
    with connected(pick_device(name), sync_batch_norm=place.sync_batch_norm) as ranks:
        return make_together(ranks, config, replace(place, device=name, devices=()), progress, minutes=minutes)


def make_together(
    ranks: Ranks, config: RunConfig, place: Place, progress: Progress, *, minutes: float | None
) -> Outcome:
    """Makes a run with the other processes. The first one asks the store and the clock, and tells them."""

    def make(config: RunConfig, stop: Stop, progress: Progress = SILENT) -> RunRecord:
        try:
            return run(config, place, progress, stop=stop, ranks=ranks)
        except RuntimeError as error:
            if stop.signal is None or not _is_loss(error):
                raise
            # The launcher has seen the loss and asked this process to end: it waits for that, not for an answer.
            raise Interrupted(stop.signal, str(_lost(ranks.size))) from None

    def lead(work: Work) -> None:
        ranks.of_first(lambda: True)
        (config,) = work.configs
        work.listener.ended(make(config, work.stop, work.listener.progress(config)))

    if ranks.leads:
        outcome = schedule([config], place, progress, backend=lead, minutes=minutes)
        if outcome.already:
            ranks.of_first(lambda: False)
    elif ranks.of_first(bool):
        with stopping() as stop:
            make(config, stop)
    return ranks.of_first(lambda: outcome)


SHUTDOWN_S = 60.0
ANSWER_S = 3
"""How long a process that was asked to end waits for its answer to be read: a launcher that ends itself reads none."""


def launch(config: RunConfig, place: Place, *, minutes: float | None, quiet: bool, as_json: bool) -> Outcome:
    """Makes a run on the place's devices, with a process for each that torchrun's launcher starts and watches."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    count = len(place.devices)
    for name, logger in logging.root.manager.loggerDict.items():
        launcher = name.startswith(("torch.distributed.elastic", "torch.multiprocessing"))
        if launcher and isinstance(logger, logging.Logger):
            logger.setLevel(logging.CRITICAL)  # they say in forty lines what is said in one below
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        start_method=processes.START,
        shutdown_timeout=int(SHUTDOWN_S),
    )
    try:
        with kept_handlers((*SIGNALS, signal.SIGQUIT)):  # the launcher leaves its own
            answers = elastic_launch(settings, launched)(config, place, minutes, quiet, as_json)
    except SignalException as stop:
        raise Interrupted(stop.sigval, f"stopped; {GOES_ON}") from None
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise _lost(count, f" (process {rank}, with {failure.exitcode})") from None
    for _, answer in sorted(answers.items()):
        if isinstance(answer, Exception):
            raise answer
    outcome: Outcome = answers[0]
    return outcome


def launched(config: RunConfig, place: Place, minutes: float | None, quiet: bool, as_json: bool) -> Outcome | Exception:
    """One process of `launch`; an error is an answer as well."""
    os.setpgid(0, 0)  # a Ctrl-C at the terminal is the launcher's to hear, which then asks once
    follows = os.environ["RANK"] != "0"
    try:
        imported(config.method)
        with show_progress(quiet=quiet or follows, as_json=as_json) as progress:
            outcome = as_rank(config, place, progress, minutes=minutes)
    except Exception as error:
        return processes.portable(error)
    if outcome.signal is not None:
        signal.alarm(ANSWER_S)
    return outcome
