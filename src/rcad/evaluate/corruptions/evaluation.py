"""Accuracy and NLL of a model under every corruption and severity, batch by batch: no corrupted set is ever kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rcad.data.corrupted import CORRUPTIONS, SEVERITIES, Provenance
from rcad.data.dataset import Split
from rcad.errors import InputError, whole
from rcad.evaluate.attack_search import watched
from rcad.evaluate.corruptions.catalogue import check_images, check_request, corrupt_numbered
from rcad.loss.growth import as_unit_float
from rcad.loss.model_calls import Model, logits_of
from rcad.loss.predictions import label_scores

Progress = Callable[[int, int], None]


class PublishedSet(Protocol):
    """What `rcad.data.corrupted.open_corrupted` gives."""

    @property
    def corruptions(self) -> tuple[str, ...]: ...

    def split(self, corruption: str, severity: int) -> Split: ...


@dataclass(frozen=True)
class Scores:
    """A model on one set of images: accuracy in percent, mean NLL."""

    accuracy: float
    nll: float


@dataclass(frozen=True)
class CorruptionScores:
    """A model's scores by corruption, one per severity.

    Attributes:
        provenance: "generated" here, or "published": numbers of the two kinds must not stand in one column.
        clean: on the same images without corruption; None where they were not given.
        scores: by corruption, in the order of `severities`.
    """

    provenance: Provenance
    severities: tuple[int, ...]
    scores: Mapping[str, tuple[Scores, ...]]
    clean: Scores | None = None

    def errors(self) -> dict[str, tuple[float, ...]]:
        """By corruption, the percentage of wrong predictions at each severity: what mCE is computed from."""
        return {name: tuple(100 - cell.accuracy for cell in cells) for name, cells in self.scores.items()}

    def accuracies(self) -> dict[str, float]:
        """By corruption, the accuracy averaged over the severities: the bars of the paper's figure."""
        return {name: sum(cell.accuracy for cell in cells) / len(cells) for name, cells in self.scores.items()}

    def nlls(self) -> dict[str, float]:
        """By corruption, the NLL averaged over the severities."""
        return {name: sum(cell.nll for cell in cells) / len(cells) for name, cells in self.scores.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a record."""
        return {
            "provenance": self.provenance,
            "severities": list(self.severities),
            "clean": None if self.clean is None else vars(self.clean),
            "scores": {name: [vars(cell) for cell in cells] for name, cells in self.scores.items()},
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> CorruptionScores:
        clean = None if plain["clean"] is None else Scores(**plain["clean"])
        scores = {name: tuple(Scores(**cell) for cell in cells) for name, cells in plain["scores"].items()}
        return cls(plain["provenance"], tuple(plain["severities"]), scores, clean)


def evaluate_corruptions(
    predict: Model,
    x: Tensor,
    y: Tensor,
    *,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    batch_size: int = 256,
    progress: Progress | None = None,
) -> CorruptionScores:
    """Scores on corruptions generated from clean images; the model is asked in eval mode and left as it was.

    Args:
        predict: from images in [0, 1] on the device of x to logits (B, K).
        x: images (N, C, H, W), uint8 or floats in [0, 1].
        y: labels (N,).
        seed: image i is corrupted by (seed, i), whatever the batch size.
        progress: called with (images done, images in all), after each batch.
    """
    check_request(tuple(corruptions), tuple(severities))
    check_images(x)
    _check_sizes(x, y, batch_size)
    count = _Count(len(x) * (1 + len(corruptions) * len(severities)), progress)

    def clean() -> Iterator[tuple[Tensor, Tensor]]:
        return zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True)

    def corrupted(name: str, severity: int) -> Iterator[tuple[Tensor, Tensor]]:
        for index, (part, labels) in enumerate(clean()):
            yield corrupt_numbered(part, name, severity, seed=seed, first=index * batch_size), labels

    with watched(predict, x.device):
        scores = {
            name: tuple(_scores(predict, corrupted(name, severity), x.device, count) for severity in severities)
            for name in corruptions
        }
        return CorruptionScores(
            "generated", tuple(severities), scores, clean=_scores(predict, clean(), x.device, count)
        )


def evaluate_published(
    predict: Model,
    published: PublishedSet,
    *,
    device: torch.device | str = "cpu",
    clean: tuple[Tensor, Tensor] | None = None,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    batch_size: int = 256,
    progress: Progress | None = None,
) -> CorruptionScores:
    """The same on a published set, read piece by piece.

    Args:
        clean: the uncorrupted test images and labels, for what is relative to them.
        corruptions: by default all that the set holds.
    """
    names = published.corruptions if corruptions is None else tuple(corruptions)
    check_request(names, tuple(severities))
    whole("batch_size", batch_size, minimum=1)
    device = torch.device(device)
    first = len(published.split(names[0], severities[0]))
    count = _Count(first * len(names) * len(severities) + (0 if clean is None else len(clean[0])), progress)

    def stored(name: str, severity: int) -> Iterator[tuple[Tensor, Tensor]]:
        split = published.split(name, severity)
        for start in range(0, len(split), batch_size):
            rows = slice(start, start + batch_size)
            # A copy: the array on disk is read-only and its channels come last.
            yield torch.from_numpy(split.x[rows].copy()), torch.from_numpy(split.y[rows].copy())

    with watched(predict, device):
        scores = {
            name: tuple(_scores(predict, stored(name, severity), device, count) for severity in severities)
            for name in names
        }
        plain = None
        if clean is not None:
            _check_sizes(*clean, batch_size)
            plain = _scores(
                predict, zip(*(torch.split(part, batch_size) for part in clean), strict=True), device, count
            )
    return CorruptionScores("published", tuple(severities), scores, plain)


class _Count:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def add(self, images: int) -> None:
        self._done += images
        if self._progress is not None:
            self._progress(self._done, self._total)


@torch.no_grad()
def _scores(predict: Model, batches: Iterator[tuple[Tensor, Tensor]], device: torch.device, count: _Count) -> Scores:
    """Sums on the device in float64; one transfer at the end, which also tells whether a label was out of range."""
    total = torch.zeros(3, dtype=torch.float64, device=device)
    images = 0
    for x, y in batches:
        output = logits_of(predict(as_unit_float(x.to(device)))).float()
        if output.ndim != 2 or len(output) != len(y):
            raise InputError(f"expected logits ({len(y)}, K), but got {tuple(output.shape)}")
        labels = y.to(device).long()
        known = labels.clamp(0, output.shape[1] - 1)
        per_image = label_scores(output, known)
        total += torch.stack([per_image["hit"].sum(), per_image["nll"].sum(), (known != labels).sum().double()])
        images += len(y)
        count.add(len(y))
    hits, nll, outside = total.tolist()
    if outside:
        raise InputError(
            f"expected labels from 0 to {output.shape[1] - 1} for a model with {output.shape[1]} outputs, "
            "but got others; evaluate on the classes it was trained on"
        )
    return Scores(100 * hits / images, nll / images)


def _check_sizes(x: Tensor, y: Tensor, batch_size: int) -> None:
    whole("batch_size", batch_size, minimum=1)
    if y.ndim != 1 or len(x) != len(y) or not len(y) or y.is_floating_point():
        raise InputError(f"expected one class label per image, but got {tuple(x.shape)} and {y.dtype} {tuple(y.shape)}")
