"""Augmentations of a batch on its own device, drawn per example from an explicit generator.

Images are (B, C, H, W) in [0, 1]. Mixing turns hard labels into probabilities and changes nothing else about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.errors import InputError, Value, finite, whole


class Alternating(tuple[torch.Generator, ...]):
    """The generators of several runs whose examples alternate in a batch: each run draws as if it were alone."""


class Part(NamedTuple):
    """The generator of a run of which these are some examples of a batch: it draws for all of them."""

    generator: torch.Generator
    mine: slice  # which of the batch's examples these are
    examples: int  # of the batch


Source = torch.Generator | Alternating | Part  # where random numbers come from


def drawn(sample: Callable[..., Tensor], shape: Sequence[int], source: Source | None, **options: Any) -> Tensor:
    """sample(shape, generator=..., **options) with the examples in the first dimension."""
    count, *rest = shape
    if source is not None and not isinstance(source, Source):
        raise InputError(f"expected the generator to be a torch.Generator, but got {source!r}")
    if isinstance(source, Part):
        return sample((source.examples, *rest), generator=source.generator, **options)[source.mine]
    if not isinstance(source, Alternating):
        return sample((count, *rest), generator=source, **options)
    return alternating([sample((count // len(source), *rest), generator=each, **options) for each in source])


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
        if x.ndim != 4 and not isinstance(step, Mixup):
            raise InputError(f"expected images (B, C, H, W) for {step}, but got shape {tuple(x.shape)}")
        if target.ndim > 2 and isinstance(step, PadCrop | Flip | Cutmix):
            got = f"but got {tuple(target.shape)}, which would stay where it is; augment images and masks by yourself"
            raise InputError(f"expected one target for each image with {step}, {got}")
        x, target = step(x, target, classes=classes, generator=generator)
    return x, target


def _rand(x: Tensor, generator: Source | None) -> Tensor:
    return drawn(torch.rand, x.shape[:1], generator, device=x.device)


def _randint(x: Tensor, high: int, generator: Source | None) -> Tensor:
    return drawn(partial(torch.randint, high), x.shape[:1], generator, device=x.device)


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
        if not x.is_floating_point():
            raise InputError(
                f"expected floating-point inputs to mix, but got {x.dtype}; convert images with x.float() / 255"
            )
        target = probabilities(target, classes)
        own = beta(self.alpha, x, generator)
        partner = _partners(x, generator)
        return _mixed(x, own, partner), _mixed(target, own, partner)


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

    def order(shape: tuple[int], **options: Any) -> Tensor:
        return torch.rand(shape, **options).argsort()

    partner = drawn(order, x.shape[:1], generator, device=x.device)
    runs = len(generator) if isinstance(generator, Alternating) else 1
    return partner if runs == 1 else partner * runs + torch.arange(len(x), device=x.device) % runs


def _mixed(values: Tensor, own: Tensor, partner: Tensor) -> Tensor:
    share = _per_image(own, values).to(values.dtype)
    return share * values + (1 - share) * values[partner]


def beta(alpha: float, x: Tensor, generator: Source | None) -> Tensor:
    """One draw from Beta(alpha, alpha) per example of x, on its device, in float64."""

    def gammas(shape: tuple[int, int], generator: torch.Generator | None) -> Tensor:
        alphas = torch.full(shape[::-1], alpha, device=x.device, dtype=torch.float64)
        return torch._standard_gamma(alphas, generator=generator).T

    first, second = drawn(gammas, (len(x), 2), generator).unbind(1)
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
