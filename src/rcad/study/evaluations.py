"""Finished runs looked at again: measured, side by side by method over seeds, with what sets them apart from ERM."""

from __future__ import annotations

import importlib.util
import logging
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError, MissingExtraError
from rcad.evaluate.corruptions import CorruptionScores, mce
from rcad.evaluate.saved_run.loading import RunLoader, finished
from rcad.evaluate.saved_run.page import document
from rcad.evaluate.saved_run.run import OnError, Outcome, erm_config, evaluate_all
from rcad.evaluate.saved_run.settings import ATTACKS, NOISE, Settings, parse_suites
from rcad.evaluate.saved_run.tables import NO_ERM, NO_MCE, NO_SPREAD
from rcad.loss.method_rows import label
from rcad.report import html
from rcad.report.document import Document
from rcad.report.markdown import markdown
from rcad.report.result import Result
from rcad.report.terminal import section_lines
from rcad.runs.config import RunConfig
from rcad.runs.files import check_folder, dumps, finite_or_none, loads, make_folder, read_text, write_text
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord, versions
from rcad.runs.store import RECORD, Store
from rcad.study.statistics import FEWEST, Paired, paired
from rcad.train.progress import SILENT, Progress

log = logging.getLogger("rcad")

KIND = "rcad evaluation"
FILES = ("evaluation.html", "evaluation.md", "evaluation.json")
SEVERAL = 2
"""Seeds from which on a difference is given; its interval and p need more, see `FEWEST`."""
ROUNDING = 1e-12
"""Differences that are this close, relative to the numbers they are of, are equal."""


@dataclass(frozen=True)
class EvaluationReport(Result):
    """What `rcad.evaluate_run` found.

    Attributes:
        record: everything, as plain data: the groups, their numbers over seeds, their differences to ERM.
        files: the page, the Markdown and the record, where they were written.
    """

    record: Mapping[str, Any]
    files: tuple[Path, ...] = ()

    @property
    def document(self) -> Document:
        return document(self.record)

    @property
    def numbers(self) -> dict[str, dict[str, float]]:
        """By method, the mean over seeds of every number by its flat name, e.g. `ece` or `attacked_accuracy_clean`."""
        return {
            group["name"]: {name: n["mean"] for name, n in group["numbers"].items() if n["mean"] is not None}
            for group in self.record["groups"]
        }

    @property
    def left_out(self) -> dict[str, str]:
        """By run, why it could not be evaluated."""
        return {run["run"]: run["why"] for run in self.record["left_out"]}

    def __str__(self) -> str:
        sections = document(self.record, brief=True).sections
        return "\n".join(line for section in sections for line in ("", *section_lines(section)))

    def save(self, folder: Path | str) -> EvaluationReport:
        """Write evaluation.json, evaluation.md and evaluation.html; the page comes last: where it is, all are whole."""
        out, whole = Path(folder), self.document
        make_folder(out)
        page, text, record = (out / name for name in FILES)
        write_text(record, dumps(self.record, indent=1) + "\n")
        write_text(text, markdown(whole))
        write_text(page, html.page(whole))
        return replace(self, files=(page, text, record))


def evaluate_run(
    run: str | Sequence[str] = "all",
    suites: str | Sequence[str] = "all",
    *,
    limit: int | None = None,
    attack_eps: Sequence[float] = Settings.attack_eps,
    attacks: Sequence[str] = ATTACKS,
    masking: bool = True,
    standard: bool = False,
    corrupted: Path | str | None = None,
    ood_data: Sequence[str] = (NOISE,),
    again: bool = False,
    out: Path | str | None = None,
    runs: Path | str = "runs",
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> EvaluationReport:
    """Look at finished runs beyond their accuracy: calibration, attacks, corruptions, foreign data.

    Every suite's numbers are kept beside the run and computed once. A run that cannot be evaluated is named in a
    warning and left out, unless it is the only one. Several runs are grouped by method over their seeds and compared
    with the ERM runs among them.

    Args:
        run: ids or their beginnings, or "all".
        suites: some of "calibration", "attacks", "corruptions", "ood", or "all".
        limit: test examples a suite takes, 0 for all; None by suite and device.
        attack_eps: radii of attacks, l-infinity, in the units of the input.
        attacks: which attacks, at each radius: "fgsm", "pgd", "apgd_ce", "apgd_dlr".
        masking: look for signs of gradient masking.
        standard: also the standard suite of four attacks (slow; needs pyautoattack).
        corrupted: folder of a published corrupted test set; None generates.
        ood_data: foreign data: names, paths, or "noise".
        again: compute again what is there already.
        out: folder for evaluation.html, .md and .json; None writes none.
        runs: the folder of runs.
        data_dir, cache_dir: where data are found, and kept once decoded; None for the usual places.
        device: "auto" takes a GPU where there is one.
    """
    chosen_suites = parse_suites(suites)
    settings = Settings(
        limit=limit,
        attack_eps=tuple(attack_eps),
        attacks=tuple(attacks),
        masking=masking,
        standard=standard,
        corrupted=None if corrupted is None else str(Path(corrupted).expanduser()),
        ood_data=(ood_data,) if isinstance(ood_data, str) else tuple(ood_data),
    )
    store = Store.open(Path(runs).expanduser(), create=False)
    left_out: dict[str, str] = {}

    def leave_out(name: str, error: InputError) -> None:
        left_out[name] = str(error)
        log.warning("left out %s: %s", name, error)

    chosen = _chosen(store, [run] if isinstance(run, str) else run, leave_out)
    folder = None if out is None else Path(out).expanduser()
    if folder is not None:
        check_out(folder)

    def report(name: str, suite: str, what: str, done: int, total: int) -> None:
        progress.detail(f"run {chosen.index(name) + 1} of {len(chosen)}, {suite}: {what}", done, total)

    start = time.perf_counter()
    loader = RunLoader(store, data_dir, cache_dir, device)
    on_error = None if len(chosen) == 1 and not left_out else leave_out
    outcomes = evaluate_all(loader, chosen, chosen_suites, settings, report, again=again, on_error=on_error)
    if not outcomes:
        raise InputError("expected a run that can be evaluated, but got none; the lines above say what to do")
    made = EvaluationReport(summary(outcomes, chosen_suites, settings, time.perf_counter() - start, left_out))
    return made if folder is None else made.save(folder)


def _chosen(store: Store, wanted: Sequence[str], leave_out: OnError) -> list[str]:
    """The ids of the runs, each checked: nothing is measured before all that are named are known to be there."""
    if "all" not in wanted:
        return list(dict.fromkeys(finished(store, name).id for name in wanted))
    records, damaged = [], False
    for name in store.ids():
        if (store.folder(name) / RECORD).exists():
            try:
                records.append(store.get(name))
            except InputError as error:
                damaged = True
                leave_out(name, error)
    done = [record for record in records if record.status == "done"]
    if not done and not damaged:
        raise InputError(f"expected a finished run in {store.path}, but got none; train something")
    return [record.id for record in sorted(done, key=lambda record: (record.started, record.id))]


def check_out(out: Path) -> None:
    """That the files can be written, before anything is measured: packages, the folder, nobody else's page."""
    for package in ("jinja2", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "report")
    page, _, record = (out / name for name in FILES)
    if out.exists() and not out.is_dir():
        raise InputError(f"expected a folder for the report, but {out} is a file; pass another --out")
    if page.exists() and not (record.is_file() and _is_ours(record)):
        raise InputError(f"expected {page} to be free, but it is something else; pass another --out")
    check_folder(out)


def _is_ours(record: Path) -> bool:
    plain = loads(read_text(record), str(record))
    return isinstance(plain, dict) and plain.get("kind") == KIND


def summary(
    outcomes: Sequence[Outcome],
    suites: Sequence[str],
    settings: Settings,
    seconds: float,
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Plain data: the groups, their numbers over seeds, their differences to ERM, and every record.

    Args:
        left_out: by run, why it could not be evaluated.
    """
    members: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        members.setdefault(_kind(outcome.record.config), []).append(outcome)
    groups = [sorted(group, key=lambda outcome: outcome.record.config.seed) for group in members.values()]
    groups.sort(key=lambda group: not _is_erm(group))
    names = _names([group[0].record for group in groups])
    by_kind = {_kind(group[0].record.config): group for group in groups}
    names_by_kind = {_kind(group[0].record.config): name for group, name in zip(groups, names, strict=True)}
    return finite_or_none(  # type: ignore[no-any-return]
        {
            "kind": KIND,
            "schema": 1,
            "suites": list(suites),
            "settings": {suite: settings.of(suite) for suite in suites},
            "groups": [_group(group, name, by_kind, names_by_kind) for group, name in zip(groups, names, strict=True)],
            "left_out": [{"run": run, "why": why} for run, why in (left_out or {}).items()],
            "versions": versions(),
            "seconds": round(seconds, 1),
        }
    )


def _kind(config: RunConfig) -> str:
    """What the runs of a group share: all but the seed."""
    return config_id(replace(config, seed=0))


def _is_erm(group: Sequence[Outcome]) -> bool:
    config = group[0].record.config
    return config == erm_config(config)


def _names(records: Sequence[RunRecord]) -> list[str]:
    """The method's, with the data where there are several, and with an id where that is not enough."""
    several = len({record.config.data.name for record in records}) > 1
    names = [label(r.config.method) + (f" on {r.config.data.name}" if several else "") for r in records]
    again = {name for name in names if names.count(name) > 1}
    return [f"{n} ({r.id[:8]})" if n in again else n for n, r in zip(names, records, strict=True)]


def _group(
    group: Sequence[Outcome], name: str, by_kind: Mapping[str, Sequence[Outcome]], names_by_kind: Mapping[str, str]
) -> dict[str, Any]:
    base_kind = _kind(erm_config(group[0].record.config))
    base = by_kind.get(base_kind, ())
    rows = [_numbers(outcome) for outcome in group]
    notes = []
    for numbers, outcome in zip(rows, group, strict=True):
        try:
            numbers |= _relative(outcome, _same_seed(base, outcome))
        except InputError as error:
            notes.append(f"{NO_MCE} for seed {outcome.record.config.seed}: {error}.")
    is_base = _is_erm(group)
    if not base:
        notes.append(f"{NO_ERM} with the same data and settings is among these, so there is nothing to compare with.")
    return {
        "name": name,
        "data": group[0].record.config.data.name,
        "is_erm": is_base,
        "classes": "test_accuracy" in group[0].record.metrics,
        "seeds": [outcome.record.config.seed for outcome in group],
        "runs": [outcome.record.id for outcome in group],
        "numbers": {key: _spread([row.get(key) for row in rows]) for key in dict.fromkeys(k for r in rows for k in r)},
        "comparison": None if is_base or not base else _comparison(group, base, names_by_kind[base_kind]),
        "refused": {suite: text for outcome in group for suite, text in outcome.refused.items()},
        "notes": list(dict.fromkeys(notes)),
        "evaluations": [
            {suite: record.to_dict() for suite, record in outcome.evaluations.items()} for outcome in group
        ],
    }


def _numbers(outcome: Outcome) -> dict[str, float | None]:
    return {key: value for record in outcome.evaluations.values() for key, value in record.numbers.items()}


def _same_seed(base: Sequence[Outcome], outcome: Outcome) -> Outcome | None:
    """The ERM run with this run's seed, if it is on the very same data."""
    wanted = outcome.record.config.seed, outcome.record.data_sha256
    return next((b for b in base if (b.record.config.seed, b.record.data_sha256) == wanted), None)


def _relative(outcome: Outcome, base: Outcome | None) -> dict[str, float]:
    """mCE with the ERM run of the same seed as the baseline, whose own is 100."""
    if base is None or "corruptions" not in outcome.evaluations or "corruptions" not in base.evaluations:
        return {}
    own, other = (CorruptionScores.from_dict(o.evaluations["corruptions"].curves) for o in (outcome, base))
    return {"mce": mce(own.errors(), other.errors())}


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return {
        "mean": statistics.fmean(known) if known else None,
        "sd": statistics.stdev(known) if len(known) > 1 else None,
        "values": list(values),
    }


def _comparison(group: Sequence[Outcome], base: Sequence[Outcome], name: str) -> dict[str, Any]:
    """Differences to ERM, pair by pair: the same seed, and with it the same data."""
    pairs = [(outcome, other) for outcome in group if (other := _same_seed(base, outcome)) is not None]
    seeds = [outcome.record.config.seed for outcome, _ in pairs]
    if len(pairs) < SEVERAL:
        count = "none" if not pairs else "1"
        note = f"A difference to {name} needs {SEVERAL} or more common seeds, but there is {count}."
        return {"to": name, "seeds": seeds, "differences": {}, "note": note}
    ratio = _overlap([outcome.record for outcome, _ in pairs])
    gains: dict[str, Any] = {}
    rows = [(_numbers(outcome), _numbers(other)) for outcome, other in pairs]
    for key in rows[0][0]:
        first, second = ([row[side].get(key) for row in rows] for side in (0, 1))
        if any(value is None for value in (*first, *second)):
            continue
        try:
            gains[key] = _difference(first, second, ratio)  # type: ignore[arg-type]
        except MissingExtraError as error:
            return {"to": name, "seeds": seeds, "differences": {}, "note": f"No differences: {error}"}
    if len(pairs) < FEWEST:
        note = f"Over {len(pairs)} common seeds: no intervals and no p, which need {FEWEST} or more."
        return {"to": name, "seeds": seeds, "differences": gains, "note": note}
    corrected = " The splits overlap; intervals are corrected for that (Nadeau and Bengio, 2003)." if ratio else ""
    note = f"Over {len(pairs)} common seeds, each interval at 95% by itself: many are looked at.{corrected}"
    return {"to": name, "seeds": seeds, "differences": gains, "note": note}


def _difference(first: Sequence[float], second: Sequence[float], ratio: float) -> dict[str, Any]:
    """`Paired` as plain data; without a test only the mean is known, and "why" says in a few words what is missing."""
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    why = None
    if len(gaps) < FEWEST:
        why = f"only {len(gaps)} seeds"
    elif max(gaps) - min(gaps) <= ROUNDING * max(map(abs, (*first, *second))):
        # Student's t would be infinite and its p 0, which a handful of runs cannot show.
        why = NO_SPREAD
    if why is None:
        return {**paired(first, second, test_ratio=ratio).to_dict(), "why": None}
    return {**dict.fromkeys(field.name for field in fields(Paired)), "mean": statistics.fmean(gaps), "why": why}


def _overlap(records: Sequence[RunRecord]) -> float:
    """n_test / n_train where each seed has a test split of its own, drawn from the same examples; else 0."""
    if len({record.splits["test"].sha256 for record in records}) == 1:
        return 0.0
    return records[0].splits["test"].size / max(records[0].splits["train"].size, 1)
