"""One step for several runs: their networks are joined, everything else of theirs stays their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rcad.errors import InputError
from rcad.kernels.fused_sgd import same_order
from rcad.loss.augmentations import Alternating, Source, alternating
from rcad.models.joined import Joined
from rcad.train.step import Update


class JoinedUpdate(Update):
    """What a step of several runs changes: each keeps its data, randomness, optimizer, averages and sums.

    Args:
        runs: of one setting; their models' weights and their sums become views of this one's. Those that cannot be
            joined are an InputError.
    """

    def __init__(self, runs: Sequence[Update]) -> None:
        first = runs[0]
        if any(run.method != first.method for run in runs):
            raise InputError("expected runs of one method to join, but their settings differ")
        if first.method.growth is not None:
            raise InputError("expected training sets that stay as they are to join runs, but these grow")
        if any(run.x.shape != first.x.shape for run in runs):
            raise InputError("expected training sets of one size to join runs, but theirs differ")
        names = [dict(run.model.named_parameters()) for run in runs]
        super().__init__(
            config=first.config,
            method=first.method,
            criterion=first.criterion,
            model=Joined([run.model for run in runs]),
            average=None,
            optimizer=first.optimizer,
            generator=first.generator,
            sums=torch.stack([run.sums for run in runs]),
            classes=first.classes,
            x=first.x,
            y=first.y,
        )
        self._runs, self._source = tuple(runs), Alternating([run.generator for run in runs])
        for run, row in zip(runs, self.sums, strict=True):
            run.sums.data = row
        self._owned = {
            parameter: [mine[name] for mine in names]
            for name, parameter in self.model.get_submodule("network").named_parameters()
        }

    @property
    def members(self) -> Sequence[Update]:
        return self._runs

    @property
    def source(self) -> Source:
        return self._source

    def owned(self, weights: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
        return [[self._owned[weight][run] for weight in weights] for run in range(len(self._runs))]

    def split(self, weights: Sequence[nn.Parameter], tensors: Sequence[Tensor | None]) -> list[list[Tensor | None]]:
        parts = [self._parts(weight, tensor) for weight, tensor in zip(weights, tensors, strict=True)]
        return [[part[run] for part in parts] for run in range(len(self._runs))]

    def hand_out(self) -> None:
        for weight, own in self._owned.items():
            for parameter, part in zip(own, self._parts(weight, weight.grad), strict=True):
                parameter.grad = part

    def examples(self, index: Tensor) -> tuple[Tensor, Tensor]:
        found = [(run.x[mine], run.y[mine]) for run, mine in zip(self._runs, index, strict=True)]
        return alternating([x for x, _ in found]), alternating([y for _, y in found])

    def _parts(self, weight: nn.Parameter, tensor: Tensor | None) -> list[Tensor | None]:
        """Views of a tensor that lies in memory as the weight does, or of its copy that does."""
        own = self._owned[weight]
        if tensor is None:
            return [None] * len(own)
        if not same_order(tensor, weight):
            tensor = torch.empty_like(weight, dtype=tensor.dtype).copy_(tensor)
        begin = tensor.storage_offset() - weight.storage_offset()
        return [tensor.as_strided(part.shape, part.stride(), begin + part.storage_offset()) for part in own]
