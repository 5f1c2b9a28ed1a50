"""One optimizer step: indices in, updated weights out. Only tensors are touched, so no GPU is ever waited for.

And who takes it: one process, or several (`Ranks`, with `rcad.train.cluster.ranks`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor, nn

from rcad.errors import InputError
from rcad.loss.augmentations import Source, augment
from rcad.loss.criterion import Criterion
from rcad.loss.growth import as_unit_float
from rcad.loss.methods import Method
from rcad.runs.config import RunConfig
from rcad.runs.words import plural
from rcad.train.place import Engine

if TYPE_CHECKING:
    from rcad.data.decoders import Pixels
    from rcad.data.streams import Index, Stream

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes that make a run together, and which of them this is; the first, 0, keeps the record."""

    rank: int = 0
    size: int = 1
    sync_batch_norm: bool = True  # its statistics are those of whole batches, not of each process's part

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def part(self, count: int) -> slice:
        """This process's part of so many examples; all of them where there are fewer than processes."""
        if count < self.size:
            return slice(0, count)
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def together(self, make: Callable[[], T]) -> T:
        """What `make` gives in each process. An InputError in one of them is raised in all."""
        if self.size == 1:
            return make()
        result: T | InputError
        try:
            result = make()
        except InputError as error:
            result = error
        messages: list[str | None] = [None] * self.size
        torch.distributed.all_gather_object(messages, str(result) if isinstance(result, InputError) else None)
        if isinstance(result, InputError):
            raise result
        for rank, message in enumerate(messages):
            if message is not None:
                raise InputError(f"process {rank}: {message}")
        return result

    def of_first(self, make: Callable[[], T]) -> T:
        """What the first process makes, in all of them."""
        if self.size == 1:
            return make()
        values = [make() if self.leads else None]
        torch.distributed.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]  # type: ignore[return-value]

    def any(self, answer: bool) -> bool:
        """Whether the answer is yes in at least one process."""
        if self.size == 1:
            return answer
        votes = torch.tensor([float(answer)])  # on the CPU: no GPU is waited for
        torch.distributed.all_reduce(votes)
        return bool(votes)

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum over all of them; the tensor itself stays."""
        if self.size > 1:
            tensor = tensor.clone()
            torch.distributed.all_reduce(tensor)
        return tensor

    def share_buffers(self, model: nn.Module) -> None:
        """Gives every process the first one's buffers, where each has statistics of its own."""
        if self.size > 1 and not self.sync_batch_norm:
            for buffer in model.buffers():
                torch.distributed.broadcast(buffer, 0)

    def rows(self, count: int, batch: int) -> slice:
        """Which examples this one evaluates: whole batches; all of them where there are fewer than processes."""
        part = self.part(-(-count // batch))
        return slice(part.start * batch, min(part.stop * batch, count))

    def gather(self, output: Tensor, count: int, batch: int) -> Tensor:
        """The outputs for all examples, from those for `rows` in each process."""
        if len(output) == count:
            return output
        parts = [Ranks(rank, self.size).rows(count, batch) for rank in range(self.size)]
        sizes = [part.stop - part.start for part in parts]
        padded = output.new_zeros(max(sizes), *output.shape[1:])
        padded[: len(output)] = output
        outputs = [torch.empty_like(padded) for _ in sizes]
        torch.distributed.all_gather(outputs, padded)
        return torch.cat([rows[:size] for rows, size in zip(outputs, sizes, strict=True)])

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """The model, whose BatchNorm takes the statistics of whole batches; the layers keep their names."""
        if self.size > 1 and self.sync_batch_norm:
            from rcad.train.cluster.ranks import WholeBatchNorm

            for layer in model.modules():
                if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                    layer.__class__ = WholeBatchNorm  # type: ignore[assignment]
        return model


ALONE = Ranks()


class Streamed:
    """uint8 images (N, C, H, W) that come to the device as they are indexed.

    What `expect` was told is decoded ahead; whatever else is asked for is decoded then.
    """

    ndim, dtype = 4, torch.uint8

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self.stream, self.device = stream, device
        self.shape = torch.Size(stream.shape)
        self._expected: Iterator[Index] = iter(())
        self._coming: Iterator[Tensor] = iter(())

    def __len__(self) -> int:
        return len(self.stream)

    def expect(self, batches: Iterable[Tensor]) -> None:
        """The next batches will be the examples with these indices."""
        indices: Sequence[Index] = [part.numpy() for part in batches]
        self._expected, self._coming = iter(indices), self._sent(indices)

    def __getitem__(self, index: Tensor) -> Tensor:
        rows: Index = index.cpu().numpy()
        expected = next(self._expected, None)
        if expected is None or len(expected) != len(rows) or (expected != rows).any():
            self._expected, self._coming = iter(()), iter(())
            return next(self._sent([rows]))
        return next(self._coming)

    def split(self, size: int, rows: slice) -> Iterator[Tensor]:
        """These of them in order, in parts."""
        return self._sent(part.numpy() for part in torch.split(torch.arange(len(self))[rows], size))

    def _sent(self, indices: Iterable[Index]) -> Iterator[Tensor]:
        """Batches on the device: a GPU takes them from where they were decoded, without a copy and without waiting."""
        on_gpu = self.device.type == "cuda"
        ahead: deque[Tensor] = deque()

        def empty(shape: tuple[int, ...]) -> Pixels:
            ahead.append(torch.empty(shape, dtype=torch.uint8, pin_memory=on_gpu))
            pixels: Pixels = ahead[-1].numpy()
            return pixels

        for _ in self.stream.batches(indices, empty):
            yield ahead.popleft().to(self.device, non_blocking=on_gpu)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise InputError(
            "expected images in memory to measure distances, but these are streamed from disk; give alpha a number"
        )


def in_parts(x: Tensor | Streamed, size: int, rows: slice = slice(None)) -> Iterable[Tensor]:
    """These of the examples in order, so many at a time."""
    return x.split(size, rows) if isinstance(x, Streamed) else torch.split(x[rows], size)


class Batch(NamedTuple):
    """Examples as the loss takes them: augmented, and as they are stored, pixels in [0, 1]."""

    x: Tensor
    target: Tensor
    raw: Tensor
    y: Tensor
    source: Source  # where random numbers for them come from
    share: float = 1.0  # what they count, where a batch is taken in parts


class Plan(NamedTuple):
    """The batches that one optimizer step takes."""

    turn: int  # which optimizer step of the epoch this is
    start: int  # where its first example stands in the epoch's order
    sizes: tuple[int, ...]  # examples in each of its batches; several where gradients are accumulated
    number: int  # how many batches the run has seen before, for terms that rest at some


@dataclass(eq=False)
class Update:
    """What a step changes, and how."""

    config: RunConfig
    method: Method
    criterion: Criterion
    model: nn.Module
    average: nn.Module | None  # of the weights, moving
    optimizer: torch.optim.Optimizer
    generator: torch.Generator  # the source of augmentations and random directions
    sums: Tensor  # loss, correct predictions and examples of the epoch under way
    classes: int
    x: Tensor | Streamed  # the training examples
    y: Tensor

    @property
    def members(self) -> Sequence[Update]:
        """The runs that the step is taken for: this one."""
        return (self,)

    @property
    def source(self) -> Source:
        """Where the members' random numbers come from."""
        return self.generator

    def network(self, *, last: bool) -> AbstractContextManager[nn.Module]:
        """What a batch of a step goes through; gradients need be exchanged in the last one only."""
        return nullcontext(self.model)

    def __call__(self, group: Sequence[Tensor], number: int) -> None:
        self.forget()
        sizes = [index.shape[-1] for index in group]
        for offset, index in enumerate(group, 1):
            with self.network(last=offset == len(group)) as network:
                self.batch(network, index, sizes, number + offset - 1)
        self.hand_out()
        for member in self.members:
            if self.config.optim.clip is not None:
                nn.utils.clip_grad_norm_(member.model.parameters(), self.config.optim.clip)
            member.optimizer.step()
        self.follow()

    def owned(self, weights: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
        """Each member's own parameters behind these of the model."""
        return [list(weights)]

    def split(self, weights: Sequence[nn.Parameter], tensors: Sequence[Tensor | None]) -> list[list[Tensor | None]]:
        """Each member's part of tensors that belong to these weights of the model."""
        return [list(tensors)]

    def forget(self) -> None:
        """Lets go of the gradients of the step before."""
        for update in (self, *self.members):
            update.model.zero_grad(set_to_none=True)

    def hand_out(self) -> None:
        """Gives the members their gradients; a run by itself has them."""

    def follow(self) -> None:
        for member in self.members:
            if member.average is not None:
                update_average(member.average, member.model, member.config.train.ema or 0.0)

    def expected(self, index: Tensor) -> Tensor:
        """Those of a batch's examples that `examples` will be asked for."""
        return index

    def examples(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]

    def load_batch(self, index: Tensor) -> Batch:
        """The examples with these indices, augmented."""
        stored, y = self.examples(index)
        raw = self._ordered(as_unit_float(stored))
        x, target = augment(self.method.augment, raw, y, classes=self.classes, generator=self.source)
        # Crops come out in the common order, whatever they were cut from.
        return Batch(self._ordered(x), target, raw, y, self.source)

    def batch(
        self,
        model: nn.Module,
        index: Tensor,
        sizes: Sequence[int],
        number: int,
        after_pass: Callable[[], None] | None = None,
    ) -> None:
        """One batch of a step whose batches have these sizes forward and backward, through the model or a twin of it.

        Each counts by its examples. In groups of equal ones the factor is exactly 1.
        """
        x, target, raw, y, source, share = self.load_batch(index)
        half, device = self.config.train.precision != "fp32", self.x.device.type
        with torch.autocast(device, dtype=torch.bfloat16) if half else nullcontext(), _several_numbers(len(y)):
            losses = self.criterion.backward(
                model,
                x,
                target,
                raw=raw,
                raw_target=y,
                accumulate=len(sizes),
                share=share * (index.shape[-1] * len(sizes) / sum(sizes)),
                generator=source,
                step=number,
                after_pass=after_pass,
            )
        each = len(y) // len(self.members)
        self.sums[..., 0] += losses.total * each
        self.sums[..., 2] += each
        if self.classes and losses.output is not None:
            hits = losses.output.argmax(1) == y
            self.sums[..., 1] += hits.view(-1, *self.sums.shape[:-1]).sum(0)

    def _ordered(self, x: Tensor) -> Tensor:
        """Images in the memory format that was asked for; a table has but one."""
        channels_last = self.config.train.channels_last and x.ndim == 4
        return x.contiguous(memory_format=torch.channels_last) if channels_last else x


@contextmanager
def _several_numbers(examples: int) -> Iterator[None]:
    """BatchNorm's complaint of a channel that has but one number, in words that say what to do."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise InputError(
            "expected several numbers in each channel for BatchNorm's statistics, but got a batch of "
            f"{plural(examples, 'example')}; take another train.batch_size, or model.norm=group"
        ) from None


class Stepper:
    """Takes the steps of an epoch one after the other."""

    name = "eager"

    def __init__(self, update: Update) -> None:
        self.update = update
        self.order = torch.empty(0, dtype=torch.int64)
        self.rates: Sequence[float] = ()

    def begin(self, order: Tensor, rates: Sequence[float], first: Plan) -> None:
        """The epoch's order of examples and the learning rate of each optimizer step; `first` is the next one."""
        x = self.update.x
        if isinstance(x, Streamed):  # images on disk are read ahead from the next step on
            batches = torch.split(order[first.start :], self.update.config.train.batch_size)
            x.expect(map(self.update.expected, batches))
        else:
            order = order.to(x.device)
        self.order, self.rates = order, rates

    @property
    def settled(self) -> bool:
        """Whether the steps so far have taken the memory that all will need."""
        return True

    def step(self, plan: Plan) -> None:
        """Take one step; returns as soon as it is launched, or asked for where others step with this run."""
        for member in self.update.members:
            for group in member.optimizer.param_groups:
                group["lr"] = self.rates[plan.turn]
        examples = self.order[..., plan.start : plan.start + sum(plan.sizes)]
        self.update(torch.split(examples, list(plan.sizes), -1), plan.number)

    def agreed(self, answer: bool, question: str = "pause") -> bool:
        """Whether to pause, or to stop, after this step, where others that step with this run must as well."""
        return answer


def stepper_for(update: Update, engine: Engine) -> Stepper:
    if engine == "eager" or isinstance(update.x, Streamed):  # a captured step gathers its examples itself
        return Stepper(update)
    from rcad.train.cuda_graph import Captured

    return Captured(update, compiled=engine == "compile")


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """average <- decay * average + (1 - decay) * model; buffers are copied."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
    for target, source in zip(average.buffers(), model.buffers(), strict=True):
        target.copy_(source)
