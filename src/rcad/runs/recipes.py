"""The protocols as named recipes: everything of a run but its data, its method and its seed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rcad.errors import Value
from rcad.loss.method_rows import MethodRow, as_recorded, method_rows, spelled
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig

CROP_AND_FLIP: MethodRow = ("data_augmentation", ())


def _step_and_weight(alpha: float, lam: float) -> dict[str, dict[str, float]]:
    return {name: {"alpha": alpha, "lam": lam} for name in ("rcad", "rcad_random")}


@dataclass(frozen=True, repr=False, kw_only=True)
class Recipe(Value):
    """A protocol.

    Args:
        beside: method rows that are composed with the chosen method, unless it brings them itself.
        variants: the name under which the protocol runs a method, e.g. rcad as rcad_released.
        values: the protocol's own parameters of a method, where the user gives none.
        method: what it trains where the user names no method; "" for nothing.
    """

    about: str
    model: ModelConfig
    optim: OptimConfig
    train: TrainConfig
    data: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[MethodRow, ...] = ()
    variants: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    method: str = ""

    def rows(self, method: Any, *, leave: Collection[str] = ()) -> tuple[MethodRow, ...]:
        """The rows of a method, the protocol's values and changed defaults written out but for those in `leave`."""
        rows = []
        for name, values in method_rows(method):
            variant = self.variants.get(name, name)
            own = {key: value for key, value in self.values.get(variant, {}).items() if key not in leave}
            rows.append((variant, {**own, **dict(values)}))
        names = {name for name, _ in rows}
        return spelled((*(row for row in self.beside if row[0] not in names), *method_rows(rows)), leave=leave)

    def config(
        self, data: str | Mapping[str, Any], method: Any, seed: int = 0, *, leave: Collection[str] = ()
    ) -> RunConfig:
        """The run of `method` on `data`: a name, or fields of DataConfig, which win over the recipe's."""
        fields = {"name": data} if isinstance(data, str) else data
        return RunConfig(
            data=DataConfig(**{**self.data, **fields}),
            model=self.model,
            method=self.rows(method, leave=leave),
            optim=self.optim,
            train=self.train,
            seed=seed,
        )


PAPER = Recipe(
    about="the paper: ResNet-18, crop and flip, 200 epochs, the best epoch on 10% held out",
    model=ModelConfig(name="resnet18"),
    optim=OptimConfig(lr=0.1, weight_decay=5e-4, clip=1.0, schedule="multistep", milestones=(100, 150, 180)),
    train=TrainConfig(epochs=200, batch_size=128),
    beside=(CROP_AND_FLIP,),
    values=_step_and_weight(0.5, 0.02),
)

RECIPES: Mapping[str, Recipe] = {
    "paper": PAPER,
    "paper-2k": replace(
        PAPER,
        about="the paper on CIFAR-100-2k: batches of 32, alpha 1, lambda 0.1",
        train=replace(PAPER.train, batch_size=32),
        values=_step_and_weight(1.0, 0.1),
    ),
    "paper-10k": replace(
        PAPER, about="the paper on CIFAR-100-10k: batches of 64", train=replace(PAPER.train, batch_size=64)
    ),
    "paper-svhn": replace(
        PAPER, about="the paper on SVHN: drops at 80 and 120", optim=replace(PAPER.optim, milestones=(80, 120))
    ),
    "paper-wrn": replace(
        PAPER,
        about="the paper's Wide ResNet 28-10, with the settings of the Wide ResNet paper (which clips no gradient)",
        model=ModelConfig(name="wrn28_10", dropout=0.3),
        optim=replace(PAPER.optim, milestones=(60, 120, 160), gamma=0.2, clip=None),
    ),
    "paper-imagenet": Recipe(
        about="the paper on ImageNet: a pretrained ResNet-50 finetuned with CutMix's settings, the last epoch",
        model=ModelConfig(name="timm:resnet50", weights="pretrained"),
        optim=OptimConfig(lr=0.1, weight_decay=1e-4, schedule="multistep", milestones=(75, 150, 225)),
        train=TrainConfig(epochs=300, batch_size=256, selection="last"),
        data={"validation": 0.0, "size": 224},
        values=PAPER.values,
        beside=(("data_augmentation", (("padding", 28),)),),
    ),
    "released": replace(
        PAPER,
        about="the authors' program: two views, uniform subsets, nothing held out, the last epoch",
        train=replace(PAPER.train, selection="last"),
        data={"validation": 0.0, "balanced": False},
        variants={"rcad": "rcad_released", "erm": "two_views"},
    ),
    # Held-out images chose method and weight decay (docs/few-labels.md says how); a test applies the rule again.
    "few-labels": replace(
        PAPER,
        about="few labelled images: two views of each, weight decay 0.0022, all labels, the last epoch",
        optim=replace(PAPER.optim, weight_decay=0.0022),
        train=replace(PAPER.train, batch_size=32, selection="last"),
        data={"validation": 0.0},
        values={},
        method="two_views",
    ),
    "small": Recipe(
        about="tables and small images: AdamW, 30 epochs, cosine",
        model=ModelConfig(),
        optim=OptimConfig(name="adamw", lr=1e-3, weight_decay=0.01, schedule="cosine"),
        train=TrainConfig(epochs=30, batch_size=32),
    ),
}
"""Named protocols; the engine chooses one where none is named."""


def papers_own(rows: Iterable[MethodRow]) -> str:
    """For a line about a run: whose alpha and lam these are, where they are those that a recipe has from the paper."""
    of_paper = [values for recipe in RECIPES.values() for values in recipe.values.values()]
    own = [{key: dict(values).get(key) for key in ("alpha", "lam")} for _, values in as_recorded(rows)]
    return " (the paper's alpha and lam)" if any(values in of_paper for values in own) else ""
