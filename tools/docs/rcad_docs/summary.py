"""Short tables for the first pages, from the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rcad.paper.claims import Claim
from rcad.paper.moons import at_printed_size
from rcad.paper.record import Study
from rcad.paper.report.numbers import Mean, gain_over, mean_of, place_mean, tally
from rcad_docs.evidence import report

RANDOM = "random direction"
ROWS = ("ERM", "RCAD", RANDOM)
FEW = "n=2,000"
NARROW = "\N{NARROW NO-BREAK SPACE}"


def does_it_help(root: Path) -> str:
    """ERM, RCAD and the control on the paper's data, in two tables: accuracies and likelihoods."""
    studies = {study.target: study for study in report(root).found.studies}
    accuracies, likelihoods = [], []
    if moons := studies.get("T8"):
        accuracies = [_row(moons, f"moons, {column}", column) for column in moons.columns]
        for where, found in at_printed_size(moons).items():
            means = [_shown(mean_of([one for one in found[row] if one is not None]), 1) for row in ROWS]
            accuracies.append(f"| moons, {where} | {' | '.join(_words(moons, where))} | {' | '.join(means)} |")
    if images := _few_images(root):
        accuracies.append(_row(images, "CIFAR-100, 2,000 images, ResNet-18 (T4, chosen epoch)", FEW))
    if uci := studies.get("T7"):
        likelihoods = [_row(uci, column, column) for column in uci.columns]
    rest = "| RCAD against ERM | against random | ERM | RCAD | random direction |\n|---|---|---|---|---|---|"
    tables = [("Test accuracy, %", accuracies), ("Test NLL (lower is better), UCI", likelihoods)]
    return "\n\n".join("\n".join([f"| {name} {rest}", *rows]) for name, rows in tables if rows)


def _row(study: Study, name: str, column: str) -> str:
    numbers = [_mean(study, row, column) for row in ROWS]
    return f"| {name} | {' | '.join(_words(study, column))} | {' | '.join(numbers)} |"


def _words(study: Study, where: str) -> list[str]:
    return [_verdict(study, where, f"than {other}") for other in ("ERM", "a random direction")]


def _few_images(root: Path) -> Study | None:
    """T4 with the paper's settings."""
    return next((one for one in report(root).found.studies if one.target == "T4" and one.as_published), None)


def _two(study: Study) -> tuple[str, str]:
    """The rows of ERM and of RCAD at every step, among single runs."""
    erm = next(row for row in study.rows if row.endswith("erm"))
    return erm, next(row for row in study.rows if "rcad(" in row and "every" not in row)


def _mean(study: Study, row: str, column: str) -> str:
    place = study.places.get((row, column))
    return _shown(None if place is None else place_mean(study, place), 1 if study.unit == "%" else 2)


def _shown(found: Mean | None, places: int) -> str:
    if found is None:
        return "-"
    spread = "" if found.half is None else f"{NARROW}±{NARROW}{found.half:.{places}f}"
    return f"{found.value:.{places}f}{spread}"


def _verdict(study: Study, column: str, ending: str) -> str:
    said = [ending, "than RCAD"] if ending == "than ERM" else [ending]
    claim = next((c for c in study.claims if c.where == column and c.statement.endswith(tuple(said))), None)
    return "-" if claim is None else f'<span class="{_mark(claim)}">{_told(claim)}</span>'


def _told(claim: Claim) -> str:
    # The paper itself may say that ERM is the better one.
    turned = {"reproduced": "worse", "opposite": "better", "not reproduced": "not worse"}
    reverse = turned if claim.statement.startswith("ERM") else {}
    words = {"reproduced": "better", "opposite": "worse", "not reproduced": "not better", "undecided": "undecided"}
    return reverse.get(claim.verdict, words[claim.verdict])


def _mark(claim: Claim) -> str:
    return {"better": "good", "worse": "bad", "not better": "bad"}.get(_told(claim), "open")


def verdicts(root: Path) -> str:
    """How many claims got each verdict: what the paper prints, what it says, and what we added."""
    judged = [(study, claim) for study in report(root).found.studies for claim in study.tested if study.as_published]
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
    names = [
        ("rcad", "RCAD, fused (the default)"), ("rcad reference", "RCAD, a backward to x for the direction"),
        ("rcad autograd", "RCAD by autograd, one graph for all"),
        ("rcad naive", "the paper's pseudocode, literally"), ("rcad every=4", "RCAD at every 4th step"),
        ("fgsm", "FGSM training"), ("rcad_released", "two views, as released"), ("me_ada", "ME-ADA"),
    ]  # fmt: skip
    head = [f"{name}, batch {batch}" for name, _, _, batch in columns]
    lines = [f"| time of a step / ERM's | {' | '.join(head)} |", "|---|" + "--:|" * len(columns)]
    for key, told in names:
        cells = [f"{found[key]:.2f}" if key in found else "-" for found in tables]
        lines.append(f"| {told} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _rows(root: Path, stem: str, mode: str, batch: int) -> list[dict[str, Any]]:
    """The rows of a benchmark with one run at a time."""
    path = root / "results" / "benchmarks" / f"{stem}.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    return [row for row in rows if (row["mode"], row["batch"], row["replicas"]) == (mode, batch, 1)]


def _ratios(root: Path, stem: str, mode: str, batch: int) -> dict[str, float]:
    rows = _rows(root, stem, mode, batch)
    return {_method(row): row["ratio_to_erm"] for row in rows if row["ratio_to_erm"] is not None}


def _method(row: dict[str, Any]) -> str:
    """In records that do not compare with the fused step, what is now called autograd went by the name of reference."""
    old = row["method"] == "rcad reference" and "fused_over_this" not in row
    return "rcad autograd" if old else str(row["method"])


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
    studies = {study.target: study for study in report(root).found.studies}
    rows = [
        (
            "RCAD is more accurate than ERM on small image sets (T1, T4: +1.9 points on CIFAR-100-2k)",
            _images(root, studies),
        ),
        ("RCAD beats ERM and adversarial rivals on moons among noise (T8)", _tally(studies, "T8", "RCAD is")),
        ("RCAD lowers the test NLL of UCI regression, except on wine (T7)", _tally(studies, "T7")),
        ("A large step unlearns noise, a small one does not; lemmas and theorem (F5)", _tally(studies, "F5")),
        ("RCAD's boundary follows the moons (F7)", _tally(studies, "F7")),
        ("FGSM training lowers accuracy (T1, T8)", _statements(studies, "T8", "ERM is more accurate than FGSM")),
        ("The adversarial direction is what helps (the paper shows no random one)", _direction(studies)),
        ("A step costs at most 1.3 times ERM's", _steps(root)),
    ]
    missing = report(root).found.missing
    if missing:
        rows.append((f"{', '.join(missing)}: the other tables and figures", "not run yet at any scale kept here"))
    return "\n".join(["| the paper says | what was measured |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


def _tally(studies: dict[str, Study], target: str, start: str = "") -> str:
    """The paper's own claims of a table, those that begin so."""
    study = studies.get(target)
    if study is None:
        return "not run"
    chosen = [claim for claim in study.claims if claim.statement.startswith(start) and not study.added(claim)]
    return f"{tally(chosen)} ([{target}]({target}.md))"


def _statements(studies: dict[str, Study], target: str, statement: str) -> str:
    claims = [c for c in studies[target].claims if c.statement.startswith(statement)] if target in studies else []
    return f"{tally(claims)} on the moons ([{target}]({target}.md))" if claims else "not run"


def _direction(studies: dict[str, Study]) -> str:
    told = []
    for target, name in (("T8", "moons"), ("T7", "UCI")):
        claims = (
            [c for c in studies[target].claims if c.statement.endswith("a random direction")]
            if target in studies
            else []
        )
        told += [f"{name}: {tally(claims)}"] if claims else []
    return f"our checks against a random direction: {'; '.join(told)}" if told else "not run"


def _images(root: Path, studies: dict[str, Study]) -> str:
    """T4 at both epochs, and the earlier runs of the same seeds, which came out otherwise."""
    told = []
    study = _few_images(root)
    claim = study and next(c for c in study.claims if c.where == FEW and c.statement.endswith("than ERM"))
    if study and claim and claim.last:
        for epoch, found, metric in (("chosen", claim.gain, "nll"), ("last", claim.last.gain, "last_nll")):
            if found:
                nll = [mean_of(study.places[row, FEW].values(metric)) for row in ROWS[:2]]
                gain = f"{found['mean']:+.1f} points [{found['low']:+.1f}, {found['high']:+.1f}]"
                numbers = " and ".join(f"{one.value:.2f}" for one in nll if one)
                told.append(f"{gain}, NLL {numbers} at the {epoch} epoch ([T4](T4.md), {found['df'] + 1:.0f} seeds)")
    if earlier := studies.get("cifar100-2k-bf16"):
        erm, ours = _two(earlier)
        if gain := gain_over(earlier, ours, erm, earlier.columns[0]):
            name = "[earlier runs](runs-cifar100-2k-bf16.md) of as many seeds, chosen epoch"
            told.append(f"{name}: {gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]")
    return f"on CIFAR-100-2k {'; '.join(told)}" if told else "not run"


def _steps(root: Path) -> str:
    gpu, cpu = _ratios(root, "step_time_h200", "graph", 32), _ratios(root, "step_time_cpu", "eager", 128)
    found = [
        f"{table['rcad']:.2f} {where}" for table, where in ((gpu, "on an H200"), (cpu, "on a CPU")) if "rcad" in table
    ]
    return f"{', '.join(found)}; the arithmetic of the exact step is 2.0 ([speed](../speed.md))"


def damages(root: Path) -> str:
    """What becomes of each kind of damage to each kind of file, as the test of it found."""
    found = json.loads((root / "tests/attack/damage.json").read_text(encoding="utf-8"))
    kinds = list(next(iter(found.values()))["damages"])
    lines = [f"| file | {' | '.join(kinds)} | what heals it |", f"|---|{'---|' * len(kinds)}---|"]
    for file, row in found.items():
        cells = [row["damages"][kind]["how"] for kind in kinds]
        by = dict.fromkeys(f"`{row['damages'][kind]['command']}`" for kind in kinds)
        lines.append(f"| {file} | {' | '.join(cells)} | {row['heals']}: {', '.join(by)} |")
    return "\n".join(lines)


def attack(root: Path) -> str:
    """What the last long attack tried, and how often something did not hold."""
    found = json.loads((root / "results/attack/attack.json").read_text(encoding="utf-8"))
    tried = [f"| {name} | {count:,} |" for name, count in found["tried"].items()]
    held = [f"| {name} | {count:,} |" for name, count in found["held"].items()]
    about = f"{found['minutes']:g} minutes on {found['cores']} cores, {found['date']}, seed {found['seed']}."
    return "\n".join(
        [about, "", "| tried | times |", "|---|---|", *tried, "", "| faults | times |", "|---|---|", *held]
    )
