"""The tables of an evaluation and what a reader should know beside them, from its summary alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from rcad.evaluate.saved_run.settings import LIMITS
from rcad.report.document import Table
from rcad.report.numbers import MINUS, capital, decimals, fixed, p_value

Group = Mapping[str, Any]
Summary = Mapping[str, Any]
NO_SPREAD = "no spread"
NO_MCE, NO_ERM = "No mCE", "No ERM run"
"""How the notes of a group begin that belong to the corruptions, and to the comparison."""
SCORES = {"msp": "MSP", "entropy": "entropy", "energy": "energy", "max_logit": "max logit"}
ATTACKS = {"fgsm": "FGSM", "pgd": "PGD", "apgd_ce": "APGD-CE", "apgd_dlr": "APGD-DLR", "worst": "worst"}
# Column heads by the name of a number; those in percent are the accuracies.
CLASSES = {
    "accuracy": "accuracy, %",
    "overconfidence": f"confidence {MINUS} accuracy",
    "top5": "top 5, %",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "ece_mass": "ECE, equal mass",
    "aurc": "AURC",
}
SCALED = {"temperature": "temperature"}
SCALED |= {f"{name}_scaled": f"{CLASSES[name]}, scaled" for name in ("nll", "brier", "ece", "ece_mass")}
VALUES = {
    "rmse": "RMSE",
    "nll": "NLL",
    "crps": "CRPS",
    "coverage_90": "in the 90% interval",
    "sharpness": "sharpness",
    "pit_error": "PIT error",
}


def _conformal(size: str, size_words: str, noun: str) -> dict[str, str]:
    columns = (("coverage", "in the"), (size, size_words))
    return {
        f"conformal_{name}_{level}": f"{words} {level}% {noun}" for level in (90, 95, 99) for name, words in columns
    }


SETS = _conformal("size", "classes in the", "set")
WIDTHS = _conformal("width", "width of the", "interval")
CORRUPTED = {
    "corrupted_accuracy_clean": "clean, %",
    "corrupted_accuracy_mean": "mean, %",
    "corrupted_accuracy_severity_1": "severity 1, %",
    "corrupted_accuracy_severity_5": "severity 5, %",
    "corrupted_nll_mean": "NLL",
    "mce": "mCE to ERM",
}
# What of the calibration is compared with ERM.
COMPARED = ["accuracy", "nll", "ece", "nll_scaled", "ece_scaled"]
COMPARED += ["conformal_size_90", "rmse", "crps", "conformal_width_90"]


def evaluations(group: Group, suite: str) -> list[Mapping[str, Any]]:
    """The suite's records of a group, by seed."""
    return [by_suite[suite] for by_suite in group["evaluations"] if suite in by_suite]


def radii(groups: Sequence[Group]) -> list[float]:
    """Of the attacks, in the order they were asked for."""
    return list(dict.fromkeys(eps for g in groups for e in evaluations(g, "attacks") for eps in e["curves"]["eps"]))


def foreign_sets(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(name for g in groups for e in evaluations(g, "ood") for name in e["curves"]["foreign"]))


def provenances(groups: Sequence[Group]) -> str:
    """Whether the corrupted images were generated or published."""
    kinds = {e["curves"]["provenance"] for group in groups for e in evaluations(group, "corruptions")}
    return " and ".join(sorted(kinds))


def tables(groups: Sequence[Group], suite: str) -> list[Table]:
    """A suite's tables; none where no run has it."""
    held = [group for group in groups if evaluations(group, suite)]
    if held and suite == "corruptions":
        caption = f"Corruptions: {provenances(held)}. Accuracy over corruptions and severities."
        return [_columns(held, CORRUPTED, caption)]
    make = {"calibration": _calibration, "attacks": _attacks, "ood": _foreign_data}
    return make[suite](held) if held else []


def differences(groups: Sequence[Group], suites: Iterable[str]) -> Table | None:
    """How far each method is from ERM, number by number; None where nothing can be compared."""
    rows, intervals = [], False
    for group, suite in product(groups, suites):
        gains = (group["comparison"] or {}).get("differences", {})
        for name, words in _compared(suite, group).items():
            if name in gains:
                gain = gains[name]
                p = gain["why"] if gain["p_two"] is None else p_value(gain["p_two"])
                rows.append([group["name"], words, signed(name, gain), p])
                intervals = intervals or gain["low"] is not None
    if not rows:
        return None
    caption = "Difference to ERM of the same seeds, method minus ERM"
    caption += ", with its 95% interval and two-sided p." if intervals else "."
    if any(row[-1] == NO_SPREAD for row in rows):
        caption += " No spread: every seed differs by the same amount, so there is nothing to test."
    return Table(["method", "number", "difference [95%]" if intervals else "difference", "p"], rows, caption)


def notes(summary: Summary, suite: str) -> list[str]:
    """What a reader of a suite's tables should know: provenance, examples, what was left out and why."""
    groups = summary["groups"]
    records = [e for group in groups for e in evaluations(group, suite)]
    sentences = [f"{_about(group)}: {group['refused'][suite]}" for group in groups if suite in group["refused"]]
    if suite == summary["suites"][0] and all(len(group["seeds"]) == 1 for group in groups):
        sentences.append(f"One seed{' each' * (len(groups) > 1)}: no spread can be given.")
    if counts := sorted({e["examples"] for e in records}):
        usual = summary["settings"][suite]["limit"] is None and any(
            count in filter(None, LIMITS[suite]) for count in counts
        )
        why = ", because all would take long; --limit 0 takes all" if usual else ""
        sentences.append(f"Test examples used: {' or '.join(f'{count:,}' for count in counts)}{why}.")
    if suite == "attacks" and any("masking_signs" in e["numbers"] for e in records):
        sentences.append(f"{masking_words(groups)}.")
    if suite == "corruptions" and records:
        sentences.append(f"Provenance of the corrupted images: {provenances(groups)}.")
        sentences += [note for group in groups for note in group["notes"] if note.startswith(NO_MCE)]
    for note in dict.fromkeys(note for e in records for note in e["notes"]):
        held = sum(note in e["notes"] for e in records)
        sentences.append(note if held == len(records) else f"{held} of {len(records)} runs: {note}")
    return list(dict.fromkeys(sentences))


def comparison_notes(summary: Summary) -> list[str]:
    """What can be said about the differences to ERM, or why there are none."""
    sentences = []
    for group in summary["groups"]:
        if group["comparison"] is not None:
            sentences.append(f"{_about(group)}: {group['comparison']['note']}")
        elif not group["is_erm"]:
            sentences += [f"{_about(group)}: {note}" for note in group["notes"] if note.startswith(NO_ERM)]
    return sentences


def _about(group: Group) -> str:
    """How a sentence on a group begins: a method named rcad is not the program, whose messages begin so."""
    return f"method {group['name']}"


def masking_words(groups: Sequence[Group]) -> str:
    checks = [check for g in groups for e in evaluations(g, "attacks") for check in e["curves"]["masking"]]
    failed = [check["name"] for check in checks if not check["passed"]]
    if not failed:
        return f"No signs of gradient masking were found: all {len(checks)} checks passed"
    names = ", ".join(sorted(set(failed)))
    return f"Signs of gradient masking were found: {len(failed)} of {len(checks)} checks failed ({names})"


def _compared(suite: str, group: Group) -> dict[str, str]:
    """What of a suite is compared, in words: the worst case and FGSM at each radius, two AUROCs for each set."""
    if suite == "calibration":
        words = {**VALUES, **SCALED, **CLASSES, **WIDTHS, **SETS}
        return {name: words[name] for name in COMPARED}
    if suite == "attacks":
        pairs = (("attacked_accuracy_worst", "worst attack within"), ("accuracy_under_fgsm", "FGSM"))
        return {f"{n}_{eps:.4g}": f"accuracy, %, {text} {radius(eps)}" for eps in radii([group]) for n, text in pairs}
    if suite == "corruptions":
        return {"corrupted_accuracy_mean": "accuracy, %, corrupted", "corrupted_nll_mean": "NLL, corrupted"}
    return {
        f"ood_{name}_{score}_auroc": f"AUROC against {name}, {SCORES[score]}"
        for name in foreign_sets([group])
        for score in ("msp", "energy")
    }


def _over_seeds(groups: Sequence[Group]) -> str:
    counts = sorted({len(group["seeds"]) for group in groups})
    return "" if counts == [1] else f" Mean ± standard deviation over seeds ({' or '.join(map(str, counts))})."


def _columns(groups: Sequence[Group], columns: Mapping[str, str], caption: str) -> Table:
    heads = {name: text for name, text in columns.items() if any(name in group["numbers"] for group in groups)}
    rows = [[group["name"], *(spread(name, group["numbers"]) for name in heads)] for group in groups]
    return Table(["method", *heads.values()], rows, f"{caption}{_over_seeds(groups)}", spare=[CLASSES["top5"]])


def _calibration(groups: Sequence[Group]) -> list[Table]:
    classes, values = ([g for g in groups if bool(g["classes"]) == kind] for kind in (True, False))
    caption = f"Test split. {capital(CLASSES['overconfidence'])}, in points: above 0 a model is overconfident."
    parts = [_columns(classes, CLASSES, caption)] if classes else []
    if any("temperature" in group["numbers"] for group in classes):
        parts.append(_columns(classes, SCALED, "The same after one temperature, fitted on the validation split."))
    if values:
        parts.append(_columns(values, VALUES, "Test split, in the unit of the target."))
    for held, columns, noun in ((classes, SETS, "sets"), (values, WIDTHS, "intervals")):
        if any("conformal_coverage_90" in group["numbers"] for group in held):
            caption = f"Conformal {noun}, calibrated on the validation split: the share of test examples they hold, and"
            parts.append(_columns(held, columns, f"{caption} how large they are."))
    return parts


def _attacks(groups: Sequence[Group]) -> list[Table]:
    sizes = radii(groups)
    rows = []
    for group in groups:
        numbers = group["numbers"]
        for attack in dict.fromkeys(a for e in evaluations(group, "attacks") for a in e["curves"]["accuracy"]):
            cells = [spread(f"attacked_accuracy_{attack}_{eps:.4g}", numbers) for eps in sizes]
            rows.append([group["name"], ATTACKS.get(attack, attack), *cells])
        for eps in sizes:
            if (name := f"attacked_accuracy_standard_{eps:.4g}") in numbers:
                blank = [""] * (len(sizes) - 1)
                rows.append([group["name"], f"standard suite at {radius(eps)}", spread(name, numbers), *blank])
        under = [spread(f"accuracy_under_fgsm_{eps:.4g}", numbers) for eps in sizes]
        if any(cell != "-" for cell in under):
            rows.append([group["name"], "FGSM, paper's count", *under])
    clean = ", ".join(f"{g['name']} {spread('attacked_accuracy_clean', g['numbers'])}" for g in groups)
    caption = (
        "Accuracy in percent by l-infinity radius, of examples right before and after; the paper's count also takes "
        f"those that an attack turns right. Without attack: {clean}.{_over_seeds(groups)}"
    )
    return [Table(["method", "attack", *map(radius, sizes)], rows, caption), *_masking(groups)]


def _masking(groups: Sequence[Group]) -> list[Table]:
    rows = []
    for group in groups:
        every = [check for record in evaluations(group, "attacks") for check in record["curves"]["masking"]]
        for name in dict.fromkeys(check["name"] for check in every):
            checks = [check for check in every if check["name"] == name]
            telling = next((check for check in checks if not check["passed"]), checks[0])
            passed = f"{sum(check['passed'] for check in checks)} of {len(checks)}"
            rows.append([group["name"], name, passed, telling["sentence"]])
    caption = "Gradient masking: a check that fails says that the accuracies above are too high."
    folded = masking_words(groups)
    return [Table(["method", "check", "passed", "what was seen"], rows, caption, folded=folded)] if rows else []


def _foreign_data(groups: Sequence[Group]) -> list[Table]:
    rows = []
    for name in foreign_sets(groups):
        for group in groups:
            cells = [spread(f"ood_{name}_{score}_auroc", group["numbers"]) for score in SCORES]
            cells.append(spread(f"ood_{name}_entropy_fpr95", group["numbers"]))
            if any(cell != "-" for cell in cells):
                rows.append([name, group["name"], *cells])
    caption = (
        "AUROC by score, test examples against OOD examples (1 is perfect, 0.5 is chance), and the share of OOD "
        f"examples accepted where 95% of the test examples are, by entropy.{_over_seeds(groups)}"
    )
    return [Table(["OOD data", "method", *SCORES.values(), "FPR95, entropy"], rows, caption)]


def spread(name: str, numbers: Mapping[str, Any]) -> str:
    """Mean ± deviation over seeds; the mean alone for one seed."""
    number = numbers.get(name)
    if number is None or number["mean"] is None:
        return "-"
    places = _places(name, number["mean"], number["sd"])
    text = fixed(number["mean"], places, minus="-")
    text = text if number["sd"] is None else f"{text} ± {fixed(number['sd'], places)}"
    held = sum(value is not None for value in number["values"])
    return text if held == len(number["values"]) else f"{text} [{held} of {len(number['values'])}]"


def signed(name: str, gain: Mapping[str, Any]) -> str:
    half = None if gain["low"] is None else (gain["high"] - gain["low"]) / 2
    places = _places(name, gain["mean"], half)
    mean, low, high = (fixed(gain[key], places, sign=True, minus="-") for key in ("mean", "low", "high"))
    return mean if half is None else f"{mean} [{low}, {high}]"


def radius(eps: float) -> str:
    """8/255 where that is what it is, else a number."""
    steps = 255 * eps
    return f"{steps:.0f}/255" if steps > 0.5 and abs(steps - round(steps)) < 1e-6 else f"{eps:.4g}"


def _places(name: str, value: float, deviation: float | None) -> int:
    """One decimal for percentages, three for areas; else two digits of the deviation, or three of the number."""
    if "accuracy" in name or "error_mean" in name or name in ("top5", "mce", "overconfidence"):
        return 1
    return 3 if name.endswith(("_auroc", "_fpr95")) else decimals(deviation or value / 10, 2, 4)
