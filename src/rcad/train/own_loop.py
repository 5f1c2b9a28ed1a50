"""A captured step for anybody's loop: passes, clipping, optimizer and moving average in one CUDA graph.

A graph repeats kernels at fixed addresses with fixed numbers. So before every step it is looked at whether model,
optimizer and batch are still those that were captured; where they are not, another graph is made, or the step is taken
eagerly. What Python does in a forward, such as hooks and counters, happens while a step is captured, not when it is
repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from rcad.errors import InputError, finite, fraction
from rcad.kernels.bn_relu import own_kernels, use_in
from rcad.kernels.fused_sgd import ClippedSGD, Run, suits
from rcad.loss.criterion import Criterion
from rcad.loss.fused import goes_back_twice
from rcad.loss.model_calls import Inputs
from rcad.loss.terms import Losses
from rcad.train.cuda_graph import WARM_UP, Graphs, Twin
from rcad.train.graph_form import Batch, GraphForm, address, channels_last, facts, leaves_of, mapped, room_for
from rcad.train.step import update_average

log = logging.getLogger("rcad")

DEVICES = ("cuda",)  # where steps can be captured
MOST = 16  # kinds of steps that are worth a graph; after as many changes of memory in a row none is tried any more


def capture(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    criterion: Criterion,
    *,
    clip: float | None = None,
    autocast: torch.dtype | None = None,
    scaler: torch.amp.GradScaler | None = None,
    average: nn.Module | None = None,
    decay: float = 0.999,
    generator: torch.Generator | None = None,
    compiled: bool = False,
) -> CapturedStep:
    """One training step as a function: `losses = step(x, y)`, on a GPU in a single launch.

    It stands for zero_grad, autocast, `criterion.backward`, clipping, `optimizer.step` and the moving average;
    elsewhere than on a GPU it is just these. Change learning rates as usual, on the optimizer or by a scheduler.

    Args:
        optimizer: torch's SGD, Adam or AdamW, which is given its fused form inside the step; or any other that was made
            with capturable=True. Others step eagerly.
        clip: the length to which the gradients of the whole model are clipped.
        autocast: torch.bfloat16 or torch.float16; by default what is on where the step is called.
        scaler: a GradScaler, which the step also updates.
        average: a copy of the model that follows its weights: average <- decay * average + (1 - decay) * model.
        generator: where random directions come from; default torch's global one.
        compiled: run batches of the first shape through torch.compile.

    Example:
        >>> step = rcad.capture(model, optimizer, rcad.RCAD())  # doctest: +SKIP
        >>> for x, y in loader:  # doctest: +SKIP
        ...     losses = step(x, y)
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"expected the model to be an nn.Module, but got {type(model).__name__}")
    if not hasattr(optimizer, "param_groups") or isinstance(optimizer, torch.optim.LBFGS):
        raise InputError(f"expected an optimizer that steps once per gradient, but got {type(optimizer).__name__}")
    if not isinstance(criterion, Criterion):
        raise InputError(f"expected a criterion such as rcad.RCAD(alpha=..., lam=...), but got {criterion!r}")
    if autocast not in (None, torch.bfloat16, torch.float16):
        raise InputError(f"expected autocast to be torch.bfloat16 or torch.float16, but got {autocast}")
    if clip is not None:
        finite("clip", clip, above=0.0)
    fraction("decay", decay)
    if average is not None and _shapes(average) != _shapes(model):
        raise InputError("expected average to be a copy of the model, but its tensors differ; use copy.deepcopy(model)")
    if compiled and goes_back_twice(criterion.loss.plan(0)):
        log.warning("the model is not compiled: this method runs a pass backward twice")
        compiled = False
    scaler = scaler if scaler is not None and scaler.is_enabled() else None
    return CapturedStep(model, optimizer, criterion, clip, autocast, scaler, average, decay, generator, compiled)


class Kind(NamedTuple):
    """What a graph holds fixed; steps that differ in it have graphs of their own."""

    inputs: tuple[Any, ...]
    modes: tuple[Any, ...]
    terms: tuple[Any, ...]
    settings: tuple[Any, ...]


class _Fast(NamedTuple):
    """The means of the engine, for models of torch's layers in bf16: equal up to rounding, and faster."""

    twin: Twin
    sgd: ClippedSGD | None
    clip: float | None


@dataclass(eq=False)
class _Held:
    """One kind of step: the memory that its batches are copied to, and what it gives."""

    batch: Batch
    net: nn.Module
    fast: _Fast | None
    loss: object  # its address is part of the kind
    losses: Losses | None = None
    warm: int = 0
    passes: int = 0
    settled: bool = False  # the last step replaced no tensor by another
    refused: str | None = None


@dataclass(eq=False)
class CapturedStep:
    """See `capture`.

    Attributes:
        captured: whether the last step was a graph's.
        reason: why it was not, where something stands in the way of graphs.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    criterion: Criterion
    clip: float | None
    autocast: torch.dtype | None
    scaler: torch.amp.GradScaler | None
    average: nn.Module | None
    decay: float
    generator: torch.Generator | None
    compiled: bool

    def __post_init__(self) -> None:
        self.captured = False
        self.reason: str | None = None
        self._warned: set[str] = set()
        self._graphs = Graphs()
        self._held: dict[Kind, _Held] = {}
        self._memory: tuple[Any, ...] | None = None
        self._lasting: str | None = None
        self._steady, self._restless = 0, 0
        self._form = GraphForm(self.optimizer, scaled=self.scaler is not None)
        self._queue: Any = None
        self._fast: _Fast | None = None
        self._first: tuple[Any, ...] | None = None

    def __call__(
        self,
        x: Inputs,
        y: Tensor,
        *,
        weight: Tensor | None = None,
        raw: Inputs | None = None,
        raw_target: Tensor | None = None,
        step: int | None = None,
    ) -> Losses:
        """Takes one step and returns its losses, detached. The gradients that it made are gone afterwards.

        Args:
            x, y: on any device; pinned memory is copied without waiting.
            weight, raw, raw_target, step: see `Objective.forward`.
        """
        number = self.criterion._counter.next(step)
        options = {"weight": weight, "raw": raw, "raw_target": raw_target}
        batch: Batch = {"x": x, "y": y} | {name: value for name, value in options.items() if value is not None}
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        self.captured, self.reason = False, None
        if device.type not in DEVICES or not torch.is_grad_enabled():
            return self._take(mapped(batch, lambda t: t.to(device, non_blocking=True)), number, device, self.model)
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return self._step(batch, number, device)

    def _step(self, batch: Batch, number: int, device: torch.device) -> Losses:
        self._look_around(device)
        leaves = leaves_of(batch)
        kind = self._kind(leaves, number, device)
        self.reason = self._lasting
        if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves.values()):
            self.reason = "the batch is part of a larger graph, which learns from it"
        elif self.reason is None and not self.criterion.settled:
            self.reason = "alpha is being measured on the first batches"
        elif self.reason is None and kind not in self._held and len(self._held) >= MOST:
            last = next(reversed(self._held))
            names = [name for name in Kind._fields if getattr(kind, name) != getattr(last, name)]
            self.reason = f"there are more than {MOST} kinds of steps; {', '.join(names)} changed again"
        if self.reason is not None:
            self._warn(self.reason)
            moved = mapped(batch, lambda t: t.to(device, non_blocking=True))
            if self._lasting is not None:
                return self._take(moved, number, device, self.model)
            self._form.send_rates()
            with self._form.worn():
                return self._take(moved, number, device, self.model)
        if kind not in self._held:
            self._held[kind] = self._hold(kind, batch, device)
        held = self._held[kind]
        for name, room in leaves_of(held.batch).items():
            if isinstance(room, Tensor):
                room.copy_(leaves[name], non_blocking=True)
        self._form.send_rates()
        if kind not in self._graphs:
            with self._aside(device), self._form.worn():
                if held.warm >= WARM_UP and held.settled and held.refused is None:
                    self._capture(kind, held, number, device)
                if kind not in self._graphs:
                    self._warm_up(held, number, device)
        if kind in self._graphs:
            self._graphs[kind].replay()
            self.captured = True
        elif held.refused is not None:
            self.reason = self._warn(held.refused)
        self._steady += 1
        assert held.losses is not None
        total, parts, output = held.losses
        copies = {name: part.clone() for name, part in parts.items()}
        return Losses(total.clone(), copies, None if output is None else output.clone())

    def _take(
        self, batch: Batch, number: int, device: torch.device, net: nn.Module, fast: _Fast | None = None
    ) -> Losses:
        self._drop_gradients()
        after_pass = None
        if fast is not None:
            fast.twin.cast()  # from the weights as they are now: they may come from a checkpoint
            fast.twin.forget()
            after_pass = fast.twin.gather if fast.sgd is None else fast.twin.keep
        with self._precision(device), own_kernels() if fast is not None else nullcontext():
            losses = self.criterion.backward(
                net, **batch, scaler=self.scaler, generator=self.generator, step=number, after_pass=after_pass
            )
        if fast is not None and fast.sgd is not None:
            fast.sgd.step([[grads] for grads in fast.twin.passes])
            self.optimizer._opt_called = True  # type: ignore[attr-defined]  # schedulers ask whether it has stepped
        else:
            if fast is not None:
                fast.twin.deliver()
            self._update()
        if fast is not None:
            fast.twin.count()
        if self.average is not None:
            update_average(self.average, self.model, self.decay)
        self._drop_gradients()
        return losses

    def _update(self) -> None:
        if self.clip is not None:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def _drop_gradients(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.optimizer.zero_grad(set_to_none=True)

    def _precision(self, device: torch.device) -> AbstractContextManager[object]:
        outside = torch.is_autocast_enabled(device.type)
        dtype = self.autocast or (torch.get_autocast_dtype(device.type) if outside else None)
        # Where autocast goes on after the step, casts must not be kept: the weights will have moved.
        return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype, cache_enabled=not outside)

    def _warm_up(self, held: _Held, number: int, device: torch.device) -> None:
        before = self._memory
        held.losses = self._take(held.batch, number, device, held.net, held.fast)
        held.passes = 0 if held.fast is None else len(held.fast.twin.passes)
        held.warm += 1
        self._memory = self._addresses()
        held.settled = self._memory == before
        if held.warm >= MOST and not held.settled:
            held.refused = "each step replaces tensors of the model or the optimizer by others"

    def _capture(self, kind: Kind, held: _Held, number: int, device: torch.device) -> None:
        sgd = None if held.fast is None else held.fast.sgd
        if sgd is not None:
            sgd.make_room(held.passes)

        def take() -> None:
            held.losses = self._take(held.batch, number, device, held.net, held.fast)

        generators = [] if self.generator is None else [self.generator]
        reason = self._graphs.capture(kind, take, device, generators)
        if reason is not None:
            held.refused = f"it cannot be captured in a CUDA graph ({reason})"
            if self.scaler is not None:
                self.scaler._per_optimizer_states.clear()  # it may have been left between unscaling and update
        elif sgd is not None:
            sgd.settle()

    def _look_around(self, device: torch.device) -> None:
        """Forgets the graphs if something that they reach by its address is no longer there."""
        addresses = self._addresses()
        if addresses == self._memory:
            return
        self._restless = 0 if self._steady > WARM_UP + 1 else self._restless + 1
        self._steady = 0
        self._graphs.clear()
        self._held.clear()
        self._fast = None
        self._lasting = self._obstacle(device)
        if self._lasting is None:
            self._form.prepare(device)
        self._memory = self._addresses()

    def _addresses(self) -> tuple[Any, ...]:
        """Where everything lies that a step reads and writes, and which weights learn."""
        places: list[Any] = []
        for net in (self.model, self.average):
            for module in () if net is None else net.modules():
                for tensor in (*module._parameters.values(), *module._buffers.values()):
                    if tensor is not None:
                        places += (address(tensor), tensor.requires_grad)
        places += self._form.addresses()
        if self.scaler is not None and self.scaler._scale is not None:
            places.append(address(self.scaler._scale))
        return tuple(places)

    def _obstacle(self, device: torch.device) -> str | None:
        """Why no step of this model and optimizer can be captured."""
        if self._restless > MOST:
            return "tensors of the model or the optimizer are replaced by others between the steps"
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        if isinstance(self.model, nn.DataParallel) or (several and torch.distributed.get_world_size() > 1):
            return "several devices exchange their gradients"
        if any(parameter.device != device for parameter in self.model.parameters()):
            return "the model's parameters lie on several devices"
        if self.generator is not None and self.generator.device.type != device.type:
            return f"its generator draws on the {self.generator.device.type}, not on the {device.type}"
        return self._form.obstacle()

    def _kind(self, leaves: Mapping[str, Any], number: int, device: torch.device) -> Kind:
        loss, scaler = self.criterion.loss, self.scaler
        settings: list[Any] = [torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)]
        settings += [torch.are_deterministic_algorithms_enabled(), self.clip, self.decay, self.autocast]
        if scaler is not None:
            settings += [scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()]
        return Kind(
            tuple((name, *facts(leaf)) for name, leaf in leaves.items()),
            tuple(module.training for module in self.model.modules()),
            (id(loss), *(number % period == 0 for period in loss.periods)),
            (*settings, self._form.fixed()),
        )

    def _hold(self, kind: Kind, batch: Batch, device: torch.device) -> _Held:
        fast = self._means_of_the_engine(device)
        net = self.model if fast is None else fast.twin.model
        self._first = self._first or kind.inputs
        if self.compiled and kind.inputs == self._first:
            net = cast(nn.Module, torch.compile(net, dynamic=False))
        in_rows = fast is not None and any(map(channels_last, self.model.parameters()))
        return _Held(mapped(batch, lambda t: room_for(t, device, in_rows)), net, fast, self.criterion.loss)

    def _means_of_the_engine(self, device: torch.device) -> _Fast | None:
        exact = torch.are_deterministic_algorithms_enabled() or self.scaler is not None
        if exact or self.autocast != torch.bfloat16 or not _plain(self.model):
            return None
        if self._fast is None or self._fast.clip != self.clip:
            twin, sgd = Twin(self.model, torch.bfloat16), None
            if not self.compiled:
                use_in(twin.model)
            run = Run(self.optimizer, twin.weights, cast(list[Tensor], twin.leaves))
            learned = {p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad}
            if learned == set(twin.weights) and suits(run):
                sgd = ClippedSGD([run], self.clip)
                self._memory = self._addresses()  # with the momentum that was made now
            self._fast = _Fast(twin, sgd, self.clip)
        return self._fast

    @contextmanager
    def _aside(self, device: torch.device) -> Iterator[None]:
        """Inside, work goes to a queue of its own, since the default one cannot be captured; others wait for it."""
        if device.type != "cuda":
            yield
            return
        if self._queue is None or self._queue.device != device:
            self._queue = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(device)
        self._queue.wait_stream(current)
        try:
            with torch.cuda.stream(self._queue):
                yield
        finally:
            current.wait_stream(self._queue)

    def _warn(self, reason: str) -> str:
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("rcad.capture: the step is taken eagerly, since %s", reason)
        return reason


def _shapes(model: nn.Module) -> list[list[torch.Size]]:
    return [[p.shape for p in model.parameters()], [b.shape for b in model.buffers()]]


def _plain(model: nn.Module) -> bool:
    """Whether all layers with weights are torch's or ours, in fp32 and training, and nobody else holds the weights."""
    if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
        return False
    for module in model.modules():
        hooks = (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)
        lists = [value for value in vars(module).values() if isinstance(value, list | tuple)]
        foreign = bool(module._parameters) and not type(module).__module__.startswith(("torch.nn.modules", "rcad."))
        if foreign or not module.training or any(hooks):
            return False
        if any(isinstance(item, Tensor) for value in lists for item in value):
            return False
    return True
