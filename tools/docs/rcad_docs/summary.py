"""Short tables for the first pages, from the records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from rcad.paper.moons import at_printed_size
from rcad.paper.record import Study
from rcad.paper.report.few_labels import signed
from rcad.paper.report.tables import mean_of, place_mean, tally
from rcad.study.judge import VERDICTS
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


SUBJECTS = {
    "images (T1, T2, T4, T6, F1 to F4)": ("T1", "T2", "T4", "T6", "F1", "F2", "F3", "F4"),
    "moons (T8, F7)": ("T8", "F7"),
    "linear theory (F5)": ("F5",),
    "UCI regression (T7)": ("T7",),
    "cost": ("costs",),
}


def verdicts(root: Path) -> str:
    """How many claims of the paper got each verdict, by subject; our own checks apart."""
    judged = [(study, claim) for study in report(root).records.studies for claim in study.tested if study.as_published]
    groups = {
        name: [c for s, c in judged if s.target in targets and not s.added(c)] for name, targets in SUBJECTS.items()
    }
    groups["**all claims of the paper**"] = [claim for claims in groups.values() for claim in claims]
    groups["our checks, most against a random direction"] = [c for s, c in judged if s.added(c)]
    by_verdict = {name: Counter(claim.verdict for claim in claims) for name, claims in groups.items()}
    rows = [[name, str(count.total()), *(str(count[v]) for v in VERDICTS)] for name, count in by_verdict.items()]
    return table(["", "claims", *VERDICTS], rows, numbers=True)


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


IMAGES, ATTACKED = "n=2,000", "CIFAR-100-2k, attacked"
LITTLE, MUCH = (f"d=625, sigma={sigma}, noise on all" for sigma in ("0.1", "0.75"))
MORE = "is more accurate than"
MAIN_CLAIMS = (
    ("RCAD is more accurate than ERM on 2,000 CIFAR-100 images", "T4", IMAGES, f"RCAD {MORE} ERM"),
    ("the same on 500 images", "T4", "n=500", f"RCAD {MORE} ERM"),
    ("RCAD is more accurate than ME-ADA on 2,000 images", "T4", IMAGES, f"RCAD {MORE} ME-ADA"),
    ("with label smoothing, RCAD adds accuracy on 2,000 images", "F2", "CIFAR-100-2k", f"LS + RCAD {MORE} LS"),
    ("RCAD withstands an FGSM attack better than ERM", "T6", ATTACKED, "RCAD withstands the attack better than ERM"),
    ("RCAD is more accurate than ERM on moons with little noise", "T8", LITTLE, f"RCAD {MORE} ERM"),
    ("the same with much noise", "T8", MUCH, f"RCAD {MORE} ERM"),
    ("FGSM training is worse than ERM on moons with little noise", "T8", LITTLE, f"ERM {MORE} FGSM linf"),
    ("our check: RCAD beats a random direction on 2,000 images", "T4", IMAGES, f"RCAD {MORE} a random direction"),
    ("our check: the same on moons with little noise", "T8", LITTLE, f"RCAD {MORE} a random direction"),
)
"""In words; the table or figure, its column, and the claim as it stands there."""


def headlines(root: Path) -> str:
    """The paper's main claims: the printed difference in points, ours, and the verdict."""
    studies = {study.target: study for study in report(root).records.studies if study.as_published}
    rows = []
    for words, target, where, statement in MAIN_CLAIMS:
        (claim,) = (c for c in studies[target].claims if c.where == where and c.statement == statement)
        assert claim.gain is not None, claim
        ours = f"{signed(claim.gain['mean'], 1)} [{signed(claim.gain['low'], 1)}, {signed(claim.gain['high'], 1)}]"
        printed = "" if claim.published is None or studies[target].added(claim) else signed(claim.published, 1)
        rows.append([words, printed, ours, claim.verdict, _page(studies[target])])
    for words, target in (
        ("RCAD lowers the NLL of UCI regression", "T7"),
        ("linear theory: a large step unlearns noise; lemmas and theorem", "F5"),
    ):
        claims = [claim for claim in studies[target].tested if not studies[target].added(claim)]
        rows.append([words, "", f"{len(claims)} claims", tally(claims), _page(studies[target])])
    (cost,) = (claim for claim in studies["costs"].claims if "1.3" in claim.statement)
    rows.append(
        ["a step takes at most 1.3 times ERM's time", "1.3", _steps(root), cost.verdict, "[speed](../speed.md)"]
    )
    return table(["the paper says", "paper", "ours [95% CI]", "verdict", "page"], rows)


def _page(study: Study) -> str:
    """The page of a study in the repository, seen from docs/evidence."""
    assert study.path is not None
    return f"[{study.target}](../../results/{study.path.parent.name}/{study.path.stem}.md)"


def beside_the_paper(root: Path) -> str:
    """Accuracies of T4, ours and printed."""
    study = _few_images(root)
    assert study is not None
    rows = []
    for row in ("ERM", "LS", "ME-ADA", "RCAD"):
        cells = []
        for column in study.columns_run:
            place = study.places[row, column]
            mean = place_mean(study, place)
            assert place.published is not None
            cells.append(f"{'-' if mean is None else f'{mean.mean:.1f}'} / {place.published.mean:.1f}")
        rows.append([row, *cells])
    return table(["ours / paper, %", *(f"{column[2:]} images" for column in study.columns_run)], rows, numbers=True)


def _steps(root: Path) -> str:
    places = {
        "on an H200": _ratios(root, "step_time_h200", "graph", 32),
        "on a CPU": _ratios(root, "step_time_cpu", "eager", 128),
    }
    return ", ".join(f"{methods['rcad']:.2f} {where}" for where, methods in places.items())


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


def attack_in_short(root: Path) -> str:
    """The last long attack for the README."""
    record = json.loads((root / "results/attack/attack.json").read_text(encoding="utf-8"))
    words = {"kills": "kills", "damages": "damaged files", "mutants": "mutated files"}
    names = (*words, "bad commands", "full disks")
    tried = " · ".join(f"{record['tried'][name]:,} {words.get(name, name)}" for name in names)
    faults = list(record["held"].values())
    rows = [
        ["records lost, doubled or different", str(sum(faults[:3]))],
        ["unexpected errors, crashes, messages that are not one clear line, leftover files", str(sum(faults[3:]))],
    ]
    return table([f"[{record['minutes']:.0f} minutes of kills and damage](docs/damage.md)", tried], rows)


def attack(root: Path) -> str:
    """What the last long attack tried, and how often something did not hold."""
    record = json.loads((root / "results/attack/attack.json").read_text(encoding="utf-8"))
    about = f"{record['minutes']:g} minutes on {record['cores']} cores, {record['date']}, seed {record['seed']}."
    tables = [
        table([name, "times"], [[words, f"{count:,}"] for words, count in record[key].items()])
        for name, key in (("tried", "tried"), ("faults", "held"))
    ]
    return "\n\n".join([about, *tables])
