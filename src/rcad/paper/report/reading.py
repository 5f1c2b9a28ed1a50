"""Which records a folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rcad.errors import InputError
from rcad.paper.report import costs
from rcad.paper.report.evaluations import KIND as EVALUATION
from rcad.paper.report.parsing import from_suite
from rcad.paper.report.studies import OLD, from_old, runs_study
from rcad.paper.report.study import TITLES, Record, Study, named
from rcad.runs.files import loads, read_text
from rcad.runs.pack import SUFFIX, read_pack

RUN, SUITE_RUNS, SUITE_PACKS = "record.json", "runs", "images"


@dataclass(frozen=True)
class Found:
    """Everything under a folder.

    Attributes:
        studies: in the report's order.
        benchmarks: step times, by file.
        alphas: the measured alpha against a grid, by file.
        evaluations: of `rcad evaluate`, by file.
        damaged: one line for each file that could not be read.
        missing: targets of the paper without a record.
        run_files: by id the file that holds a run's record.
        run_facts: device and start of a run, by id.
        unused: files of another kind.
    """

    studies: Sequence[Study]
    benchmarks: Sequence[tuple[Path, Record]]
    alphas: Sequence[tuple[Path, Record]]
    evaluations: Sequence[tuple[Path, Record]]
    damaged: Sequence[str]
    missing: Sequence[str]
    run_files: dict[str, Path] = field(default_factory=dict)
    run_facts: dict[str, Record] = field(default_factory=dict)
    unused: Sequence[Path] = ()


def read(results: Path) -> Found:
    """Read every record in `results` and one folder below it; run records may lie deeper."""
    if not results.is_dir():
        raise InputError(f"expected a folder of records, but there is none at {results}; pass --results")
    studies: list[Study] = []
    others: dict[str, list[tuple[Path, Record]]] = {"benchmark": [], "alpha": [], EVALUATION: []}
    damaged: list[str] = []
    unused: list[Path] = []
    for path in sorted([*results.glob("*.json"), *results.glob("*/*.json")]):
        if path.name == RUN:
            continue
        try:
            kind, record = _opened(path)
            if kind == "suite":
                studies.append(from_suite(record, path))
            elif kind in OLD:
                studies.append(from_old(kind, record, path))
            elif kind in others:
                others[kind].append((path, record))
            else:
                unused.append(path)
        except InputError as error:
            damaged.append(str(error))
    every = sorted(results.glob(f"**/{RUN}"))  # one run may have been made in several folders
    mentioned = {run.id for study in studies for place in study.places.values() for run in place.runs}
    packs = _packs(results, damaged)
    facts, loose = _runs(every, mentioned, damaged)
    facts = {run: fact for held in packs.values() for run, fact in held[1].items()} | facts
    for pack, (records, _) in packs.items():
        # Packs that lie elsewhere are studies of their own, though a suite may have made the same runs again.
        if pack.parent != results / SUITE_PACKS or not mentioned & {record["id"] for record in records}:
            studies.append(runs_study(pack.name.removesuffix(SUFFIX), pack, records))
    for folder, runs in loose.items():
        if folder.name == SUITE_RUNS and folder.parent.parent == results:
            continue  # of a suite that is not finished, or whose record is damaged
        name = "-".join(folder.relative_to(results).parts) or results.resolve().name
        try:
            studies.append(runs_study(name, folder, runs))
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged.append(f"expected {folder} to hold records of runs, but got others; remove them")
    try:
        judged = costs.study(others["benchmark"])
        studies += [judged] if judged is not None else []
    except (KeyError, TypeError, ValueError):
        pass  # the chapter on costs says what a benchmark lacks
    targets = {study.target for study in studies}
    return Found(
        studies=named(studies),
        benchmarks=others["benchmark"],
        alphas=others["alpha"],
        evaluations=others[EVALUATION],
        damaged=damaged,
        missing=[target for target in TITLES if target not in targets],
        run_files={run: pack for pack, held in packs.items() for run in held[1]}
        | {path.parent.name: path for path in every},
        run_facts=facts,
        unused=unused,
    )


def _runs(
    files: Sequence[Path], mentioned: set[str], damaged: list[str]
) -> tuple[dict[str, Record], dict[Path, list[Record]]]:
    """What each run tells of its machine; and by folder the finished runs of stores that no suite uses."""
    # Runs beside those of a suite in the same store (of another scale, say) are no study of their own.
    used = {path.parent.parent for path in files if path.parent.name in mentioned}
    facts: dict[str, Record] = {}
    loose: dict[Path, list[Record]] = {}
    for path in files:
        try:
            run = loads(read_text(path), str(path))
            facts[path.parent.name] = {key: run.get(key) for key in ("device", "started")}
            if path.parent.parent not in used and run["status"] in ("done", "diverged"):
                loose.setdefault(path.parent.parent, []).append(run)
        except InputError as error:
            damaged.append(str(error))
        except (KeyError, TypeError, AttributeError):
            damaged.append(f"expected {path} to be the record of a run, but got another; remove it or run it again")
    return facts, loose


def _packs(results: Path, damaged: list[str]) -> dict[Path, tuple[list[Record], dict[str, Record]]]:
    """By pack the records of its runs, and what each tells of its machine; those of the suites come last."""
    found: dict[Path, tuple[list[Record], dict[str, Record]]] = {}
    files = results.glob(f"**/*{SUFFIX}")
    for path in sorted(files, key=lambda path: (path.parent == results / SUITE_PACKS, path)):
        try:
            records: list[Record] = [run.record.to_dict() for run in read_pack(path).values()]
        except InputError as error:
            damaged.append(str(error))
            continue
        found[path] = records, {run["id"]: {key: run[key] for key in ("device", "started")} for run in records}
    return found


def _opened(path: Path) -> tuple[str, Record]:
    record: Any = loads(read_text(path), str(path))
    if not isinstance(record, dict):
        return "", {}
    if "target" in record and "cells" in record:
        return "suite", record
    if record.get("target") in OLD and "results" in record:
        return str(record["target"]), record
    if record.get("target") == "alpha" and "results" in record:
        return "alpha", record
    if "figure" in record and "sweeps" in record:
        return "F5", record
    if record.get("kind") == EVALUATION:
        return EVALUATION, record
    rows = record.get("rows")
    if isinstance(rows, list) and rows and isinstance(rows[0], dict) and "ms_per_seed_step" in rows[0]:
        return "benchmark", record
    if record.get("target") in TITLES:
        raise InputError(f"expected cells or results in {path}, but got {', '.join(map(str, record))}; run it again")
    return "", record
