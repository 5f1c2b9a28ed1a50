"""The tables and figures that can be made: what each shows, its files, what it needs and costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

IMAGES = ("cifar100", "tiny-imagenet", "cifar10", "svhn")


@dataclass(frozen=True)
class Target:
    """One table or figure.

    Args:
        name: as in the paper's digest, T7.
        about: one line.
        folder, stem: its files are OUT/folder/stem.json and .md, some with a .png.
        data: the data sets it needs at full scale.
        minutes: about how long the full scale takes on one core, of a study that is computed as a whole.
        runs: how many runs the full scale has, of a suite whose runs go to a GPU; 0 for a study.
        seeds: how many the full scale has of each, as the paper.
    """

    name: str
    about: str
    folder: str
    stem: str
    data: tuple[str, ...] = ()
    minutes: float = 0
    runs: int = 0
    seeds: int = 10

    @property
    def is_suite(self) -> bool:
        return self.runs > 0

    @property
    def cost(self) -> str:
        """Of the full scale, for a reader."""
        return f"{self.runs} runs, GPU" if self.is_suite else f"{self.minutes:g} min, CPU"


def _suite(name: str, about: str, runs: int, data: tuple[str, ...]) -> Target:
    return Target(name, about, name, name, data, runs=runs)


TARGETS = {
    one.name: one
    for one in (
        _suite("T1", "adversarial baselines on six image sets, ResNet-18", 420, IMAGES),
        _suite("T2", "ME-ADA and RCAD on top of label smoothing", 300, IMAGES),
        _suite("T3", "a wide network: ERM, ME-ADA, RCAD", 150, ("cifar100",)),
        _suite("T4", "low data: 500 to 50,000 images of CIFAR-100", 420, ("cifar100",)),
        replace(
            _suite("T5", "ImageNet: a pretrained ResNet-50, finetuned", 35, ("imagenet", "resnet50 weights")), seeds=7
        ),
        _suite("T6", "accuracy under a small FGSM attack", 210, ("cifar100", "cifar10")),
        Target("T7", "test likelihood on five UCI regressions, 20 splits", "uci", "uci", ("uci",), 4),
        Target("T8", "accuracy on two moons among noise dimensions", "moons", "moons", (), 36),
        _suite("F1", "images up the loss, and bars of RCAD and its baselines", 70, ("cifar100",)),
        _suite("F2", "RCAD on top of five regularisers: 30 pairs of bars", 720, IMAGES),
        _suite("F3", "gains over ERM, by data set and by data size", 990, IMAGES),
        _suite("F4", "accuracy against alpha; its other panels are T3, T7", 200, ("cifar100",)),
        Target("F5", "linear theory: weights, accuracy, the window of alpha", "theory", "linear", (), 2),
        _suite("F6", "accuracy on corrupted test images", 150, ("cifar10", "cifar100")),
        Target("F7", "decision boundaries of ERM and RCAD on the moons", "moons", "boundaries", (), 1),
    )
}
