"""The records of a folder. A record says its kind; files of another kind, or of none, are listed and not shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError, fitting
from rcad.loss.method_rows import label, sources
from rcad.paper.record import JSON, KIND, LAST, Place, Run, Study
from rcad.paper.report import costs
from rcad.paper.report.chapters import EVALUATION
from rcad.paper.targets import TARGETS
from rcad.paper.tuned import TUNING_SEEDS
from rcad.runs.files import loads, read_text
from rcad.runs.pack import SUFFIX, is_pack, read_pack
from rcad.runs.record import FINISHED, RunRecord
from rcad.train.trackers import flat

RUN, SUITE_RUNS, SUITE_PACKS = "record.json", "runs", "images"
SHOWN: Mapping[str, Callable[[JSON], Any]] = {
    costs.KIND: costs.cost_table,
    costs.GROWTH: costs.growth_table,
    EVALUATION: lambda record: record["groups"],
}
"""The kinds of records that are no studies, and a part of each without which it is damaged."""


@dataclass(frozen=True)
class Records:
    """Everything under a folder: studies in the report's order, other records by kind, files of no known kind.

    damaged: one line for each file that could not be read.
    runs: by pack or folder, the records of its runs by id; of a run that was made several times the last counts.
    """

    studies: Sequence[Study]
    by_kind: Mapping[str, Sequence[tuple[Path, JSON]]]
    damaged: Sequence[str]
    runs: Mapping[Path, Mapping[str, RunRecord]]
    unused: Sequence[Path] = ()

    @property
    def missing(self) -> list[str]:
        """Targets of the paper without a record."""
        return [name for name in TARGETS if name not in {study.target for study in self.studies}]

    @property
    def run_files(self) -> dict[str, Path]:
        """By id the file that holds a run's record."""
        return {
            name: place if is_pack(place) else place / name / RUN for place, runs in self.runs.items() for name in runs
        }

    def runs_of(self, study: Study) -> list[RunRecord]:
        """The records of a study's runs, as far as they are there; those in its own file count first."""
        last = {name: record for runs in self.runs.values() for name, record in runs.items()}
        own = self.runs.get(study.path, {}) if study.path is not None else {}
        return [own.get(name, last[name]) for name in study.run_ids if name in last]


def read(results: Path) -> Records:
    """Read every record in `results` and one folder below it; run records may lie deeper."""
    if not results.is_dir():
        raise InputError(f"expected a folder of records, but there is none at {results}; pass --results")
    studies: list[Study] = []
    by_kind: dict[str, list[tuple[Path, JSON]]] = {kind: [] for kind in SHOWN}
    damaged: list[str] = []
    unused: list[Path] = []
    for path in sorted([*results.glob("*.json"), *results.glob("*/*.json")]):
        if path.name == RUN:
            continue
        try:
            plain: Any = loads(read_text(path), str(path))
            kind = str(plain.get("kind")) if isinstance(plain, Mapping) else ""
            if kind == KIND:
                studies.append(Study.parse(plain, path))
            elif isinstance(plain, Mapping) and plain.get("target") in TARGETS:
                raise InputError(f"expected {path} to say its kind, but it was made by an older rcad; run it again")
            elif kind in SHOWN:
                with fitting(str(path), "run it again"):
                    SHOWN[kind](plain)
                by_kind[kind].append((path, plain))
            else:
                unused.append(path)
        except InputError as error:
            damaged.append(str(error))
    runs = _runs(results, damaged)
    mentioned = {name for study in studies for name in study.run_ids}
    for place, by_id in runs.items():
        finished = [record for record in by_id.values() if record.status in FINISHED]
        if place.parent == results / SUITE_PACKS:  # a search that is not over shows nothing yet
            finished = [record for record in finished if record.config.seed not in TUNING_SEEDS["full"]]
        if finished and _is_study(results, place, used=not mentioned.isdisjoint(by_id)):
            parts = place.relative_to(results).parts
            name = place.name.removesuffix(SUFFIX) if is_pack(place) else "-".join(parts) or results.resolve().name
            studies.append(runs_study(name, place, finished))
    cost = costs.judge(by_kind[costs.KIND])
    studies += [cost] if cost is not None else []
    return Records(titled(studies), by_kind, damaged, runs, unused)


def _runs(results: Path, damaged: list[str]) -> dict[Path, dict[str, RunRecord]]:
    """By pack, those of the suites last, then by folder the records of runs."""
    runs: dict[Path, dict[str, RunRecord]] = {}
    packs = sorted(results.glob(f"**/*{SUFFIX}"), key=lambda path: (path.parent == results / SUITE_PACKS, path))
    for path in (*packs, *sorted(results.glob(f"**/{RUN}"))):
        try:
            if is_pack(path):
                runs[path] = {name: run.record for name, run in read_pack(path).items()}
            else:
                record = RunRecord.from_dict(loads(read_text(path), str(path)), source=str(path))
                runs.setdefault(path.parent.parent, {})[path.parent.name] = record
        except InputError as error:
            damaged.append(str(error))
    return runs


def _is_study(results: Path, place: Path, *, used: bool) -> bool:
    """Whether runs are shown by themselves: not those of a suite, which may be unfinished or have a damaged record.

    Packs that lie elsewhere are studies of their own; runs beside those of a suite in the same folder are none.
    """
    if is_pack(place):
        return place.parent != results / SUITE_PACKS or not used
    return not used and not (place.name == SUITE_RUNS and place.parent.parent == results)


def runs_study(name: str, path: Path, records: Sequence[RunRecord]) -> Study:
    """A folder or a pack of runs that no suite mentions: methods by model and what else differs, seeds together."""
    grouped: dict[tuple[str, str], list[Run]] = {}
    settings = [flat(asdict(record.config)) for record in records]
    same = {"seed", "data.seed", "method", "model.name", "model.norm"}
    differing = [key for key in settings[0] if key not in same and len({repr(each.get(key)) for each in settings}) > 1]
    for record, setting in zip(records, settings, strict=True):
        model, metrics = record.config.model, record.metrics.items()
        column = " ".join(part for part in (model.name, model.norm and f"({model.norm} norm)") if part)
        column = ", ".join([column, *(f"{key} {setting.get(key)}" for key in differing)])
        numbers = {key.removeprefix("test_"): value for key, value in metrics if key.startswith(("test_", LAST))}
        seconds = record.timings.get("train_seconds")
        run = Run(record.config.seed, numbers, record.id, str(record.status), seconds)
        row = " ".join([label(record.config.method), *(f"[{code[:8]}]" for code in sources(record.config.method))])
        grouped.setdefault((row, column), []).append(run)
    measured = {name for runs in grouped.values() for run in runs for name in run.metrics}
    metric = next((name for name in ("accuracy", "nll", "rmse") if name in measured), "nll")
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


def titled(studies: Sequence[Study]) -> list[Study]:
    """The studies in the report's order, with titles that differ: the second record of a target names its scale."""
    order = {target: index for index, target in enumerate(TARGETS)}
    titles: set[str] = set()
    ordered = []
    for study in sorted(
        studies, key=lambda s: (order.get(s.target, len(order)), s.target, s.tuned, str(s.path).removesuffix(".json"))
    ):
        title = f"{study.target}: {study.title}" if study.target in TARGETS else study.title
        if title.casefold() in titles:
            file = study.path and f"{study.path.parent.name}/{study.path.name}"
            title += f" ({', '.join(part for part in (study.scale, study.protocol, file) if part)})"
        titles.add(title.casefold())
        ordered.append(replace(study, title=title))
    return ordered
