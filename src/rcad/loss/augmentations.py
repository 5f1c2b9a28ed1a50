"""Augmentations of a batch on its own device, drawn per example from an explicit generator.

Images are (B, C, H, W) in [0, 1]. `augment(steps, x, target, ...)` applies several in order; mixing turns hard
labels into probabilities and changes nothing else about them: smoothing belongs to the likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.errors import InputError, Value, finite, whole


class Alternating:
    """The generators of several runs whose examples alternate in a batch: each run draws as if it were alone."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self.generators = tuple(generators)

    def __len__(self) -> int:
        return len(self.generators)


class Part:
    """The generator of a run of which these are some examples of a batch: it draws for all of them.

    Args:
        mine: which of the batch's examples these are.
        count: of the batch.
    """

    def __init__(self, generator: torch.Generator, mine: slice, count: int) -> None:
        self.generator, self.mine, self.count = generator, mine, count


Source = torch.Generator | Alternating | Part
"""Where random numbers come from."""


def drawn(sample: Callable[..., Tensor], count: int, source: Source | None, **options: Any) -> Tensor:
    """sample(count, generator=..., **options) with the examples in the first dimension."""
    if isinstance(source, Part):
        return sample(source.count, generator=source.generator, **options)[source.mine]
    if not isinstance(source, Alternating):
        return sample(count, generator=source, **options)
    parts = [sample(count // len(source), generator=generator, **options) for generator in source.generators]
    return alternating(parts)


def alternating(parts: Sequence[Tensor]) -> Tensor:
    """The examples of several runs in turn: the first of each, then the second of each."""
    return torch.stack(list(parts), 1).flatten(0, 1)


Slot = Literal["crop", "flip", "cutout", "mix"]


class Augmentation(Value):
    """What all share: the slot that only one method may own, and a call that maps (x, target) to the same."""

    slot: ClassVar[Slot]

    def __call__(
        self, x: Tensor, target: Tensor, *, classes: int | None = None, generator: Source | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.images(x, generator), target

    def images(self, x: Tensor, generator: Source | None = None) -> Tensor:
        """The images alone, augmented."""
        raise InputError(f"expected an augmentation of images alone, but {type(self).__name__} mixes labels too")


def augment(
    steps: Sequence[Augmentation],
    x: Tensor,
    target: Tensor,
    *,
    classes: int | None = None,
    generator: Source | None = None,
) -> tuple[Tensor, Tensor]:
    """Applies the steps in order; (x, target) come back new, the originals untouched."""
    for step in steps:
        x, target = step(x, target, classes=classes, generator=generator)
    return x, target


def _rand(x: Tensor, generator: Source | None) -> Tensor:
    return drawn(torch.rand, len(x), generator, device=x.device)


def _randint(x: Tensor, high: int, generator: Source | None) -> Tensor:
    def sample(count: int, **options: Any) -> Tensor:
        return torch.randint(high, (count,), **options)

    return drawn(sample, len(x), generator, device=x.device)


def _per_image(values: Tensor, x: Tensor) -> Tensor:
    return values.view(-1, *[1] * (x.ndim - 1))


def _inside(x: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """Which pixels lie in each image's box, (B, 1, H, W); the parts of a box beyond the border do not count."""
    rows = torch.arange(x.shape[2], device=x.device)
    columns = torch.arange(x.shape[3], device=x.device)
    in_rows = (rows >= top[:, None]) & (rows < (top + height)[:, None])
    in_columns = (columns >= left[:, None]) & (columns < (left + width)[:, None])
    return (in_rows[:, :, None] & in_columns[:, None, :]).unsqueeze(1)


@dataclass(frozen=True, repr=False)
class PadCrop(Augmentation):
    """Pads with black on every side and crops back to the size at a random place, per image."""

    padding: int = 4
    slot: ClassVar[Slot] = "crop"

    def __post_init__(self) -> None:
        whole("padding", self.padding, minimum=1)

    def images(self, x: Tensor, generator: Source | None = None) -> Tensor:
        count, channels, height, width = x.shape
        padded = F.pad(x, [self.padding] * 4)
        rows = _randint(x, 2 * self.padding + 1, generator)[:, None] + torch.arange(height, device=x.device)
        columns = _randint(x, 2 * self.padding + 1, generator)[:, None] + torch.arange(width, device=x.device)
        image = torch.arange(count, device=x.device).view(-1, 1, 1, 1)
        channel = torch.arange(channels, device=x.device).view(1, -1, 1, 1)
        return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


@dataclass(frozen=True, repr=False)
class Flip(Augmentation):
    """Mirrors each image left to right with probability p."""

    p: float = 0.5
    slot: ClassVar[Slot] = "flip"

    def __post_init__(self) -> None:
        _probability(self.p)

    def images(self, x: Tensor, generator: Source | None = None) -> Tensor:
        return torch.where(_per_image(_rand(x, generator) < self.p, x), x.flip(-1), x)


@dataclass(frozen=True, repr=False)
class Cutout(Augmentation):
    """Blackens a square of side `length` centred at a random pixel of each image, clipped at the border."""

    length: int = 16
    slot: ClassVar[Slot] = "cutout"

    def __post_init__(self) -> None:
        whole("length", self.length, minimum=1)

    def images(self, x: Tensor, generator: Source | None = None) -> Tensor:
        top = _randint(x, x.shape[2], generator) - self.length // 2
        left = _randint(x, x.shape[3], generator) - self.length // 2
        side = torch.full_like(top, self.length)
        return x.masked_fill(_inside(x, top, left, side, side), 0.0)


@dataclass(frozen=True, repr=False)
class Mixup(Augmentation):
    """x and target become lam * own + (1 - lam) * partner's, with lam ~ Beta(alpha, alpha) drawn per example."""

    alpha: float = 1.0
    slot: ClassVar[Slot] = "mix"

    def __post_init__(self) -> None:
        finite("alpha", self.alpha, above=0.0)

    def __call__(
        self, x: Tensor, target: Tensor, *, classes: int | None = None, generator: Source | None = None
    ) -> tuple[Tensor, Tensor]:
        target = probabilities(target, classes)
        own = beta(self.alpha, x, generator)
        partner = _partners(x, generator)
        share = _per_image(own, x).to(x.dtype)
        return share * x + (1 - share) * x[partner], _mixed(target, own, partner)


@dataclass(frozen=True, repr=False)
class Cutmix(Augmentation):
    """Pastes a box of a partner's image into each image; targets mix by the area that was really pasted.

    Args:
        alpha: the box's area is 1 - lam of the image, lam ~ Beta(alpha, alpha), before clipping at the border.
        p: the probability that an image receives a box.
    """

    alpha: float = 1.0
    p: float = 1.0
    slot: ClassVar[Slot] = "mix"

    def __post_init__(self) -> None:
        finite("alpha", self.alpha, above=0.0)
        _probability(self.p)

    def __call__(
        self, x: Tensor, target: Tensor, *, classes: int | None = None, generator: Source | None = None
    ) -> tuple[Tensor, Tensor]:
        target = probabilities(target, classes)
        rows, columns = x.shape[2:]
        side = (1 - beta(self.alpha, x, generator)).sqrt() * (_rand(x, generator) < self.p)
        height, width = (side * rows).long(), (side * columns).long()
        top = _randint(x, rows, generator) - height // 2
        left = _randint(x, columns, generator) - width // 2
        box = _inside(x, top, left, height, width)
        partner = _partners(x, generator)
        own = 1 - box.flatten(1).float().mean(1)
        return torch.where(box, x[partner], x), _mixed(target, own, partner)


def _probability(p: Any) -> None:
    finite("p", p, minimum=0.0)
    if p > 1:
        raise InputError(f"expected p to be a probability in [0, 1], but got {p!r}")


def _partners(x: Tensor, generator: Source | None) -> Tensor:
    """Another example of the same run for each."""

    def sample(count: int, **options: Any) -> Tensor:
        return torch.rand(count, **options).argsort()

    partner = drawn(sample, len(x), generator, device=x.device)
    runs = len(generator) if isinstance(generator, Alternating) else 1
    return partner if runs == 1 else partner * runs + torch.arange(len(x), device=x.device) % runs


def _mixed(target: Tensor, own: Tensor, partner: Tensor) -> Tensor:
    share = own.view(-1, *[1] * (target.ndim - 1)).to(target.dtype)
    return share * target + (1 - share) * target[partner]


def beta(alpha: float, x: Tensor, generator: Source | None) -> Tensor:
    """One draw from Beta(alpha, alpha) per example of x, on its device, in float64."""

    def sample(count: int, generator: torch.Generator | None) -> Tensor:
        shape = torch.full((2, count), alpha, device=x.device, dtype=torch.float64)
        return torch._standard_gamma(shape, generator=generator).T

    first, second = drawn(sample, len(x), generator).unbind(1)
    total = first + second
    # For a tiny alpha both gammas can underflow; the distribution is then a fair coin.
    coin = (_rand(x, generator) < 0.5).double()
    return torch.where(total > 0, first / total, coin)


def probabilities(target: Tensor, classes: int | None) -> Tensor:
    """Hard labels as one-hot float rows; soft and real-valued targets as they are."""
    if target.is_floating_point():
        return target
    if classes is None:
        raise InputError("expected the number of classes to mix integer labels, but got classes=None")
    return F.one_hot(target.long(), classes).float()
