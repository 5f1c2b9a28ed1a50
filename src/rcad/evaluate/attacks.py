"""Attacks as values, and the accuracy that is left under them.

from rcad.evaluate.attacks import APGD, PGD, attacked_accuracy

result = attacked_accuracy(model, x, y, {"pgd": PGD(8 / 255), "apgd": APGD(8 / 255, loss="dlr")})
result.accuracies()  # percent: {"clean": ..., "pgd": ..., "apgd": ..., "worst": ...}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from rcad.errors import InputError, Value, one_of
from rcad.evaluate.apgd import APGD
from rcad.evaluate.attack import Attack
from rcad.evaluate.attack_search import watched
from rcad.evaluate.attacked import Attacked, accuracy_under, attacked_accuracy
from rcad.evaluate.pgd import FGSM, PGD
from rcad.loss.model_calls import Forward, Model

__all__ = [
    "APGD",
    "ATTACKS",
    "FGSM",
    "PGD",
    "Attack",
    "Attacked",
    "Worst",
    "accuracy_under",
    "attacked_accuracy",
    "from_dict",
]

ATTACKS: Mapping[str, type[Attack]] = {"FGSM": FGSM, "PGD": PGD, "APGD": APGD}


@dataclass(frozen=True, repr=False)
class Worst(Value):
    """Several attacks, one after the other: each sees only the examples that withstood those before it."""

    attacks: tuple[Attack, ...]

    def __init__(self, attacks: Sequence[Attack]) -> None:
        if not attacks:
            raise InputError("expected at least one attack, but got none")
        object.__setattr__(self, "attacks", tuple(attacks))

    def to_dict(self) -> dict[str, Any]:
        return {"attack": "Worst", "attacks": [attack.to_dict() for attack in self.attacks]}

    def perturb(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """x' of the first attack that succeeds, of the last one where none does; x where the model errs anyway."""
        if generator is None:
            generator = torch.Generator(device=x.device).manual_seed(0)
        with watched(model, x.device), torch.no_grad():
            forward, result = Forward(model), x.detach().clone()
            for attack in self.attacks if len(x) else ():
                left = (forward(result).argmax(1) == y).nonzero().squeeze(1)
                if not len(left):
                    break
                result[left] = attack.perturb(model, x[left], y[left], generator)
            return result


def from_dict(plain: Mapping[str, Any]) -> Attack | Worst:
    """The attack that `to_dict` wrote, or that a user wrote: {"attack": "PGD", "eps": 0.03, "steps": 40}."""
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()}
    name = given.pop("attack", None)
    one_of("attack", name, (*ATTACKS, "Worst"))
    if name == "Worst":
        parts = [from_dict(part) for part in given.pop("attacks", ())]
        if given or not all(isinstance(part, Attack) for part in parts):
            raise InputError(f"expected Worst to hold a list of single attacks and nothing else, but got {plain!r}")
        return Worst([part for part in parts if isinstance(part, Attack)])
    known = [field.name for field in fields(ATTACKS[name])]
    for field in given:
        one_of(f"a field of {name}", field, known)
    if "eps" not in given:
        raise InputError(f"expected {name} to be given eps, its largest distance, but got {sorted(given)}")
    return ATTACKS[name](**given)
