"""Finished runs looked at again: measured, side by side by method over seeds, with what sets them apart from ERM."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError, MissingExtraError, expanded, fitting
from rcad.evaluate.corruptions import CorruptionScores, mce
from rcad.evaluate.saved_run.loading import RunLoader, finished
from rcad.evaluate.saved_run.page import document
from rcad.evaluate.saved_run.run import OnError, Outcome, erm_config, evaluate_all
from rcad.evaluate.saved_run.settings import ATTACKS, NOISE, Settings, parse_suites
from rcad.evaluate.saved_run.tables import NO_ERM, NO_MCE, NO_SPREAD
from rcad.loss.method_rows import label
from rcad.report.terminal import section_lines
from rcad.runs.config import RunConfig
from rcad.runs.files import Kind, check_folder, finite_or_none
from rcad.runs.plain import config_id
from rcad.runs.record import versions
from rcad.runs.store import RECORD, Store
from rcad.study.outputs import StudyResult, check_packages, earlier, report_folder
from rcad.study.statistics import FEWEST, Paired, averages, cohen_dz, differences, paired
from rcad.study.study import overlap_of
from rcad.train.progress import Progress, watched

log = logging.getLogger("rcad")

SEVERAL = 2
"""Seeds from which on a difference is given; its interval and p need more, see `FEWEST`."""


class EvaluationReport(StudyResult):
    """The result of `rcad.evaluate_run`: groups of runs, their numbers over seeds, their differences to ERM."""

    NAMES = ("evaluation.html", "evaluation.md", "evaluation.json")
    PAGE = staticmethod(document)

    @property
    def numbers(self) -> dict[str, dict[str, float]]:
        """By method, the mean over seeds of every number by its flat name, e.g. `ece` or `attacked_accuracy_clean`."""
        return {
            group["name"]: {
                key: number["mean"] for key, number in group["numbers"].items() if number["mean"] is not None
            }
            for group in self.record["groups"]
        }

    @property
    def left_out(self) -> dict[str, str]:
        """By run, why it could not be evaluated."""
        return {run["run"]: run["why"] for run in self.record["left_out"]}

    def __str__(self) -> str:
        sections = self._document(brief=True).sections
        return "\n".join(line for section in sections for line in ("", *section_lines(section)))


EVALUATION = EvaluationReport.KIND = Kind("rcad evaluation", 1, lambda plain, schema: EvaluationReport(plain))


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
    progress: Progress | None = None,
) -> EvaluationReport:
    """Evaluate finished runs beyond accuracy: calibration, attacks, corruptions, OOD data.

    Every suite's numbers are kept beside the run and computed once. A run that cannot be evaluated is named in a
    warning and left out, unless it is the only one. Several runs are grouped by method over their seeds and compared
    with the ERM runs among them.

    Args:
        run: ids or their beginnings, or "all".
        suites: some of "calibration", "attacks", "corruptions", "ood", or "all".
        limit: test examples a suite takes, 0 for all; None by suite and device.
        attack_eps: radii of attacks, l-infinity, in the units of the input ([0, 1] pixels; deviations of columns).
        attacks: which attacks, at each radius: "fgsm", "pgd", "apgd_ce", "apgd_dlr".
        masking: look for signs of gradient masking.
        standard: also the standard suite of four attacks, at the middle radius (slow; needs pyautoattack).
        corrupted: folder of a published corrupted test set; None generates.
        ood_data: out-of-distribution data: names, paths, or "noise".
        again: compute again what is there already.
        out: folder for evaluation.html, .md and .json; None writes none.
        runs: the folder of runs.
        data_dir, cache_dir: where data are found, and kept once decoded; None for the usual places.
        device: "auto" takes a GPU where there is one.
        progress: as in `rcad.tune`.
    """
    chosen_suites = parse_suites(suites)
    settings = Settings(
        limit=limit,
        attack_eps=tuple(attack_eps) if isinstance(attack_eps, Iterable) else (attack_eps,),
        attacks=tuple(attacks),
        masking=masking,
        standard=standard,
        corrupted=None if corrupted is None else str(expanded(corrupted)),
        ood_data=(ood_data,) if isinstance(ood_data, str) else tuple(ood_data),
    )
    store = Store.open(expanded(runs), create=False)
    left_out: dict[str, str] = {}

    def leave_out(name: str, error: InputError) -> None:
        left_out[name] = str(error)
        log.warning("left out %s: %s", name, error)

    chosen = _chosen(store, [run] if isinstance(run, str) else run, leave_out)
    folder, before = None if out is None else report_folder(out), None
    if folder is not None:  # before anything is measured: packages, nobody else's page, a place to write to
        check_packages()
        before = earlier([folder / name for name in EvaluationReport.NAMES], "report", kind=EVALUATION.name)
        check_folder(folder)
    start = time.perf_counter()
    loader = RunLoader(store, data_dir, cache_dir, device)
    on_error = None if len(chosen) == 1 and not left_out else leave_out
    with watched(progress) as reporter:
        outcomes = evaluate_all(loader, chosen, chosen_suites, settings, reporter, again=again, on_error=on_error)
    if not outcomes:
        raise InputError("expected a run that can be evaluated, but got none; the lines above say what to do")
    with fitting("the evaluations that these runs keep", "measure them anew with --again"):
        result = EvaluationReport(summary(outcomes, chosen_suites, settings, time.perf_counter() - start, left_out))
        document(result.record, brief=True)
        if folder is None:
            return result
        gone = [run for run in _runs(before or {}) if run not in _runs(result.record)]
        result = result.save(folder)
        if gone:
            more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            log.warning("replaced the report of run %s%s: %s", gone[0], more, result.files[0])
        return result


def _runs(record: Mapping[str, Any]) -> list[str]:
    return [run for group in record.get("groups", ()) for run in group["runs"]]


def _chosen(store: Store, names: Sequence[str], leave_out: OnError) -> list[str]:
    """The ids of the runs, each checked: nothing is measured before all that are named are known to be there."""
    if "all" not in names:
        return list(dict.fromkeys(finished(store, name).id for name in names))
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


def summary(
    outcomes: Sequence[Outcome],
    suites: Sequence[str],
    settings: Settings,
    seconds: float,
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Plain data: the groups, their numbers over seeds, their differences to ERM, every record, what is left out."""
    outcomes = _apart(outcomes)
    members: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.record.config.seed):
        members.setdefault(_kind(_asked(outcome)), []).append(outcome)
    first = {kind: group[0] for kind, group in members.items()}
    # In the order in which the runs were named, ERM before all.
    order = dict.fromkeys(_kind(_asked(outcome)) for outcome in outcomes)
    kinds = sorted(order, key=lambda kind: first[kind].record.config != erm_config(first[kind].record.config))
    names = dict(zip(kinds, _names([first[kind] for kind in kinds]), strict=True))
    record = EVALUATION.stamp(
        {
            "suites": list(suites),
            "settings": {suite: settings.of(suite) for suite in suites},
            "groups": [_group(kind, members, names) for kind in kinds],
            "left_out": [{"run": run, "why": why} for run, why in (left_out or {}).items()],
            "versions": versions(),
            "seconds": round(seconds, 1),
        }
    )
    return finite_or_none(record)  # type: ignore[no-any-return]


def _kind(config: RunConfig) -> str:
    return config_id(replace(config, seed=0))


def _asked(outcome: Outcome) -> RunConfig:
    return outcome.asked or outcome.record.config


def _apart(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """With what each run says itself where two of one seed were asked for alike: a group has a seed once."""
    count = Counter(config_id(_asked(outcome)) for outcome in outcomes)
    twice = {_kind(_asked(outcome)) for outcome in outcomes if count[config_id(_asked(outcome))] > 1}
    return [replace(outcome, asked=None) if _kind(_asked(outcome)) in twice else outcome for outcome in outcomes]


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    """The method's, with the data where there are several, and with an id where that is not enough."""
    configs = [_asked(outcome) for outcome in outcomes]
    several = len({config.data.name for config in configs}) > 1
    names = [label(config.method) + (f" on {config.data.name}" if several else "") for config in configs]
    again = {name for name in names if names.count(name) > 1}
    return [f"{n} ({o.record.id[:8]})" if n in again else n for n, o in zip(names, outcomes, strict=True)]


def _group(kind: str, members: Mapping[str, Sequence[Outcome]], names: Mapping[str, str]) -> dict[str, Any]:
    """One method over its seeds, beside the ERM runs with the same data and settings."""
    group = members[kind]
    config, base_config = group[0].record.config, erm_config(group[0].record.config)
    is_base, base_kind = config == base_config, _kind(base_config)
    base = members.get(base_kind, ())
    rows = [_numbers(outcome) for outcome in group]
    notes = []
    for row, outcome in zip(rows, group, strict=True):
        try:
            row |= _relative(outcome, _same_seed(base, outcome))
        except InputError as error:
            notes.append(f"{NO_MCE} for seed {outcome.record.config.seed}: {error}.")
    if not base:
        notes.append(f"{NO_ERM} with the same data and settings is among these, so there is nothing to compare with.")
    numbers = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(key) for row in rows]
        over_seeds = averages(values)
        numbers[key] = {"mean": over_seeds["mean"], "sd": over_seeds["sd"], "values": values}
    return {
        "name": names[kind],
        "data": config.data.name,
        "is_erm": is_base,
        "classes": "test_accuracy" in group[0].record.metrics,
        "seeds": [outcome.record.config.seed for outcome in group],
        "runs": [outcome.record.id for outcome in group],
        "numbers": numbers,
        "comparison": None if is_base or not base else _comparison(group, base, names[base_kind]),
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
    same = outcome.record.config.seed, outcome.record.data_sha256
    return next((erm for erm in base if (erm.record.config.seed, erm.record.data_sha256) == same), None)


def _relative(outcome: Outcome, base: Outcome | None) -> dict[str, float]:
    """mCE with the ERM run of the same seed as the baseline, whose own is 100."""
    if base is None or "corruptions" not in outcome.evaluations or "corruptions" not in base.evaluations:
        return {}
    own, other = (CorruptionScores.from_dict(o.evaluations["corruptions"].curves).errors() for o in (outcome, base))
    return {"mce": mce(own, other)}


def _comparison(group: Sequence[Outcome], base: Sequence[Outcome], name: str) -> dict[str, Any]:
    """Differences to ERM, pair by pair: the same seed, and with it the same data."""
    pairs = [(outcome, other) for outcome in group if (other := _same_seed(base, outcome)) is not None]
    rows = [(_numbers(outcome), _numbers(other)) for outcome, other in pairs]
    ratio = overlap_of([outcome.record for outcome, _ in pairs]) if pairs else 0.0
    gains: dict[str, Any] = {}
    if len(pairs) < SEVERAL:
        note = f"A difference to {name} needs {SEVERAL} or more common seeds, but there is {len(pairs) or 'none'}."
    elif len(pairs) < FEWEST:
        note = f"Over {len(pairs)} common seeds: no intervals and no p, which need {FEWEST} or more."
    else:
        corrected = " The splits overlap; intervals are corrected for that (Nadeau and Bengio, 2003)." if ratio else ""
        note = f"Over {len(pairs)} common seeds, each interval at 95%, not corrected for their number.{corrected}"
    try:
        for key in rows[0][0] if len(pairs) >= SEVERAL else ():
            first, second = ([row[side].get(key) for row in rows] for side in (0, 1))
            if None not in (*first, *second):
                gains[key] = _difference(first, second, ratio)  # type: ignore[arg-type]
    except MissingExtraError as error:
        gains, note = {}, f"No differences: {error}"
    return {"to": name, "seeds": [o.record.config.seed for o, _ in pairs], "differences": gains, "note": note}


def _difference(first: Sequence[float], second: Sequence[float], ratio: float) -> dict[str, Any]:
    """`Paired` as plain data; without a test only the mean is known, and "why" says in a few words what is missing."""
    gaps = differences(first, second)
    why = f"only {len(gaps)} seeds" if len(gaps) < FEWEST else None
    if why is None and cohen_dz(first, second) is None:
        why = NO_SPREAD
    if why is None:
        return {**paired(first, second, test_ratio=ratio).to_dict(), "why": None}
    return {**dict.fromkeys(field.name for field in fields(Paired)), "mean": float(gaps.mean()), "why": why}
