"""What is compared: a method with the configurations it may choose from, equally many for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rcad.errors import InputError
from rcad.loss.method import Method
from rcad.loss.method_rows import as_first_written
from rcad.train.task import check_cap


@dataclass(frozen=True)
class Candidate:
    """One configuration.

    Args:
        numbers: what was chosen, by name, for the record.
        method: as trained.
        weight_decay: decoupled, of the optimizer.
        epochs: stop here; None for the protocol's last epoch.
        may_diverge: an uncapped entropy is wanted, to show what it does.
    """

    numbers: Mapping[str, float] = field(hash=False)
    method: Method
    weight_decay: float = 0.0
    epochs: int | None = None
    may_diverge: bool = False

    def __post_init__(self) -> None:
        if not self.may_diverge:
            check_cap(self.method)


@dataclass(frozen=True)
class Arm:
    """A method of the table.

    Args:
        name: its row.
        candidates: of one structure (see `train_stacked`), in the order in which ties are broken.
    """

    name: str
    candidates: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """What a record says of it: the same text as long as it is trained the same way."""
        first = self.candidates[0].method
        structure = replace(first, recipe=as_first_written(first.recipe))
        return {"structure": repr(structure), "candidates": [dict(one.numbers) for one in self.candidates]}


def check_budget(arms: Sequence[Arm]) -> int:
    """The number of configurations, which must be the same for every method."""
    sizes = {arm.name: len(arm.candidates) for arm in arms}
    if len(set(sizes.values())) != 1:
        raise InputError(f"expected the same number of configurations for every method, but got {sizes}")
    return len(arms[0].candidates)
