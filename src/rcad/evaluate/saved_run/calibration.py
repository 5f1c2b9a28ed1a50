"""How honest a model's probabilities are, as it is and with one temperature fitted on the validation split."""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor

from rcad.evaluate.classification import before_and_after, classification, fit_temperature, risk_coverage
from rcad.evaluate.regression import interval_coverage, regression
from rcad.evaluate.saved_run.finished_run import Progress, Subject
from rcad.evaluate.saved_run.settings import Settings
from rcad.evaluate.saved_run.suite_result import Found
from rcad.loss.calibration import reliability

LEVELS = tuple(k / 20 for k in range(1, 20))


def calibration(subject: Subject, settings: Settings, progress: Progress) -> Found:
    x, y = subject.examples("calibration", settings)
    output = subject.outputs(x)
    progress("test examples", 1, 2)
    found = _of_classes(subject, output, y) if subject.problem.classes else _of_values(subject, output, y)
    progress("test examples", 2, 2)
    return found


def _of_classes(subject: Subject, output: Tensor, y: Tensor) -> Found:
    held_out, labels = subject.problem.val
    curves = {"reliability": asdict(reliability(output, y)), "risk_coverage": asdict(risk_coverage(output, y))}
    if not len(labels):
        note = "No validation split was held out, so no temperature is fitted."
        return Found(classification(output, y), curves, (note,), len(y))
    fitted = fit_temperature(subject.outputs(held_out), labels)
    if fitted.at_limit:
        # At T near 0 a single error on the test split costs hundreds of nats: no number worth a mean.
        extreme = "every validation example is right" if fitted.value < 1 else "the logits are worse than none"
        note = f"No temperature: {extreme}, so the validation NLL has its minimum at no finite temperature above 0."
        return Found(classification(output, y), curves, (note,), len(y))
    curves["reliability_scaled"] = asdict(reliability(output.double() / fitted.value, y))
    held = {"val_nll": fitted.nll_before, "val_nll_scaled": fitted.nll_after}
    return Found({**before_and_after(fitted, output, y), **held}, curves, (), len(y))


def _of_values(subject: Subject, output: Tensor, y: Tensor) -> Found:
    scale = subject.problem.target_scale or 1.0
    coverage = interval_coverage(output, y, LEVELS)
    curves = {"intervals": {"level": list(LEVELS), "coverage": list(coverage)}}
    note = "A temperature is for classes; for a real target see how often the intervals hold what they promise."
    return Found(regression(output, y, scale), curves, (note,), len(y))
