"""Which records a folder holds. A record says its kind; what has none, or another, is listed and not shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError, shaped
from rcad.loss.method_rows import label, sources
from rcad.paper.record import JSON, LAST, Place, Run, Study, is_study
from rcad.paper.report import costs
from rcad.paper.report.chapters import EVALUATED, EVALUATION
from rcad.paper.targets import TARGETS
from rcad.runs.files import loads, read_text
from rcad.runs.pack import SUFFIX, read_pack
from rcad.runs.record import FINISHED, RunRecord

RUN, SUITE_RUNS, SUITE_PACKS = "record.json", "runs", "images"


@dataclass(frozen=True)
class Found:
    """Everything under a folder: the studies in the report's order, other records by file.

    Attributes:
        damaged: one line for each file that could not be read.
        run_files: by id the file that holds a run's record.
        run_facts: device and start of a run, by id.
        pack_facts: the same by pack: a run may lie in several, made again.
        unused: files of another kind.
    """

    studies: Sequence[Study]
    step_times: Sequence[tuple[Path, JSON]]
    evaluations: Sequence[tuple[Path, JSON]]
    damaged: Sequence[str]
    scaling: Sequence[tuple[Path, JSON]] = ()
    run_files: Mapping[str, Path] = field(default_factory=dict)
    run_facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pack_facts: Mapping[Path, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    unused: Sequence[Path] = ()

    @property
    def missing(self) -> list[str]:
        """Targets of the paper without a record."""
        return [name for name in TARGETS if name not in {study.target for study in self.studies}]


def read(results: Path) -> Found:
    """Read every record in `results` and one folder below it; run records may lie deeper."""
    if not results.is_dir():
        raise InputError(f"expected a folder of records, but there is none at {results}; pass --results")
    studies: list[Study] = []
    forms: dict[str, Any] = {costs.KIND: costs.FORM, costs.GROWTH: costs.GROWTH_FORM, EVALUATION: EVALUATED}
    others: dict[str, list[tuple[Path, JSON]]] = {kind: [] for kind in forms}
    damaged: list[str] = []
    unused: list[Path] = []
    for path in sorted([*results.glob("*.json"), *results.glob("*/*.json")]):
        if path.name == RUN:
            continue
        try:
            plain: Any = loads(read_text(path), str(path))
            kind = str(plain.get("kind", "")) if isinstance(plain, Mapping) else ""
            if is_study(plain):
                studies.append(Study.parse(plain, path))
            elif isinstance(plain, Mapping) and plain.get("target") in TARGETS:
                raise InputError(f"expected {path} to say its kind, but it was made by an older rcad; run it again")
            elif kind in forms:
                others[kind].append((path, shaped(str(path), plain, forms[kind])))
            else:
                unused.append(path)
        except InputError as error:
            damaged.append(str(error))
    files = sorted(results.glob(f"**/{RUN}"))  # one run may have been made in several folders
    mentioned = {run.id for study in studies for place in study.places.values() for run in place.runs}
    packs = _packs(results, damaged)
    facts, loose = _runs(files, mentioned, damaged)
    for pack, held in packs.items():
        # Packs that lie elsewhere are studies of their own, though a suite may have made the same runs again.
        if pack.parent != results / SUITE_PACKS or not mentioned & {record.id for record in held}:
            studies.append(runs_study(pack.name.removesuffix(SUFFIX), pack, held))
    for folder, runs in loose.items():
        if folder.name == SUITE_RUNS and folder.parent.parent == results:
            continue  # of a suite that is not finished, or whose record is damaged
        name = "-".join(folder.relative_to(results).parts) or results.resolve().name
        studies.append(runs_study(name, folder, runs))
    cost = costs.judged(others[costs.KIND])
    studies += [cost] if cost is not None else []
    return Found(
        studies=named(studies),
        step_times=others[costs.KIND],
        scaling=others[costs.GROWTH],
        evaluations=others[EVALUATION],
        damaged=damaged,
        run_files={record.id: pack for pack, held in packs.items() for record in held}
        | {path.parent.name: path for path in files},
        run_facts={record.id: _machine(record) for held in packs.values() for record in held} | facts,
        pack_facts={pack: {record.id: _machine(record) for record in held} for pack, held in packs.items()},
        unused=unused,
    )


def _runs(
    files: Sequence[Path], mentioned: set[str], damaged: list[str]
) -> tuple[dict[str, Mapping[str, str]], dict[Path, list[RunRecord]]]:
    """What each run tells of its machine; and by folder the finished runs of stores that no suite uses."""
    # Runs beside those of a suite in the same store (of another scale, say) are no study of their own.
    used = {path.parent.parent for path in files if path.parent.name in mentioned}
    facts: dict[str, Mapping[str, str]] = {}
    loose: dict[Path, list[RunRecord]] = {}
    for path in files:
        try:
            run = RunRecord.from_dict(loads(read_text(path), str(path)), source=str(path))
        except InputError as error:
            damaged.append(str(error))
            continue
        facts[run.id] = _machine(run)
        if path.parent.parent not in used and run.status in FINISHED:
            loose.setdefault(path.parent.parent, []).append(run)
    return facts, loose


def _machine(run: RunRecord) -> Mapping[str, str]:
    return {"device": str(run.device or ""), "started": str(run.started or "")}


def _packs(results: Path, damaged: list[str]) -> dict[Path, list[RunRecord]]:
    """The records of each pack; those of the suites come last."""
    found: dict[Path, list[RunRecord]] = {}
    files = results.glob(f"**/*{SUFFIX}")
    for path in sorted(files, key=lambda path: (path.parent == results / SUITE_PACKS, path)):
        try:
            found[path] = [run.record for run in read_pack(path).values()]
        except InputError as error:
            damaged.append(str(error))
    return found


def runs_study(name: str, path: Path, records: Sequence[RunRecord]) -> Study:
    """A folder or a pack of runs that no suite mentions: methods by model, seeds together."""
    grouped: dict[tuple[str, str], list[Run]] = {}
    for record in records:
        model, metrics = record.config.model, record.metrics.items()
        column = " ".join(part for part in (model.name, model.norm and f"({model.norm} norm)") if part)
        numbers = {key.removeprefix("test_"): value for key, value in metrics if key.startswith(("test_", LAST))}
        seconds = record.timings.get("train_seconds")
        run = Run(record.config.seed, numbers, record.id, str(record.status), seconds)
        row = " ".join([label(record.config.method), *(f"[{code[:8]}]" for code in sources(record.config.method))])
        grouped.setdefault((row, column), []).append(run)
    known = {name for runs in grouped.values() for run in runs for name in run.metrics}
    metric = next((name for name in ("accuracy", "nll", "rmse") if name in known), "nll")
    places = {
        side: Place(*side, None, sorted(runs, key=lambda run: run.seed)) for side, runs in sorted(grouped.items())
    }
    return Study(
        target=name,
        title=f"runs: {name}",
        path=path,
        about=f"{len(records)} single runs on {records[0].config.data.name}; no claim is judged by them.",
        metric=metric,
        higher_is_better=metric == "accuracy",
        unit="%" if metric == "accuracy" else "",
        rows=list(dict.fromkeys(row for row, _ in places)),
        columns=list(dict.fromkeys(column for _, column in places)),
        places=places,
        versions=records[0].versions,
        seconds=sum(float(record.timings.get("train_seconds") or 0) for record in records),
    )


def named(studies: Sequence[Study]) -> list[Study]:
    """The studies in the report's order, with titles that differ: two records of one target name their scales."""
    order = {target: index for index, target in enumerate(TARGETS)}
    found = sorted(studies, key=lambda one: (order.get(one.target, len(order)), one.target, one.tuned, str(one.path)))
    seen: dict[str, int] = {}
    different = []
    for one in found:
        title = f"{one.target}: {one.title}" if one.target in TARGETS else one.title
        key = title.casefold()
        seen[key] = seen.get(key, 0) + 1
        file = one.path and f"{one.path.parent.name}/{one.path.name}"
        again = f" ({', '.join(part for part in (one.scale, one.protocol, file) if part)})" if seen[key] > 1 else ""
        different.append(replace(one, title=title + again))
    return different
