"""Accuracy under fifteen corruptions at five severities: generated here, or the published files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rcad.data.corrupted import CorruptedArrays, open_corrupted
from rcad.data.dataset import Split
from rcad.errors import InputError
from rcad.evaluate.corruptions import CorruptionScores, evaluate_corruptions, evaluate_published
from rcad.evaluate.corruptions.generated import SMALLEST
from rcad.evaluate.corruptions.scores import PublishedSet, mean_error, severity_curve
from rcad.evaluate.saved_run.finished_run import Progress, Subject, drawn
from rcad.evaluate.saved_run.settings import Settings
from rcad.evaluate.saved_run.suite_result import Found, NotApplicable


def corruptions(subject: Subject, settings: Settings, progress: Progress, cache_dir: Path | None = None) -> Found:
    if not subject.is_image:
        raise NotApplicable("Corruptions are made for images; this run was trained on a table.")
    if not subject.problem.classes:
        raise NotApplicable("Corruptions are judged by the accuracy on classes; this run has a real target.")
    height, width = subject.shape[1:]
    if settings.corrupted is None and min(height, width) < SMALLEST:
        raise NotApplicable(
            f"Corruptions need images of at least {SMALLEST} pixels a side; this run's are {width}x{height}."
        )
    x, y = subject.examples("corruptions", settings)

    def done(count: int, total: int) -> None:
        progress("corrupted images", count, total)

    if settings.corrupted is None:
        scores = evaluate_corruptions(
            subject.model,
            x,
            y,
            corruptions=settings.corruptions,
            severities=settings.severities,
            seed=settings.seed,
            progress=done,
        )
    else:
        scores = evaluate_published(
            subject.model,
            published_set(subject, settings, cache_dir),
            device=subject.problem.device,
            clean=(x, y),
            corruptions=settings.corruptions,
            severities=settings.severities,
            progress=done,
        )
    return Found(_numbers(scores), scores.to_dict(), (), len(y))


@dataclass(frozen=True)
class Few:
    """A published set of which only as many images are looked at as the suite takes."""

    whole: PublishedSet
    count: int
    seed: int

    @property
    def corruptions(self) -> tuple[str, ...]:
        return self.whole.corruptions

    def split(self, corruption: str, severity: int) -> Split:
        every = self.whole.split(corruption, severity)
        return every.take(drawn(len(every), self.count, self.seed).numpy())


def published_set(subject: Subject, settings: Settings, cache_dir: Path | None) -> Few:
    """The published set that the settings name, if it is whole and made for the run's images and classes."""
    folder, classes = str(settings.corrupted), subject.problem.preprocessing["classes"]
    found = open_corrupted(folder, classes=classes, cache_dir=cache_dir)
    if isinstance(found, CorruptedArrays) and (held := int(found.labels.max()) + 1) != len(classes):
        raise InputError(
            f"expected {len(classes)} classes in {folder}, as the run has, but got {held}; name the set that was made "
            f"from {subject.record.config.data.name}"
        )
    for name in settings.corruptions:
        if name not in found.corruptions:
            raise InputError(
                f"expected {name} in {folder}, but it is missing; download the set again, or leave --corrupted out"
            )
    shape = tuple(found.split(settings.corruptions[0], settings.severities[0]).x.shape[1:])
    if shape != subject.shape:
        raise InputError(
            f"expected images of shape {subject.shape} in {folder}, but got {shape}; evaluate a run that was trained "
            "on such images"
        )
    return Few(found, subject.limit("corruptions", settings), settings.seed)


def _numbers(scores: CorruptionScores) -> dict[str, float]:
    accuracies, errors = scores.accuracies(), scores.errors()
    nlls = scores.nlls()
    numbers = {
        "corrupted_accuracy_mean": 100 - mean_error(errors),
        "corrupted_error_mean": mean_error(errors),
        "corrupted_nll_mean": sum(nlls.values()) / len(nlls),
    }
    if scores.clean is not None:
        numbers |= {"corrupted_accuracy_clean": scores.clean.accuracy, "corrupted_nll_clean": scores.clean.nll}
    numbers |= {f"corrupted_accuracy_{name}": value for name, value in accuracies.items()}
    curve = zip(scores.severities, severity_curve(errors), strict=True)
    return numbers | {f"corrupted_accuracy_severity_{level}": 100 - value for level, value in curve}
