"""A model under corruptions: accuracy and NLL, mean error, mCE, relative mCE (Hendrycks & Dietterich, ICLR 2019).

Images come batch by batch: no corrupted set is ever kept. Errors are percentages by corruption, one per severity or
already their mean. mCE divides each corruption's error by a baseline's before averaging, so that hard corruptions do
not drown the others. The baseline's severities and kind (generated or published) must be the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from rcad.data.corrupted import CORRUPTIONS, SEVERITIES, CorruptedArrays, CorruptedFolders, Provenance, check_request
from rcad.data.dataset import Progress, Split, no_progress
from rcad.errors import InputError, whole
from rcad.evaluate.attack_search import check_labels, draw_rows, watched
from rcad.evaluate.corruptions.generated import check_images, corrupt_numbered
from rcad.loss.growth import as_unit_float
from rcad.loss.model_calls import Model, logits_of
from rcad.loss.predictions import label_scores

Batches = Iterator[tuple[Tensor, Tensor]]
Published = CorruptedArrays | CorruptedFolders
CLEAN = ("clean", 0)


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
        return {name: _mean([cell.accuracy for cell in cells]) for name, cells in self.scores.items()}

    def nlls(self) -> dict[str, float]:
        """By corruption, the NLL averaged over the severities."""
        return {name: _mean([cell.nll for cell in cells]) for name, cells in self.scores.items()}

    def to_dict(self) -> dict[str, Any]:
        scores = {name: list(map(asdict, cells)) for name, cells in self.scores.items()}
        return {**asdict(self), "severities": list(self.severities), "scores": scores}

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
    progress: Progress = no_progress,
) -> CorruptionScores:
    """Scores on corruptions generated from clean images; the model is asked in eval mode and left as it was.

    Args:
        predict: from images in [0, 1] on the device of x to logits (B, K).
        x: images (N, C, H, W), uint8 or floats in [0, 1].
        y: labels (N,).
        seed: image i is corrupted by (seed, i), whatever the batch size.
        progress: called with (images done, images in all), after each batch.
    """
    check_images(x)

    def corrupted(name: str, severity: int) -> Batches:
        for index, (part, labels) in enumerate(_batches(x, y, batch_size)):
            yield corrupt_numbered(part, name, severity, seed=seed, first=index * batch_size), labels

    grid = tuple(corruptions), tuple(severities)
    return _evaluate(predict, "generated", corrupted, grid, len(x), (x, y), x.device, batch_size, progress)


def evaluate_published(
    predict: Model,
    published: Published,
    *,
    device: torch.device | str = "cpu",
    clean: tuple[Tensor, Tensor] | None = None,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 256,
    progress: Progress = no_progress,
) -> CorruptionScores:
    """The same on a published set, read piece by piece.

    Args:
        clean: the uncorrupted test images and labels, for what is relative to them.
        corruptions: by default all that the set holds.
        limit: images of each corruption and severity, drawn by `seed`; None for all.
    """
    grid = tuple(published.corruptions if corruptions is None else corruptions), tuple(severities)
    check_request(*grid)

    def chosen(name: str, severity: int) -> Split:
        split = published.split(name, severity)
        return split if limit is None else split.take(draw_rows(len(split), limit, seed).numpy())

    def stored(name: str, severity: int) -> Batches:
        split = chosen(name, severity)
        for start in range(0, len(split), batch_size):
            rows = slice(start, start + batch_size)
            # A copy: the array on disk is read-only and its channels come last.
            yield torch.from_numpy(split.x[rows].copy()), torch.from_numpy(split.y[rows].copy())

    count = len(chosen(grid[0][0], grid[1][0]))
    return _evaluate(predict, "published", stored, grid, count, clean, torch.device(device), batch_size, progress)


def _evaluate(
    predict: Model,
    provenance: Provenance,
    images: Callable[[str, int], Batches],
    grid: tuple[tuple[str, ...], tuple[int, ...]],
    count: int,
    clean: tuple[Tensor, Tensor] | None,
    device: torch.device,
    batch_size: int,
    progress: Progress,
) -> CorruptionScores:
    """The scores of what `images` gives, `count` for each name and severity of the grid, and of the clean images."""
    names, severities = grid
    check_request(names, severities)
    whole("batch_size", batch_size, minimum=1)
    if clean is not None:
        check_labels(*clean)
        if not len(clean[1]):
            raise InputError("expected at least one image, but got none")
    total = count * len(names) * len(severities) + (0 if clean is None else len(clean[1]))
    sets = {(name, level): images(name, level) for name in names for level in severities}
    if clean is not None:
        sets[CLEAN] = _batches(*clean, batch_size)
    scores, seen = dict[tuple[str, int], Scores](), 0
    with watched(predict, device):
        for key, batches in sets.items():
            sums, before = torch.zeros(3, dtype=torch.float64, device=device), seen
            for x, y in batches:
                output = logits_of(predict(as_unit_float(x.to(device)))).float()
                if output.ndim != 2 or len(output) != len(y):
                    raise InputError(f"expected logits ({len(y)}, K), but got {tuple(output.shape)}")
                labels = y.to(device).long()
                valid = labels.clamp(0, output.shape[1] - 1)
                rows = label_scores(output, valid)
                sums += torch.stack([rows["hit"].sum(), rows["nll"].sum(), (valid != labels).sum().double()])
                seen += len(y)
                progress(seen, total)
            # One transfer at the end, which also tells whether a label was out of range.
            hits, nll, outside = sums.tolist()
            if outside:
                raise InputError(
                    f"expected labels from 0 to {output.shape[1] - 1} for a model with {output.shape[1]} outputs, "
                    "but got others; evaluate on the classes it was trained on"
                )
            scores[key] = Scores(100 * hits / (seen - before), nll / (seen - before))
    by_name = {name: tuple(scores[name, level] for level in severities) for name in names}
    return CorruptionScores(provenance, severities, by_name, scores.get(CLEAN))


def _batches(x: Tensor, y: Tensor, batch_size: int) -> Batches:
    return zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True)


Errors = Mapping[str, float | Sequence[float]]

# AlexNet's errors on ImageNet-C, from the paper; for other data take a run of your own as baseline.
ALEXNET_IMAGENET_C: Mapping[str, float] = dict(
    zip(
        CORRUPTIONS,
        (88.6, 89.4, 92.3, 82.0, 82.6, 78.6, 79.8, 86.7, 82.7, 81.9, 56.5, 85.3, 64.6, 71.8, 60.7),
        strict=True,
    )
)
ALEXNET_IMAGENET = 43.5


def mean_error(errors: Errors) -> float:
    """The plain mean over severities and corruptions, in percent: what is usual for CIFAR-10-C."""
    return _mean(list(_by_corruption(errors).values()))


def mce(errors: Errors, baseline: Errors) -> float:
    """Mean corruption error: each corruption's error in percent of the baseline's. 100 is as good as the baseline."""
    return relative_mce(errors, 0, baseline, 0)


def relative_mce(errors: Errors, clean: float, baseline: Errors, baseline_clean: float) -> float:
    """The mean over corruptions of what each adds to the clean error, in percent of what it adds to the baseline's."""
    own, other = _by_corruption(errors), _by_corruption(baseline)
    for name in own:
        if name not in other:
            raise InputError(f"expected the baseline to hold every corruption, but {name} is missing")
        counts = [len(values) for e in (errors, baseline) if isinstance(values := e[name], Sequence)]
        if len(set(counts)) > 1:
            got = " and ".join(map(str, counts))
            raise InputError(f"expected as many severities as the baseline for {name}, but got {got}")
        if other[name] <= baseline_clean:
            added = other[name] - baseline_clean
            raise InputError(f"expected a baseline that {name} makes worse, but its error there is {added:g}")
    return _mean([100 * ((own[name] - clean) / (other[name] - baseline_clean)) for name in own])


def severity_curve(errors: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
    """The error at each severity, averaged over the corruptions."""
    return tuple(_mean(column) for column in zip(*errors.values(), strict=True))


def _by_corruption(errors: Errors) -> dict[str, float]:
    if not errors:
        raise InputError("expected the errors of at least one corruption, but got none")
    return {name: _mean(values if isinstance(values, Sequence) else [values]) for name, values in errors.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
