"""What a suite runs: data sets under the paper's protocol at each of three scales, and the methods by their label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from rcad.loss.method_rows import MethodRow, method_rows, named_method
from rcad.paper.claims import ENTROPY, RANDOM
from rcad.runs.config import ModelConfig, RunConfig
from rcad.runs.recipes import RECIPES, Recipe

Scale = Literal["smoke", "small", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SEEDS: Mapping[Scale, int] = {"smoke": 3, "small": 3}
"""How many where the user does not say; at full scale as many as the paper."""
SMALL_EPOCHS, SMALL_COUNT = 30, 10_000
SMOKE_EPOCHS = 2
SMOKE_AUGMENTATION: MethodRow = ("data_augmentation", (("flip", 0.0), ("padding", 1)))
WRN = "paper-wrn"
FINETUNING = "paper-imagenet"
UNAUGMENTED = "ERM, no augmentation"
"""The one label whose images are neither cropped nor flipped."""
PRETRAINED = "pretrained"
"""The one label that is not trained, where there are weights to start from."""
DECAY = "optim.weight_decay"
UNNORMALISED_LR = 0.05
"""Of the small CNN, which has no normalisation: the paper's 0.1 is that of a network with BatchNorm."""
Views = Literal["one view", "two views", "tuned"]
"""The clean loss: on the augmented batch, or half of it on the same images un-augmented, as the released program."""
Precision = Literal["fp32", "bf16"]
Values = Mapping[str, float]
"""Of a candidate, by name."""


@dataclass(frozen=True)
class Benchmark:
    """One data set, under its name in the paper, with the recipe of the paper's protocol.

    Args:
        data: its name in the registry, or that of its folder in the data folder.
        count: size of the class-balanced subset; None for all training images.
        size: training images there are at full scale.
        alpha, lam: RCAD's, and those of the controls.
        eps: of label smoothing.
        cutout: side of the square, as DeVries and Taylor (2017) chose it for this data set.
        smoke: how many embedded digits stand for it in a trial; each data set has its own number.
        small: images at the small scale, where fewer than `count`.
    """

    name: str
    data: str
    count: int | None
    size: int
    recipe: str
    alpha: float = 0.5
    lam: float = 0.02
    eps: float = 0.2
    cutout: int = 16
    smoke: int = 100
    small: int = SMALL_COUNT

    def images(self, scale: Scale) -> int:
        """Training images, those held out for validation included."""
        full = self.size if self.count is None else self.count
        return {"smoke": self.smoke, "small": min(full, self.small), "full": full}[scale]

    def source(self, scale: Scale) -> str:
        """What a config names: the whole set, or "cifar100[:2000]"."""
        if scale == "smoke":
            return f"{'digit_folders' if self.recipe == FINETUNING else 'digits'}[:{self.smoke}]"
        whole = self.images(scale) == self.size
        return self.data if whole else f"{self.data}[:{self.images(scale)}]"

    def config(
        self,
        scale: Scale,
        label: str,
        seed: int,
        *,
        views: Views = "one view",
        values: Values | None = None,
        model: str | None = None,
        weights: str | None = None,
        precision: Precision = "fp32",
        validation: float | None = None,
    ) -> RunConfig:
        """The run of a method (see `method_of`) under the paper's protocol, or what is left of it at this scale.

        Args:
            values: what differs from the paper's: the weight decay (DECAY), and parameters, e.g. "RCAD.alpha".
            weights: a file to start from.
            precision: of the products in training; "bf16" comes with the memory layout that makes it fast on a GPU.
            validation: the share of the images that is held out.
        """
        from rcad.train.scheduler import canonical_config

        recipe, values = protocol(self.recipe, scale), values or {}
        optim = replace(recipe.optim, weight_decay=values.get(DECAY, recipe.optim.weight_decay))
        network = recipe.model if weights is None else replace(recipe.model, weights=weights)
        if model is not None:
            network = ModelConfig(name=model)
            optim = replace(optim, lr=UNNORMALISED_LR) if optim.name == "sgd" else optim
        train = replace(recipe.train, epochs=0, selection="last") if label == PRETRAINED else recipe.train
        beside = () if label == UNAUGMENTED else recipe.beside
        recipe = replace(recipe, model=network, optim=optim, train=train, beside=beside)
        rows = method_of(label, parts(self, scale, views), views, values)
        config = canonical_config(recipe.config(self.source(scale), rows, seed))
        if precision != "fp32":
            config = replace(config, train=replace(config.train, precision=precision, channels_last=True))
        return config if validation is None else replace(config, data=replace(config.data, validation=validation))

    def words(self, scale: Scale, network: str) -> str:
        """What was run, for a reader."""
        recipe = protocol(self.recipe, scale)
        kind = "digits" if scale == "smoke" else "images"
        return (
            f"{self.images(scale):,} {kind}, {network}, {recipe.train.epochs} epochs, batches of "
            f"{recipe.train.batch_size}, alpha {self.alpha:g}, lambda {self.lam:g}, smoothing {self.eps:g}"
        )


def protocol(name: str, scale: Scale) -> Recipe:
    """The recipe at a scale: small has fewer epochs, and a narrower network for the widest; smoke is another recipe."""
    recipe = RECIPES[name]
    if scale == "full":
        return recipe
    if scale == "smoke":
        trial = RECIPES["small"]
        model = ModelConfig(name="wrn16_8", width=2, dropout=0.3) if name == WRN else ModelConfig(name="small_cnn")
        train = replace(trial.train, epochs=SMOKE_EPOCHS)
        return replace(trial, model=model, train=train, beside=(SMOKE_AUGMENTATION,))
    share = SMALL_EPOCHS / recipe.train.epochs
    drops = tuple(round(epoch * share) for epoch in recipe.optim.milestones)
    model = replace(recipe.model, name="wrn16_8") if name == WRN else recipe.model
    optim, train = replace(recipe.optim, milestones=drops), replace(recipe.train, epochs=SMALL_EPOCHS)
    return replace(recipe, model=model, optim=optim, train=train)


def missing(
    benchmark: Benchmark, scale: Scale, data_dir: Path | None, cache_dir: Path | None = None, *, count: bool = True
) -> str | None:
    """Why a data set cannot be used, in one sentence; None where it can. Without `count` nothing is read."""
    from rcad.data.registry import available, data_root, load

    places = {entry.name: entry.where for entry in available(data_dir)}
    if scale == "smoke":
        return None if places["digits"] else "A trial takes the digits of scikit-learn, which is not installed."
    if benchmark.recipe == FINETUNING:
        folder = data_root(data_dir)
        if folder is None or not (folder / benchmark.data).is_dir():
            return (
                f"{benchmark.name}: the data folder has no {benchmark.data}/ with train/ and val/ of class folders, or "
                "with Parquet shards, so it was not run."
            )
    elif places[benchmark.data] is None:
        return f"{benchmark.name}: {benchmark.data} was not found in the data folder, so it was not run."
    elif count and scale == "full" and benchmark.data == "tiny-imagenet":
        # The one that is passed around in parts; the others are read whole or not at all.
        there = len(load(benchmark.data, data_dir=data_dir, cache_dir=cache_dir).train)
        if there < benchmark.size:
            return f"{benchmark.name}: only {there:,} of {benchmark.size:,} images were found, so it was not run."
    return None


# The paper chose alpha, lambda and eps on 2,000 images; it does not say what it took for 500 and 1,000, which have
# them here too.
CIFAR100_2K = Benchmark("CIFAR-100-2k", "cifar100", 2_000, 50_000, "paper-2k", 1.0, 0.1, 0.6, cutout=8, smoke=100)
CIFAR100_10K = Benchmark("CIFAR-100-10k", "cifar100", 10_000, 50_000, "paper-10k", cutout=8, smoke=120)
TINY = Benchmark("Tiny ImageNet", "tiny-imagenet", None, 100_000, "paper", smoke=130, small=4_000)
CIFAR10 = Benchmark("CIFAR-10", "cifar10", None, 50_000, "paper", smoke=140)
CIFAR100 = Benchmark("CIFAR-100", "cifar100", None, 50_000, "paper", cutout=8, smoke=150)
SVHN = Benchmark("SVHN", "svhn", None, 73_257, "paper-svhn", cutout=20, smoke=160)
IMAGENET = Benchmark("ImageNet", "imagenet", None, 1_281_167, FINETUNING, smoke=170)
SIX = (CIFAR100_2K, CIFAR100_10K, TINY, CIFAR10, CIFAR100, SVHN)

# The text has batches of 128 for every set but the two that it names.
SUBSETS = {
    "n=500": replace(CIFAR100_2K, count=500, recipe="paper", smoke=60),
    "n=1,000": replace(CIFAR100_2K, count=1_000, recipe="paper", smoke=80),
    "n=2,000": CIFAR100_2K,
    "n=5,000": replace(CIFAR100_10K, count=5_000, recipe="paper", smoke=110),
    "n=10,000": CIFAR100_10K,
    "n=50,000": CIFAR100,
}
"""CIFAR-100 by size, the columns of T4."""

SMALL_STEP, LARGE_STEP = 0.02, 0.5
"""Of label smoothing on adversarial examples."""
GROWTH_EPOCHS = 10
"""ADA and ME-ADA grow after so many of the paper's epochs, and in proportion where there are fewer."""
SMOKE_STEPS = 2


Part = tuple[str, dict[str, Any]]


def parts(benchmark: Benchmark, scale: Scale, views: Views) -> dict[str, Part]:
    """What each label is made of; "RCAD + LS" is two of them. Crop and flip come with the protocol."""
    full, now = (protocol(benchmark.recipe, size).train.epochs for size in ("full", scale))
    growth: dict[str, Any] = {"epochs": max(1, round(GROWTH_EPOCHS * now / full))}
    growth |= {"steps": SMOKE_STEPS, "rounds": 1} if scale == "smoke" else {}
    smoothing, step = {"eps": benchmark.eps}, {"alpha": benchmark.alpha, "lam": benchmark.lam}
    return {
        **dict.fromkeys(("ERM", "DA", UNAUGMENTED, PRETRAINED), ("erm", {})),
        "LS": ("label_smoothing", smoothing),
        "CutOut": ("cutout", {"length": 3 if scale == "smoke" else benchmark.cutout}),
        "CutMix": ("cutmix", {"p": 0.5}),
        "MixUp": ("mixup", {}),
        "two views": ("two_views", {}),
        "FGSM": ("adversarial_two_views" if views == "two views" else "adversarial_training", {}),
        "LS on Adv, small step": ("ls_on_adv", {"alpha": SMALL_STEP, **smoothing}),
        "LS on Adv, large step": ("ls_on_adv", {"alpha": LARGE_STEP, **smoothing}),
        "ADA": ("ada", growth),
        "ME-ADA": ("me_ada", growth),
        "RCAD": ("rcad", step),
        RANDOM: ("rcad_random", step),
        ENTROPY: ("confidence_penalty", {"lam": benchmark.lam}),
    }


def is_own(label: str) -> bool:
    """Whether a row is a method of the user's own."""
    return ":" in label


def method_of(label: str, known: Mapping[str, Part], views: Views, values: Values) -> tuple[MethodRow, ...]:
    """The method rows of a label, e.g. "RCAD + LS"; or of a text that names code of the user's, "mymodule:my_method".

    Under two views every method has the same clean loss; FGSM has no clean loss, so both its views are perturbed.
    """
    made: list[Any] = list(named_method(label)) if is_own(label) else []
    for name in () if made else sorted(label.split(" + "), key="LS".__eq__):  # "LS + RCAD" and "RCAD + LS" are one run
        own = {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}
        made.append((known[name][0], {**known[name][1], **own}))
    if views == "two views" and "FGSM" not in label:
        made = [("two_views", {}), *(part for part in made if part[0] != "erm")]
    elif len(made) > 1:
        made = [part for part in made if part[0] != "erm"]
    return method_rows(made)
