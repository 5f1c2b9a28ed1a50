"""The tables of an evaluation, for the page, the Markdown and the terminal alike, from its summary alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rcad.evaluate.saved_run.numbers import near, p_value, radius, signed, spread
from rcad.report.document import Table

Group = Mapping[str, Any]
NO_SPREAD = "no spread"
SCORES = {"msp": "MSP", "entropy": "entropy", "energy": "energy", "max_logit": "max logit"}
ATTACKS = {"fgsm": "FGSM", "pgd": "PGD", "apgd_ce": "APGD-CE", "apgd_dlr": "APGD-DLR", "worst": "worst"}
# Column heads by the name of a number; those in percent are the accuracies.
CLASSES = {
    "accuracy": "accuracy, %",
    "top5": "top 5, %",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "ece_mass": "ECE, equal mass",
    "aurc": "AURC",
}
SCALED = {
    "temperature": "temperature",
    "nll_scaled": "NLL, scaled",
    "brier_scaled": "Brier, scaled",
    "ece_scaled": "ECE, scaled",
    "ece_mass_scaled": "ECE, equal mass, scaled",
}
VALUES = {
    "rmse": "RMSE",
    "nll": "NLL",
    "crps": "CRPS",
    "coverage_90": "in the 90% interval",
    "sharpness": "sharpness",
    "pit_error": "PIT error",
}
CORRUPTED = {
    "corrupted_accuracy_clean": "clean, %",
    "corrupted_accuracy_mean": "mean, %",
    "corrupted_accuracy_severity_1": "severity 1, %",
    "corrupted_accuracy_severity_5": "severity 5, %",
    "corrupted_nll_mean": "NLL",
    "mce": "mCE to ERM",
}


def tables(groups: Sequence[Group], suite: str) -> list[Table]:
    """A suite's tables; none where no run has it."""
    held = [group for group in groups if evaluations(group, suite)]
    if not held:
        return []
    if suite == "calibration":
        return _calibration(held)
    if suite == "attacks":
        return [_attacked(held), *([_masking(held)] if _was_checked(held) else [])]
    return [_corrupted(held)] if suite == "corruptions" else [_foreign(held)]


def _was_checked(groups: Sequence[Group]) -> bool:
    return any(e["curves"]["masking"] for group in groups for e in evaluations(group, "attacks"))


def evaluations(group: Group, suite: str) -> list[Mapping[str, Any]]:
    """The suite's records of a group, by seed."""
    return [found[suite] for found in group["evaluations"] if suite in found]


def differences(groups: Sequence[Group], suites: Iterable[str]) -> Table | None:
    """How far each method is from ERM, number by number; None where nothing can be compared."""
    rows = []
    intervals = False
    for group in groups:
        found = (group["comparison"] or {}).get("differences", {})
        for name in [name for suite in suites for name in _telling(suite, found) if name in found]:
            rows.append([group["name"], _words(name), signed(name, found[name]), p_value(found[name])])
            intervals = intervals or found[name]["low"] is not None
    if not rows:
        return None
    caption = "Difference to ERM of the same seeds, method minus ERM"
    caption += ", with its 95% interval and two-sided p." if intervals else "."
    if any(row[-1] == NO_SPREAD for row in rows):
        caption += " No spread: every seed differs by the same amount, which leaves nothing to test by."
    return Table(["method", "number", "difference [95%]" if intervals else "difference", "p"], rows, caption)


def _telling(suite: str, found: Mapping[str, Any]) -> list[str]:
    """What of a suite is compared: the worst case and FGSM at each radius, the mean corruption, two AUROCs."""
    if suite == "calibration":
        return ["accuracy", "nll", "ece", "nll_scaled", "ece_scaled", "rmse", "crps"]
    if suite == "attacks":
        return [n for n in found if n.startswith(("attacked_accuracy_worst_", "accuracy_under_fgsm_"))]
    if suite == "corruptions":
        return ["corrupted_accuracy_mean", "corrupted_nll_mean"]
    return [n for n in found if n.startswith("ood_") and n.endswith(("msp_auroc", "energy_auroc"))]


def _words(name: str) -> str:
    """The name of a number for a reader."""
    known = {**CLASSES, **SCALED, **{k: v for k, v in VALUES.items() if k != "nll"}}
    if name in known:
        return known[name]
    for start, text in (("attacked_accuracy_worst_", "worst attack within"), ("accuracy_under_fgsm_", "FGSM")):
        if name.startswith(start):
            return f"accuracy, %, {text} {near(name.removeprefix(start))}"
    if name.startswith("ood_") and name.endswith("_auroc"):
        for score, text in SCORES.items():
            if name.endswith(f"_{score}_auroc"):
                return f"AUROC against {name[4:].removesuffix(f'_{score}_auroc')}, {text}"
    return {"corrupted_accuracy_mean": "accuracy, %, corrupted", "corrupted_nll_mean": "NLL, corrupted"}.get(name, name)


def _over(groups: Sequence[Group]) -> str:
    counts = sorted({len(group["seeds"]) for group in groups})
    if counts == [1]:
        return "One seed each: no spread can be given."
    return f"Mean ± standard deviation over seeds ({' or '.join(map(str, counts))})."


def _plain(groups: Sequence[Group], columns: Mapping[str, str], caption: str) -> Table:
    shown = {name: text for name, text in columns.items() if any(name in group["numbers"] for group in groups)}
    rows = [[group["name"], *(spread(name, group["numbers"]) for name in shown)] for group in groups]
    return Table(["method", *shown.values()], rows, f"{caption} {_over(groups)}")


def _calibration(groups: Sequence[Group]) -> list[Table]:
    found = []
    classes, values = ([g for g in groups if bool(g["classes"]) == kind] for kind in (True, False))
    if classes:
        found.append(_plain(classes, CLASSES, "Test split."))
        if any("temperature" in group["numbers"] for group in classes):
            text = "The same after one temperature, fitted on the validation split."
            found.append(_plain(classes, SCALED, text))
    if values:
        found.append(_plain(values, VALUES, "Test split, in the unit of the target."))
    return found


def _attacked(groups: Sequence[Group]) -> Table:
    radii = list(dict.fromkeys(eps for g in groups for e in evaluations(g, "attacks") for eps in e["curves"]["eps"]))
    rows = []
    for group in groups:
        names = dict.fromkeys(a for e in evaluations(group, "attacks") for a in e["curves"]["accuracy"])
        for attack in names:
            cells = [spread(f"attacked_accuracy_{attack}_{eps:.4g}", group["numbers"]) for eps in radii]
            rows.append([group["name"], ATTACKS.get(attack, attack), *cells])
        rows += [
            [
                group["name"],
                f"standard suite at {near(name.rpartition('_')[2])}",
                spread(name, group["numbers"]),
                *blank,
            ]
            for name in group["numbers"]
            if name.startswith("attacked_accuracy_standard_")
            for blank in [[""] * (len(radii) - 1)]
        ]
        under = [spread(f"accuracy_under_fgsm_{eps:.4g}", group["numbers"]) for eps in radii]
        if any(cell != "-" for cell in under):
            rows.append([group["name"], "FGSM, paper's count", *under])
    clean = ", ".join(f"{g['name']} {spread('attacked_accuracy_clean', g['numbers'])}" for g in groups)
    caption = (
        "Accuracy in percent by l-infinity radius, of examples right before and after; the paper's count also takes "
        f"those that an attack turns right. Without attack: {clean}. {_over(groups)}"
    )
    return Table(["method", "attack", *map(radius, radii)], rows, caption)


def _masking(groups: Sequence[Group]) -> Table:
    rows = []
    for group in groups:
        by_check: dict[str, list[Mapping[str, Any]]] = {}
        for found in evaluations(group, "attacks"):
            for check in found["curves"]["masking"]:
                by_check.setdefault(check["name"], []).append(check)
        for name, checks in by_check.items():
            telling = next((one for one in checks if not one["passed"]), checks[0])
            passed = f"{sum(one['passed'] for one in checks)} of {len(checks)}"
            rows.append([group["name"], name, passed, telling["sentence"]])
    caption = "Signs of gradient masking: a check that fails says that the accuracies above are too high."
    folded = f"Signs of gradient masking: {masking_words(groups)}"
    return Table(["method", "check", "passed", "what was seen"], rows, caption, folded=folded)


def masking_words(groups: Sequence[Group]) -> str:
    """How many checks were made, and how many failed."""
    checks = [check for g in groups for e in evaluations(g, "attacks") for check in e["curves"]["masking"]]
    failed = [check["name"] for check in checks if not check["passed"]]
    if not failed:
        return f"all {len(checks)} checks passed"
    return f"{len(failed)} of {len(checks)} checks failed ({', '.join(sorted(set(failed)))})"


def _corrupted(groups: Sequence[Group]) -> Table:
    kinds = sorted({e["curves"]["provenance"] for g in groups for e in evaluations(g, "corruptions")})
    return _plain(groups, CORRUPTED, f"Corruptions: {' and '.join(kinds)}. Accuracy over corruptions and severities.")


def _foreign(groups: Sequence[Group]) -> Table:
    sets = list(dict.fromkeys(n for g in groups for e in evaluations(g, "ood") for n in e["curves"]["foreign"]))
    rows = []
    for name in sets:
        for group in groups:
            cells = [spread(f"ood_{name}_{score}_auroc", group["numbers"]) for score in SCORES]
            cells.append(spread(f"ood_{name}_entropy_fpr95", group["numbers"]))
            if any(cell != "-" for cell in cells):
                rows.append([name, group["name"], *cells])
    caption = (
        "AUROC by score, known test examples against foreign ones (1 is perfect, 0.5 is chance), and the share of "
        f"foreign examples that pass where 95% of the known ones do, by entropy. {_over(groups)}"
    )
    return Table(["foreign data", "method", *SCORES.values(), "FPR95, entropy"], rows, caption)
