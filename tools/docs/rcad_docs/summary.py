"""Short tables for the first pages, from the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rcad.paper.claims import Claim
from rcad.paper.moons import at_printed_size
from rcad.paper.record import Study
from rcad.paper.report.numbers import gain_over, mean_of, place_mean, tally
from rcad.study.statistics import Summary
from rcad_docs import table
from rcad_docs.evidence import report

RANDOM = "random direction"
ROWS = ("ERM", "RCAD", RANDOM)
FEW = "n=2,000"
NARROW = "\N{NARROW NO-BREAK SPACE}"


def does_it_help(root: Path) -> str:
    """ERM, RCAD and the control on the paper's data, in two tables: accuracies and likelihoods."""
    studies = _by_target(root)
    accuracies, likelihoods = [], []
    if moons := studies.get("T8"):
        accuracies = [_row(moons, f"moons, {column}", column) for column in moons.columns]
        for where, results in at_printed_size(moons).items():
            means = [_mean_text(mean_of([v for v in results[row] if v is not None]), 1) for row in ROWS]
            accuracies.append([f"moons, {where}", *_verdicts(moons, where), *means])
    if images := _few_images(root):
        accuracies.append(_row(images, "CIFAR-100, 2,000 images, ResNet-18 (T4, chosen epoch)", FEW))
    if uci := studies.get("T7"):
        likelihoods = [_row(uci, column, column) for column in uci.columns]
    header = ["RCAD against ERM", "against random", "ERM", "RCAD", "random direction"]
    tables = {"Test accuracy, %": accuracies, "Test NLL (lower is better), UCI": likelihoods}
    return "\n\n".join(table([name, *header], rows) for name, rows in tables.items() if rows)


def _by_target(root: Path) -> dict[str, Study]:
    return {study.target: study for study in report(root).records.studies}


def _row(study: Study, name: str, column: str) -> list[str]:
    places, digits = [study.place(row, column) for row in ROWS], 1 if study.unit == "%" else 2
    means = [_mean_text(place_mean(study, place) if place else None, digits) for place in places]
    return [name, *_verdicts(study, column), *means]


def _verdicts(study: Study, where: str) -> list[str]:
    """RCAD against ERM and against the random direction."""
    return [_verdict(study, where, endings) for endings in (("than ERM", "than RCAD"), ("than a random direction",))]


def _few_images(root: Path) -> Study | None:
    """T4 with the paper's settings."""
    studies = report(root).records.studies
    return next((study for study in studies if study.target == "T4" and study.as_published), None)


def _mean_text(mean: Summary | None, places: int) -> str:
    if mean is None:
        return "-"
    spread = "" if mean.half is None else f"{NARROW}±{NARROW}{mean.half:.{places}f}"
    return f"{mean.mean:.{places}f}{spread}"


def _verdict(study: Study, column: str, endings: tuple[str, ...]) -> str:
    claim = next((c for c in study.claims if c.where == column and c.statement.endswith(endings)), None)
    if claim is None:
        return "-"
    words = {"reproduced": "better", "opposite": "worse", "not reproduced": "not better", "undecided": "undecided"}
    if claim.statement.startswith("ERM"):  # the paper itself may say that ERM is the better one
        words |= {"reproduced": "worse", "opposite": "better", "not reproduced": "not worse"}
    word = words[claim.verdict]
    mark = {"better": "good", "worse": "bad", "not better": "bad"}.get(word, "open")
    return f'<span class="{mark}">{word}</span>'


def verdicts(root: Path) -> str:
    """How many claims got each verdict: what the paper prints, what it says, and what we added."""
    judged = [(study, claim) for study in report(root).records.studies for claim in study.tested if study.as_published]
    printed = [(s, c) for s, c in judged if not s.added(c) and c.published is not None]
    said = [(s, c) for s, c in judged if not s.added(c) and c.published is None]
    added = [(s, c) for s, c in judged if s.added(c)]
    rivals = [(s, c) for s, c in printed if "RCAD" not in c.statement]
    return (
        f"{len(judged)} claims were judged at the paper's scale and by its protocol: {len(printed) + len(said)} of the "
        f"paper and {len(added)} checks of ours.\n\n"
        f"- **{len(printed)} differences between numbers that the paper prints** {_judged(printed)}. "
        f"{len(rivals)} of these compare ERM with a rival, not RCAD {_judged(rivals)}.\n"
        f"- **{len(said)} sentences of the paper** with no number to compare with {_judged(said)}.\n"
        f"- **{len(added)} checks of ours**: RCAD against a random direction, moons with noise on the d\N{MINUS SIGN}2 "
        f"others only, a whole figure in one draw {_judged(added)}."
    )


def _judged(claims: list[tuple[Study, Claim]]) -> str:
    targets = ", ".join(dict.fromkeys(study.target for study, _ in claims))
    return f"({targets}): {tally([claim for _, claim in claims])}"


def cost(root: Path) -> str:
    """Time of a step as a ratio to ERM's, from the benchmarks."""
    columns = [
        ("H200, one CUDA graph", "step_time_h200", "graph", 32),
        ("H200, eager", "step_time_h200", "eager", 32),
        ("CPU, small CNN", "step_time_cpu", "eager", 128),
    ]
    tables = [_ratios(root, stem, mode, batch) for _, stem, mode, batch in columns]
    names = {
        "rcad": "RCAD, fused (the default)",
        "rcad reference": "RCAD, a backward to x for the direction",
        "rcad autograd": "RCAD by autograd, one graph for all",
        "rcad naive": "the paper's pseudocode, literally",
        "rcad every=4": "RCAD at every 4th step",
        "fgsm": "FGSM training",
        "rcad_released": "two views, as released",
        "me_ada": "ME-ADA",
    }
    header = ["time of a step / ERM's", *(f"{name}, batch {batch}" for name, _, _, batch in columns)]
    rows = [
        [words, *(f"{ratios[key]:.2f}" if key in ratios else "-" for ratios in tables)] for key, words in names.items()
    ]
    return table(header, rows, numbers=True)


def _rows(root: Path, stem: str, mode: str, batch: int) -> list[dict[str, Any]]:
    """The rows of a benchmark with one run at a time."""
    path = root / "results" / "benchmarks" / f"{stem}.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    return [row for row in rows if (row["mode"], row["batch"], row["replicas"]) == (mode, batch, 1)]


def _ratios(root: Path, stem: str, mode: str, batch: int) -> dict[str, float]:
    rows = _rows(root, stem, mode, batch)
    return {row["method"]: row["ratio_to_erm"] for row in rows if row["ratio_to_erm"] is not None}


def memory(root: Path) -> str:
    """The most memory that a step took."""
    rows = _rows(root, "step_time_h200", "graph", 32)
    peak = {row["method"]: row["peak_memory_gib"] for row in rows if row.get("peak_memory_gib")}
    if not peak.keys() >= {"erm", "rcad"}:
        return ""
    return (
        f"Peak memory of a captured step of ResNet-18, batch size 32, on an H200: {peak['erm']:.2f} GiB for plain "
        f"training, {peak['rcad']:.2f} GiB for RCAD."
    )


def headlines(root: Path) -> str:
    """The paper's main claims in plain words, with what the records say."""
    studies, random = _by_target(root), "a random direction"
    checks = {name: _claims(studies, target, end=random) for name, target in (("moons", "T8"), ("UCI", "T7"))}
    direction = "; ".join(f"{name}: {tally(claims)}" for name, claims in checks.items() if claims)
    rows = [
        (
            "RCAD is more accurate than ERM on small image sets (T1, T4: +1.9 points on CIFAR-100-2k)",
            _images(root, studies),
        ),
        ("RCAD beats ERM and adversarial rivals on moons among noise (T8)", _own(studies, "T8", "RCAD is")),
        ("RCAD lowers the test NLL of UCI regression, except on wine (T7)", _own(studies, "T7")),
        ("A large step unlearns noise, a small one does not; lemmas and theorem (F5)", _own(studies, "F5")),
        ("RCAD's boundary follows the moons (F7)", _own(studies, "F7")),
        (
            "FGSM training lowers accuracy (T1, T8)",
            _linked(_claims(studies, "T8", "ERM is more accurate than FGSM"), "T8", " on the moons"),
        ),
        (
            "The adversarial direction is what helps (the paper shows no random one)",
            f"our checks against {random}: {direction}" if direction else "not run",
        ),
        ("A step costs at most 1.3 times ERM's", _steps(root)),
    ]
    if missing := report(root).records.missing:
        rows.append((f"{', '.join(missing)}: the other tables and figures", "not run yet at any scale kept here"))
    return table(["the paper says", "what was measured"], rows)


def _claims(studies: dict[str, Study], target: str, start: str = "", end: str = "") -> list[Claim]:
    """The claims of a table that begin and end so."""
    claims = studies[target].claims if target in studies else []
    return [claim for claim in claims if claim.statement.startswith(start) and claim.statement.endswith(end)]


def _own(studies: dict[str, Study], target: str, start: str = "") -> str:
    """The verdicts on the paper's own claims of a table."""
    return _linked([c for c in _claims(studies, target, start) if not studies[target].added(c)], target)


def _linked(claims: list[Claim], target: str, where: str = "") -> str:
    return f"{tally(claims)}{where} ([{target}]({target}.md))" if claims else "not run"


def _images(root: Path, studies: dict[str, Study]) -> str:
    """T4 at both epochs, and the earlier runs of the same seeds, which came out otherwise."""
    parts = []
    study = _few_images(root)
    claim = study and next(c for c in study.claims if c.where == FEW and c.statement.endswith("than ERM"))
    if study and claim and claim.last:
        for epoch, gain, metric in (("chosen", claim.gain, "nll"), ("last", claim.last.gain, "last_nll")):
            if gain:
                means = [mean_of(study.places[row, FEW].values(metric)) for row in ROWS[:2]]
                nll = " and ".join(f"{mean.mean:.2f}" for mean in means if mean)
                points = f"{gain['mean']:+.1f} points [{gain['low']:+.1f}, {gain['high']:+.1f}]"
                parts.append(f"{points}, NLL {nll} at the {epoch} epoch ([T4](T4.md), {gain['df'] + 1:.0f} seeds)")
    if earlier := studies.get("cifar100-2k-bf16"):
        erm = next(row for row in earlier.rows if row.endswith("erm"))
        rcad = next(row for row in earlier.rows if "rcad(" in row and "every" not in row)
        if paired := gain_over(earlier, rcad, erm, earlier.columns[0]):
            name = "[earlier runs](runs-cifar100-2k-bf16.md) of as many seeds, chosen epoch"
            parts.append(f"{name}: {paired.mean:+.1f} [{paired.low:+.1f}, {paired.high:+.1f}]")
    return f"on CIFAR-100-2k {'; '.join(parts)}" if parts else "not run"


def _steps(root: Path) -> str:
    places = {
        "on an H200": _ratios(root, "step_time_h200", "graph", 32),
        "on a CPU": _ratios(root, "step_time_cpu", "eager", 128),
    }
    ratios = [f"{methods['rcad']:.2f} {where}" for where, methods in places.items() if "rcad" in methods]
    return f"{', '.join(ratios)}; the arithmetic of the exact step is 2.0 ([speed](../speed.md))"


def damages(root: Path) -> str:
    """What becomes of each kind of damage to each kind of file, by the record of its test."""
    record = json.loads((root / "tests/attack/damage.json").read_text(encoding="utf-8"))
    kinds = list(next(iter(record.values()))["damages"])
    rows = []
    for file, row in record.items():
        commands = dict.fromkeys(f"`{row['damages'][kind]['command']}`" for kind in kinds)
        outcomes = [row["damages"][kind]["how"] for kind in kinds]
        rows.append([file, *outcomes, f"{row['heals']}: {', '.join(commands)}"])
    return table(["file", *kinds, "what heals it"], rows)


def attack(root: Path) -> str:
    """What the last long attack tried, and how often something did not hold."""
    record = json.loads((root / "results/attack/attack.json").read_text(encoding="utf-8"))
    about = f"{record['minutes']:g} minutes on {record['cores']} cores, {record['date']}, seed {record['seed']}."
    tables = [
        table([name, "times"], [[words, f"{count:,}"] for words, count in record[key].items()])
        for name, key in (("tried", "tried"), ("faults", "held"))
    ]
    return "\n\n".join([about, *tables])
