"""The accuracy that attacks leave, radius by radius, and whether it can be believed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rcad.evaluate.attacks import APGD, FGSM, PGD, Attack, accuracy_under, attacked_accuracy
from rcad.evaluate.masking import Check, masking_checks
from rcad.evaluate.robustness import standard_suite
from rcad.evaluate.saved_run.finished_run import Progress, Subject
from rcad.evaluate.saved_run.settings import Settings
from rcad.evaluate.saved_run.suite_result import Found, NotApplicable

DLR_CLASSES = 3


def attacks(subject: Subject, settings: Settings, progress: Progress, twin: Subject | None) -> Found:
    """Percent right under each attack and radius; `twin` is the ERM run whose attacks are tried on this model."""
    if not subject.problem.classes:
        raise NotApplicable("Attacks are made on classes; this run has a real target.")
    x, y = subject.examples("attacks", settings)
    numbers: dict[str, float] = {}
    notes: list[str] = []
    curves: dict[str, Any] = {"eps": list(settings.attack_eps), "accuracy": {}, "masking": []}
    for eps in settings.attack_eps:
        named = _attacks(subject, settings, eps)

        def done(count: int, total: int, eps: float = eps) -> None:
            progress(f"attacks within {eps:.3g}", count, total)

        generator = torch.Generator(subject.problem.device).manual_seed(settings.seed)
        found = attacked_accuracy(subject.model, x, y, named, generator=generator, progress=done).accuracies()
        numbers["attacked_accuracy_clean"] = found.pop("clean")
        for name, value in found.items():
            numbers[f"attacked_accuracy_{name}_{eps:.4g}"] = value
            curves["accuracy"].setdefault(name, []).append(value)
        if "fgsm" in named:
            numbers[f"accuracy_under_fgsm_{eps:.4g}"] = accuracy_under(subject.model, x, y, named["fgsm"])
    if "apgd_dlr" in settings.attacks and subject.problem.classes < DLR_CLASSES:
        notes.append(f"APGD-DLR needs {DLR_CLASSES} classes and is left out.")
    if not subject.is_image:
        notes.append("Radii are deviations of the table's columns, and no bounds limit the attacked rows.")
    if settings.masking:
        checks = _masking(subject, settings, x, y, twin, progress)
        curves["masking"] = [{**check._asdict(), "numbers": dict(check.numbers)} for check in checks]
        numbers["masking_signs"] = float(sum(not check.passed for check in checks))
    if settings.standard:
        numbers |= _standard(subject, settings, x, y, progress)
    return Found(numbers, curves, tuple(notes), len(y))


def central(settings: Settings) -> float:
    """The radius at which masking is looked for: with the defaults 8/255."""
    radii = sorted(settings.attack_eps)
    return radii[len(radii) // 2]


def _attacks(subject: Subject, settings: Settings, eps: float) -> dict[str, Attack]:
    bounds = (0.0, 1.0) if subject.is_image else None
    made = {
        "fgsm": FGSM(eps, bounds=bounds),
        "pgd": PGD(eps, bounds=bounds, steps=settings.steps),
        "apgd_ce": APGD(eps, bounds=bounds, steps=settings.steps),
        "apgd_dlr": APGD(eps, bounds=bounds, steps=settings.steps, loss="dlr"),
    }
    few = subject.problem.classes < DLR_CLASSES
    return {name: attack for name, attack in made.items() if name in settings.attacks and not (few and "dlr" in name)}


def _masking(
    subject: Subject, settings: Settings, x: Tensor, y: Tensor, twin: Subject | None, progress: Progress
) -> list[Check]:
    bounds = (0.0, 1.0) if subject.is_image else None
    attack = PGD(central(settings), bounds=bounds, steps=settings.steps)
    return masking_checks(
        subject.model,
        x,
        y,
        attack,
        twin=None if twin is None else twin.model,
        seed=settings.seed,
        progress=lambda done, total: progress("signs of gradient masking", done, total),
    )


def _standard(subject: Subject, settings: Settings, x: Tensor, y: Tensor, progress: Progress) -> dict[str, float]:
    if not subject.is_image:
        raise NotApplicable("The standard suite of attacks is made for images; leave it out.")
    eps = central(settings)
    survived = standard_suite(
        subject.model, x, y, eps, progress=lambda done, total: progress("the standard suite", done, total)
    )
    return {f"attacked_accuracy_standard_{eps:.4g}": survived.accuracies()["worst"]}
