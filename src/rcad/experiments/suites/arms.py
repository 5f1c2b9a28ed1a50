"""What is compared: a method with the configurations it may choose from, equally many for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rcad.composition import Method
from rcad.errors import InputError
from rcad.likelihoods import Gaussian

LARGEST_UNCAPPED = 0.9
"""From this lambda on a Gaussian's entropy without a cap outgrows the loss that holds it."""


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
        first = self.candidates[0]
        return {"structure": repr(first.method), "candidates": [dict(one.numbers) for one in self.candidates]}


def check_cap(method: Method) -> None:
    """Stop before a run that must diverge."""
    uncapped = isinstance(method.likelihood, Gaussian) and method.likelihood.cap is None
    paid = sum(term.weight for term in method.terms if term.measure == "negative_entropy")
    if uncapped and paid >= LARGEST_UNCAPPED:
        raise InputError(
            f"expected a cap on the Gaussian's entropy, or lam < {LARGEST_UNCAPPED:g}, but got cap=None and "
            f"lam={paid:g}: the variance would grow without end; use gaussian(cap=0.0) for standardised targets"
        )


def check_budget(arms: Sequence[Arm]) -> int:
    """The number of configurations, which must be the same for every method."""
    sizes = {arm.name: len(arm.candidates) for arm in arms}
    if len(set(sizes.values())) != 1:
        raise InputError(f"expected the same number of configurations for every method, but got {sizes}")
    return len(arms[0].candidates)
