"""The whole step as one CUDA graph: gather, augmentation, passes, clipping, optimizer, in a single launch.

At small batches an eager step spends most of its time launching kernels. A graph is launched once; where the epoch
stands, which examples come next and at which learning rate are tensors on the device, which the graph itself moves on.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rcad.kernels.bn_relu import own_kernels
from rcad.kernels.fused_sgd import ClippedSGD, Run, suits
from rcad.loss.fused import goes_back_twice
from rcad.train.machine import timed
from rcad.train.step import Plan, Stepper, Update

log = logging.getLogger("rcad")

WARM_UP = 2
"""Steps of each kind that run eagerly first: they choose algorithms, compile, and fill the optimizer's memory."""

Kind = tuple[tuple[int, ...], tuple[bool, ...]]

CAST = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)  # the layers whose parameters autocast would cast


class Twin:
    """The same model for passes in lower precision, and its gradients gathered in few kernels.

    Autocast casts every weight in every pass, and autograd adds every parameter's gradient in a kernel of its own: for
    a ResNet-18 and RCAD's two passes, 140 of 730 kernels, each too small to fill a GPU. Here the weights are cast
    together once a step and the passes' gradients are added together, or kept for an optimizer that adds them as it
    reads them. The numbers are autocast's own: products in bf16, gradients brought to fp32 before they are summed.
    BatchNorm's count of batches, which no average here depends on, is kept up once a step instead of by a kernel per
    layer. Everything but the cast weights is shared with the original, whose weights, in fp32, are trained; for
    torch.float32 nothing is cast, and the twin is the model itself.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.model = model if dtype == torch.float32 else copy.deepcopy(model).train()
        leaves: dict[nn.Parameter, nn.Parameter] = {}
        self._layers: list[_BatchNorm] = []
        self._counts: list[Tensor] = []
        for own, other in zip(model.modules(), self.model.modules(), strict=True):
            for name, parameter in own._parameters.items():
                if parameter is None:
                    continue
                if parameter not in leaves:
                    narrow = isinstance(own, CAST) and dtype != torch.float32
                    leaf = nn.Parameter(parameter.detach().to(dtype), parameter.requires_grad) if narrow else parameter
                    leaves[parameter] = leaf
                other._parameters[name] = leaves[parameter]
            other._buffers.update(own._buffers)
            if own is not other and isinstance(own, _BatchNorm) and isinstance(other, _BatchNorm):
                count = own.num_batches_tracked
                if own.momentum is not None and count is not None:
                    other._buffers["num_batches_tracked"] = None  # the original keeps it
                    self._layers.append(other)
                    self._counts.append(count)
        self.weights = [p for p in leaves if p.requires_grad]
        self.leaves = [leaves[p] for p in self.weights]
        self.passes: list[list[Tensor | None]] = []
        self._cast = [(p, leaf) for p, leaf in leaves.items() if leaf is not p]
        self._sums: list[Tensor | None] = []
        self._advances = 0

    @torch.no_grad()
    def cast(self) -> None:
        """Brings the cast weights up to date."""
        if self._cast:
            torch._foreach_copy_([leaf for _, leaf in self._cast], [weight for weight, _ in self._cast])

    def forget(self) -> None:
        for weight, leaf in zip(self.weights, self.leaves, strict=True):
            weight.grad = leaf.grad = None
        self._sums, self._advances, self.passes = [None] * len(self.leaves), 0, []

    def keep(self) -> None:
        """Takes the gradients of the pass that has just run backward, as they are, into `passes`."""
        self._advances += bool(self._layers and self._layers[0].track_running_stats)  # off in the passes that only look
        self.passes.append([leaf.grad for leaf in self.leaves])
        for leaf in self.leaves:
            leaf.grad = None

    @torch.no_grad()
    def gather(self) -> None:
        """Takes the gradients of the pass that has just run backward, so that the next one finds none to add to."""
        self.keep()
        fresh = self.passes.pop()
        narrow = {place: grad for place, grad in enumerate(fresh) if grad is not None and grad.dtype != torch.float32}
        if narrow:
            wide = [torch.empty_like(grad, dtype=torch.float32) for grad in narrow.values()]
            torch._foreach_copy_(wide, list(narrow.values()))
            for place, grad in zip(narrow, wide, strict=True):
                fresh[place] = grad
        pairs = [(old, new) for old, new in zip(self._sums, fresh, strict=True) if old is not None and new is not None]
        if pairs:
            torch._foreach_add_([old for old, _ in pairs], [new for _, new in pairs])
        self._sums = [new if old is None else old for old, new in zip(self._sums, fresh, strict=True)]

    @torch.no_grad()
    def deliver(self) -> None:
        """Gives the sums to the original's `.grad`, where clipping and the optimizer look for them."""
        for weight, total in zip(self.weights, self._sums, strict=True):
            weight.grad = total

    @torch.no_grad()
    def count(self) -> None:
        """Moves BatchNorm's counters on by the passes that moved its averages."""
        if self._counts and self._advances:
            torch._foreach_add_(self._counts, self._advances)


class Graphs(dict[Hashable, torch.cuda.CUDAGraph]):
    """Captured steps by their kind.

    One pool serves all of them: no two run at once, and all that outlives a replay is held by whoever captured it.
    """

    pool: Any = None

    def capture(
        self, kind: Hashable, take: Callable[[], None], device: torch.device, generators: Sequence[torch.Generator]
    ) -> str | None:
        """Captures what `take` does, drawing from these generators, without doing it; the reason where that fails."""
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        current = torch.cuda.current_stream(device)
        # The default stream cannot be captured.
        stream = None if current == torch.cuda.default_stream(device) else current
        try:
            # "thread_local": other threads, such as a data reader, may go on using the device.
            with torch.cuda.graph(graph, self.pool, stream, capture_error_mode="thread_local"):
                take()
        except RuntimeError as error:
            # It leaves generators that refuse to draw, as if it went on; copies of their states do not.
            for generator in (*generators, torch.cuda.default_generators[device.index or 0]):
                generator.graphsafe_set_state(generator.clone_state())
            return (str(error).strip() or type(error).__name__).splitlines()[0]
        self.pool = self.pool or graph.pool()
        self[kind] = graph
        return None

    def clear(self) -> None:
        super().clear()
        self.pool = None


class Captured(Stepper):
    """Replays captured steps; the first ones of each kind, and all where capture fails, are taken eagerly.

    Steps differ in kind by the sizes of their batches (the last batch of an epoch may be smaller) and by the terms
    that rest. Every kind has its own graph; no example is dropped or padded. Full-sized batches may be compiled.
    The optimizer must be made for capture: fused, with tensors for learning rates.
    """

    def __init__(self, update: Update, *, compiled: bool) -> None:
        super().__init__(update)
        if compiled and goes_back_twice(update.criterion.loss.plan(0)):
            # A compiled pass may give its memory away in its first backward, and remembers that in a cache on disk.
            log.warning("the model is not compiled: this method runs a pass backward twice; the steps are captured")
            compiled = False
        self.name = "graph, compiled" if compiled else "graph"
        half = update.config.train.precision == "bf16" and not update.config.model.name.startswith("timm:")
        self._twin = Twin(update.model, torch.bfloat16 if half else torch.float32)
        self._compiled: nn.Module = self._twin.model
        if compiled:
            self._compiled = cast(nn.Module, torch.compile(self._twin.model, dynamic=False))
        self._thorough = compiled or len(update.members) > 1
        self._sgd: ClippedSGD | None = None
        owned, leaves = update.owned(self._twin.weights), update.split(self._twin.weights, self._twin.leaves)
        runs = [
            Run(member.optimizer, own, cast(list[Tensor], twins))
            for member, own, twins in zip(update.members, owned, leaves, strict=True)
        ]
        if all(suits(run) for run in runs):
            self._sgd = ClippedSGD(runs, update.config.optim.clip)
        self._full = update.config.train.batch_size
        self._graphs = Graphs()
        self._warm: Counter[Kind] = Counter()
        self._passes: dict[Kind, int] = {}
        self._periods = sorted({term.every for term in update.criterion.loss.terms} - {1})
        device = update.x.device
        self._where = torch.zeros(2, dtype=torch.int64, device=device)  # the next step, the next example
        self._ahead = torch.arange(max(self._full, 1), device=device)
        self._order = torch.empty(0, dtype=torch.int64, device=device)
        self._rates = torch.empty(0, device=device)

    @property
    def settled(self) -> bool:
        return bool(self._graphs) or self.name == "eager"

    def begin(self, order: Tensor, rates: Sequence[float], first: Plan) -> None:
        if order.shape != self._order.shape or len(rates) != len(self._rates):
            self._forget(order, rates)
        self.rates = rates
        _send(order, self._order)
        _send(torch.tensor(rates), self._rates)
        _send(torch.tensor([first.turn, first.start]), self._where)
        self._twin.cast()

    def step(self, plan: Plan) -> None:
        kind = self._kind(plan)
        if kind in self._graphs:
            self._graphs[kind].replay()
            return
        whose = f"{self.update.method.name}, batches {plan.sizes}, {len(self.update.members)} joined"
        if self._warm[kind] >= WARM_UP:
            with timed("capture", whose, self.update.x.device):
                self._capture(kind, plan)
        if kind in self._graphs:
            self._graphs[kind].replay()
            return
        self._warm[kind] += 1
        thorough = self._thorough and set(plan.sizes) == {self._full}
        stage = "search" if self._warm[kind] == 1 else "warm-up"
        with timed(stage, whose, self.update.x.device), _all_convolutions() if thorough else nullcontext():
            self._take(plan)
        self._passes[kind] = len(self._twin.passes)

    def _kind(self, plan: Plan) -> Kind:
        numbers = range(plan.number, plan.number + len(plan.sizes))
        return plan.sizes, tuple(number % period == 0 for period in self._periods for number in numbers)

    def _take(self, plan: Plan) -> None:
        """The step itself, in terms of tensors that stay where they are; eager or under capture."""
        rate = self._rates.index_select(0, self._where[:1]).view(())
        for member in self.update.members:
            for group in member.optimizer.param_groups:
                group["lr"].copy_(rate)
        batches, done = [], 0
        for size in plan.sizes:
            batches.append(self._order.index_select(-1, self._where[1:] + (self._ahead[:size] + done)))
            done += size
        self.update.forget()
        self._twin.forget()
        after_pass = self._twin.gather if self._sgd is None else self._twin.keep
        for offset, (size, batch) in enumerate(zip(plan.sizes, batches, strict=True)):
            model = self._compiled if size == self._full else self._twin.model
            with own_kernels():
                self.update.batch(model, batch, plan.sizes, plan.number + offset, after_pass)
        if self._sgd is None:
            self._twin.deliver()
            self.update.hand_out()
            for member in self.update.members:
                self._clip(member)
                member.optimizer.step()
            self._twin.cast()
        else:
            self._sgd.step([self.update.split(self._twin.weights, grads) for grads in self._twin.passes])
        self._twin.count()
        self.update.follow()
        self._where[0] += 1
        self._where[1] += done

    def _clip(self, member: Update) -> None:
        """Gradients are shortened by the optimizer's own kernel, which can divide them by a tensor as it reads them."""
        limit = self.update.config.optim.clip
        if limit is not None:
            grads = [p.grad for p in member.model.parameters() if p.grad is not None]
            length = nn.utils.get_total_norm(grads)
            member.optimizer.grad_scale = ((length + 1e-6) / limit).clamp(min=1.0)  # type: ignore[attr-defined]

    def _capture(self, kind: Kind, plan: Plan) -> None:
        if self._sgd is not None:
            self._sgd.make_room(self._passes[kind])
        generators = [member.generator for member in self.update.members]
        reason = self._graphs.capture(kind, lambda: self._take(plan), self.update.x.device, generators)
        if reason is not None:
            log.warning("the step cannot be captured in a CUDA graph (%s); taking it eagerly", reason)
            self.name = "eager"
            self._warm[kind] = -(10**9)  # not tried again
        elif self._sgd is not None:
            self._sgd.settle()

    def _forget(self, order: Tensor, rates: Sequence[float]) -> None:
        """The training set has grown: the graphs point to tensors that are no longer it."""
        device = self.update.x.device
        self._graphs.clear()
        self._warm.clear()
        if self._sgd is not None:
            self._sgd.release()
        self._order = torch.zeros(order.shape, dtype=torch.int64, device=device)
        self._rates = torch.zeros(len(rates), device=device)


@contextmanager
def _all_convolutions() -> Iterator[None]:
    """Where the fastest algorithms are found by trying them: tries all there are, not the ten that look best.

    That takes seconds, and pays for compiled steps and for joined ones, whose grouped layers those would cut up.
    """
    cudnn = torch.backends.cudnn
    before: int | None = cudnn.benchmark_limit
    if before is None:  # a build without cuDNN
        yield
        return
    cudnn.benchmark_limit = 0
    try:
        yield
    finally:
        cudnn.benchmark_limit = before


def _send(source: Tensor, target: Tensor) -> None:
    """A copy to the device that waits for nothing."""
    target.copy_(source.pin_memory() if target.is_cuda else source, non_blocking=True)
