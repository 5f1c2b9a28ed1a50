"""The four suites of a saved run: calibration, attacks, corruptions, and data from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from rcad.data.corrupted import CorruptedArrays, open_corrupted
from rcad.errors import InputError
from rcad.evaluate.attack_search import batches, seeded
from rcad.evaluate.attacks import APGD, FGSM, PGD, Attack
from rcad.evaluate.classification import before_and_after, classification, fit_temperature, risk_coverage
from rcad.evaluate.conformal import LEVELS, conformal_classes, conformal_values
from rcad.evaluate.corruptions.generated import SMALLEST
from rcad.evaluate.corruptions.scores import (
    CorruptionScores,
    Published,
    evaluate_corruptions,
    evaluate_published,
    mean_error,
    severity_curve,
)
from rcad.evaluate.masking import masking_checks
from rcad.evaluate.ood import Direction, detection, entropy_against_alpha, out_of_distribution
from rcad.evaluate.regression import interval_coverage, regression
from rcad.evaluate.robustness import accuracy_under, attacked_accuracy, standard_suite
from rcad.evaluate.saved_run.loading import BATCH, OnStep, SavedRun, foreign_inputs
from rcad.evaluate.saved_run.settings import Settings
from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.perturbations import GradientStep
from rcad.loss.predictions import reliability
from rcad.loss.suggest_alpha import suggest_alpha

INTERVALS = tuple(k / 20 for k in range(1, 20))
DLR_CLASSES = 3
ENTROPY_BINS, ROC_POINTS = 30, 60


@dataclass(frozen=True)
class SuiteResult:
    """Numbers by flat name, curves for figures, sentences for the reader, and how many examples were looked at."""

    numbers: Mapping[str, float]
    curves: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    examples: int = 0


class NotApplicable(Exception):
    """A suite makes no sense for a run; the sentence says why."""


def calibration(saved: SavedRun, settings: Settings, progress: OnStep) -> SuiteResult:
    """How honest the probabilities are: as they are, then with what the validation split corrects."""
    x, y = saved.examples("calibration", settings)
    output = saved.outputs(x)
    progress("test examples", 1, 2)
    held_out, target = saved.problem.val
    held = (saved.outputs(held_out), target) if len(target) else None
    scale, notes = saved.problem.target_scale or 1.0, list[str]()
    if saved.problem.classes:
        numbers, curves = _of_classes(output, y, held, notes)
        sets = conformal_classes(held, (output, y)) if held else {}
    else:
        numbers = regression(output, y, scale)
        curves = {"intervals": {"level": list(INTERVALS), "coverage": list(interval_coverage(output, y, INTERVALS))}}
        notes.append(
            "A temperature is for classes; for a regression target see how often the intervals hold what they promise."
        )
        sets = conformal_values(held, (output, y), scale) if held else {}
    missing = [f"{100 * level:g}%" for level in LEVELS if f"conformal_coverage_{100 * level:g}" not in sets]
    if held and len(missing) > 1:  # 99% asks for more than many have
        notes.append(f"{len(target)} validation examples are too few for conformal sets of {' or '.join(missing)}.")
    if sets and saved.record.config.train.selection == "best":
        notes.append("The validation split also chose the epoch, so conformal coverage holds only approximately.")
    progress("test examples", 2, 2)
    return SuiteResult({**numbers, **sets}, curves, tuple(notes), len(y))


def _of_classes(
    output: Tensor, y: Tensor, held: tuple[Tensor, Tensor] | None, notes: list[str]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Numbers and curves of a classifier, with a temperature where one can be fitted; `notes` says why not."""
    curves = {"reliability": asdict(reliability(output, y)), "risk_coverage": asdict(risk_coverage(output, y))}
    fitted = None if held is None else fit_temperature(*held)
    if fitted is None:
        notes.append("No validation split was held out, so no temperature is fitted.")
    elif fitted.at_limit:
        # At T near 0 a single error on the test split costs hundreds of nats: no number worth a mean.
        sure = fitted.value < 1
        why = "every validation example is right" if sure else "the logits are worse than none"
        best = "0" if sure else "infinite"
        notes.append(f"No temperature is given: {why}, so the best one on the validation split would be {best}.")
    else:
        curves["reliability_scaled"] = asdict(reliability(output.double() / fitted.value, y))
        held_out = {"val_nll": fitted.nll_before, "val_nll_scaled": fitted.nll_after}
        return {**before_and_after(fitted, output, y), **held_out}, curves
    return classification(output, y), curves


def attacks(saved: SavedRun, settings: Settings, progress: OnStep, twin: SavedRun | None = None) -> SuiteResult:
    """Percent right under each attack and radius, those on an ERM `twin` too, and whether that can be believed."""
    if not saved.problem.classes:
        raise NotApplicable("Attacks are made on classes; this run has a regression target.")
    x, y = saved.examples("attacks", settings)
    numbers: dict[str, float] = {}
    notes: list[str] = []
    curves: dict[str, Any] = {"eps": list(settings.attack_eps), "accuracy": {}, "masking": []}
    for eps in settings.attack_eps:
        named, on_batch = _attacks_within(eps, saved, settings), partial(progress, f"attacks within {eps:.3g}")
        generator = seeded(saved.problem.device, settings.seed)
        accuracies = attacked_accuracy(saved.model, x, y, named, generator=generator, progress=on_batch).accuracies()
        numbers["attacked_accuracy_clean"] = accuracies.pop("clean")
        for name, value in accuracies.items():
            numbers[f"attacked_accuracy_{name}_{eps:.4g}"] = value
            curves["accuracy"].setdefault(name, []).append(value)
        if "fgsm" in named:
            numbers[f"accuracy_under_fgsm_{eps:.4g}"] = accuracy_under(saved.model, x, y, named["fgsm"])
    if "apgd_dlr" in settings.attacks and saved.problem.classes < DLR_CLASSES:
        notes.append(f"APGD-DLR needs {DLR_CLASSES} classes and is left out.")
    if not saved.is_image:
        notes.append("Radii are deviations of the table's columns, and no bounds limit the attacked rows.")
    # The radius at which masking is looked for: with the defaults 8/255.
    middle = sorted(settings.attack_eps)[len(settings.attack_eps) // 2]
    if settings.masking:
        checks = masking_checks(
            saved.model,
            x,
            y,
            PGD(middle, bounds=saved.bounds, steps=settings.steps),
            twin=None if twin is None else twin.model,
            seed=settings.seed,
            progress=partial(progress, "signs of gradient masking"),
        )
        curves["masking"] = [{**check._asdict(), "numbers": dict(check.numbers)} for check in checks]
        numbers["masking_signs"] = float(sum(not check.passed for check in checks))
    if settings.standard:
        if not saved.is_image:
            raise NotApplicable("The standard suite of attacks is made for images; leave it out.")
        survived = standard_suite(saved.model, x, y, middle, progress=partial(progress, "the standard suite"))
        numbers[f"attacked_accuracy_standard_{middle:.4g}"] = survived.accuracies()["worst"]
    return SuiteResult(numbers, curves, tuple(notes), len(y))


def _attacks_within(eps: float, saved: SavedRun, settings: Settings) -> dict[str, Attack]:
    bounds, steps = saved.bounds, settings.steps
    by_name: dict[str, Attack] = {
        "fgsm": FGSM(eps, bounds=bounds),
        "pgd": PGD(eps, bounds=bounds, steps=steps),
        "apgd_ce": APGD(eps, bounds=bounds, steps=steps),
    }
    if saved.problem.classes >= DLR_CLASSES:
        by_name["apgd_dlr"] = APGD(eps, bounds=bounds, steps=steps, loss="dlr")
    return {name: attack for name, attack in by_name.items() if name in settings.attacks}


def corruptions(saved: SavedRun, settings: Settings, progress: OnStep) -> SuiteResult:
    """Accuracy under fifteen corruptions at five severities: generated here, or the published files."""
    if not saved.is_image:
        raise NotApplicable("Corruptions are made for images; this run was trained on a table.")
    if not saved.problem.classes:
        raise NotApplicable("Corruptions are judged by the accuracy on classes; this run has a regression target.")
    height, width = saved.shape[1:]
    if settings.corrupted is None and min(height, width) < SMALLEST:
        raise NotApplicable(
            f"Corruptions need images of at least {SMALLEST} pixels a side; this run's are {width}x{height}."
        )
    x, y = saved.examples("corruptions", settings)
    options: dict[str, Any] = {"corruptions": settings.corruptions, "severities": settings.severities}
    options["progress"] = partial(progress, "corrupted images")
    if settings.corrupted is None:
        scores = evaluate_corruptions(saved.model, x, y, seed=settings.seed, **options)
    else:
        published = published_set(saved, settings)
        options |= {"clean": (x, y), "limit": len(y), "device": saved.problem.device}
        scores = evaluate_published(saved.model, published, seed=settings.seed, **options)
    return SuiteResult(_corruption_numbers(scores), scores.to_dict(), (), len(y))


def published_set(saved: SavedRun, settings: Settings) -> Published:
    """The published set that the settings name, if it is whole and made for the run's images and classes."""
    folder, classes = str(settings.corrupted), saved.problem.preprocessing["classes"]
    published = open_corrupted(folder, classes=classes, cache_dir=saved.loader.cache_dir)
    if isinstance(published, CorruptedArrays) and (held := int(published.labels.max()) + 1) != len(classes):
        raise InputError(
            f"expected {len(classes)} classes in {folder}, as the run has, but got {held}; name the set that was made "
            f"from {saved.record.config.data.name}"
        )
    for name in settings.corruptions:
        if name not in published.corruptions:
            raise InputError(
                f"expected {name} in {folder}, but it is missing; download the set again, or leave --corrupted out"
            )
    shape = tuple(published.split(settings.corruptions[0], settings.severities[0]).x.shape[1:])
    if shape != saved.shape:
        raise InputError(
            f"expected images of shape {saved.shape} in {folder}, but got {shape}; evaluate a run that was trained "
            "on such images"
        )
    return published


def _corruption_numbers(scores: CorruptionScores) -> dict[str, float]:
    errors, nlls = scores.errors(), scores.nlls()
    numbers = {
        "corrupted_accuracy_mean": 100 - mean_error(errors),
        "corrupted_error_mean": mean_error(errors),
        "corrupted_nll_mean": sum(nlls.values()) / len(nlls),
    }
    if scores.clean is not None:
        numbers |= {"corrupted_accuracy_clean": scores.clean.accuracy, "corrupted_nll_clean": scores.clean.nll}
    numbers |= {f"corrupted_accuracy_{name}": value for name, value in scores.accuracies().items()}
    curve = zip(scores.severities, severity_curve(errors), strict=True)
    return numbers | {f"corrupted_accuracy_severity_{level}": 100 - value for level, value in curve}


def ood(saved: SavedRun, settings: Settings, progress: OnStep) -> SuiteResult:
    """Does the model know what it does not know? Scores against foreign data, and its entropy along growing steps."""
    x, y = saved.examples("ood", settings)
    # Without a cap: it would hide where the entropy goes on growing.
    likelihood: Likelihood = Categorical() if saved.problem.classes else Gaussian(cap=None)
    own = saved.outputs(x)
    numbers: dict[str, float] = {}
    curves: dict[str, Any] = {"foreign": {}, "alpha": {}}
    sets = {name: foreign_inputs(saved, name, len(y), settings.seed) for name in settings.ood_data}
    if saved.problem.classes:
        generator = seeded(saved.problem.device, settings.seed)
        numbers["suggested_alpha"] = suggest_alpha(*saved.problem.train, generator=generator)
        # RCAD's own examples of doubt: one step of that length up the loss of the model itself.
        step, parts = GradientStep(numbers["suggested_alpha"]), batches(x, y, BATCH, saved.problem.device)
        sets["perturbed"] = torch.cat([step(saved.model, part, labels, Categorical()) for part, labels in parts])
    for place, (name, inputs) in enumerate(sets.items()):
        progress("OOD data", place, len(sets))
        output = saved.outputs(inputs)
        inside, outside = (-likelihood.entropy(logits.double()) for logits in (own, output))
        if saved.problem.classes:
            separations = out_of_distribution(own, output)
        else:
            separations = {f"entropy_{quantity}": value for quantity, value in detection(inside, outside).items()}
        numbers |= {f"ood_{name}_{quantity}": value for quantity, value in separations.items()}
        curves["foreign"][name] = {
            "count": len(inputs),
            "histogram": _histogram(saved, -inside, -outside),
            "roc": roc(inside, outside),
        }
    for direction in get_args(Direction):
        curve = entropy_against_alpha(
            saved.model,
            x,
            y,
            settings.alphas,
            likelihood,
            direction=direction,
            batch_size=BATCH,
            generator=seeded(saved.problem.device, settings.seed),
            progress=partial(progress, f"entropy along {direction} steps"),
        )
        curves["alpha"][direction] = asdict(curve)
        pairs = zip(curve.alphas, curve.entropy, strict=True)
        numbers |= {f"entropy_{direction}_{alpha:g}": value for alpha, value in pairs}
    one_score = "A regression target has one score: the entropy of the predicted Gaussian."
    return SuiteResult(numbers, curves, () if saved.problem.classes else (one_score,), len(y))


def roc(inside: Tensor, outside: Tensor) -> dict[str, list[float]]:
    """Share of known and of foreign examples accepted, at falling thresholds; from (0, 0) to (1, 1)."""
    scores = torch.cat([inside, outside]).sort(descending=True).values
    thresholds = scores[torch.linspace(0, len(scores) - 1, min(ROC_POINTS, len(scores)), device=scores.device).long()]
    shares = [(part[:, None] >= thresholds).double().mean(0) for part in (inside, outside)]
    known, foreign = torch.stack(shares).tolist()
    return {"known": [0.0, *known], "foreign": [0.0, *foreign]}


def _histogram(saved: SavedRun, inside: Tensor, outside: Tensor) -> dict[str, list[float]]:
    """Shares of known and of foreign examples in bins of entropy; the bins of K classes are the same for every run."""
    entropies = torch.cat([inside, outside])
    low, high = torch.stack([entropies.min(), entropies.max()]).tolist()
    if saved.problem.classes:
        low, high = 0.0, math.log(saved.problem.classes)
    edges = torch.linspace(low, max(high, low + 1e-9), ENTROPY_BINS + 1, dtype=torch.float64)
    place = edges[1:-1].to(entropies.device)
    known, foreign = (
        torch.bincount(torch.bucketize(entropy, place), minlength=ENTROPY_BINS).double() / len(entropy)
        for entropy in (inside, outside)
    )
    return {"edges": edges.tolist(), "known": known.tolist(), "foreign": foreign.tolist()}
