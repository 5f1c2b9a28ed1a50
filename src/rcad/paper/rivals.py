"""The rows of the tables: a label, and the method rows it stands for on a data set under either protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rcad.loss.method_rows import MethodRow, method_rows
from rcad.paper.benchmarks import Benchmark, Scale, protocol
from rcad.paper.claims import ENTROPY, RANDOM

Views = Literal["one view", "two views"]
"""The clean loss: on the augmented batch, or half of it on the same images un-augmented, as the released program."""
SMALL_STEP, LARGE_STEP = 0.02, 0.5
"""Of label smoothing on adversarial examples."""
GROWTH_EPOCHS = 10
"""ADA and ME-ADA grow after so many of the paper's epochs, and in proportion where there are fewer."""
SMOKE_STEPS = 2


@dataclass(frozen=True)
class Setting:
    """Where a method is run."""

    benchmark: Benchmark
    scale: Scale
    views: Views

    @property
    def growth(self) -> dict[str, Any]:
        """When and how far the training set grows."""
        full, now = (protocol(self.benchmark.recipe, scale).train.epochs for scale in ("full", self.scale))
        values: dict[str, Any] = {"epochs": max(1, round(GROWTH_EPOCHS * now / full))}
        return values | ({"steps": SMOKE_STEPS, "rounds": 1} if self.scale == "smoke" else {})

    @property
    def cutout(self) -> dict[str, Any]:
        return {"length": 3 if self.scale == "smoke" else self.benchmark.cutout}


Part = tuple[str, dict[str, Any]]
PARTS: Mapping[str, Callable[[Setting], Part]] = {
    "ERM": lambda s: ("erm", {}),
    "DA": lambda s: ("erm", {}),
    "LS": lambda s: ("label_smoothing", {"eps": s.benchmark.eps}),
    "CutOut": lambda s: ("cutout", s.cutout),
    "MixUp": lambda s: ("mixup", {}),
    "FGSM": lambda s: ("adversarial_two_views" if s.views == "two views" else "adversarial_training", {}),
    "LS on Adv, small step": lambda s: ("ls_on_adv", {"alpha": SMALL_STEP, "eps": s.benchmark.eps}),
    "LS on Adv, large step": lambda s: ("ls_on_adv", {"alpha": LARGE_STEP, "eps": s.benchmark.eps}),
    "ADA": lambda s: ("ada", s.growth),
    "ME-ADA": lambda s: ("me_ada", s.growth),
    "RCAD": lambda s: ("rcad", {"alpha": s.benchmark.alpha, "lam": s.benchmark.lam}),
    RANDOM: lambda s: ("rcad_random", {"alpha": s.benchmark.alpha, "lam": s.benchmark.lam}),
    ENTROPY: lambda s: ("confidence_penalty", {"lam": s.benchmark.lam}),
}
"""What a label is made of; "RCAD + LS" is two of them. Crop and flip come with the protocol."""


def method(label: str, setting: Setting) -> tuple[MethodRow, ...]:
    """The method rows of a label, e.g. "RCAD + LS".

    Under two views every method has the same clean loss; FGSM has no clean loss, so both its views are perturbed.
    """
    parts = [PARTS[name](setting) for name in label.split(" + ")]
    if setting.views == "two views" and "FGSM" not in label:
        parts = [("two_views", {}), *(part for part in parts if part[0] != "erm")]
    elif len(parts) > 1:
        parts = [part for part in parts if part[0] != "erm"]
    return method_rows(parts)
