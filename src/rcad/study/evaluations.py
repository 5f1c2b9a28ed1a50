"""Several runs side by side: by method over seeds, with what sets them apart from ERM."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from rcad.errors import InputError, MissingExtraError
from rcad.evaluate.corruptions import CorruptionScores
from rcad.evaluate.corruptions.scores import mce
from rcad.evaluate.saved_run.run import Outcome, erm_config
from rcad.evaluate.saved_run.settings import Settings
from rcad.evaluate.saved_run.tables import NO_SPREAD
from rcad.loss.method_rows import label
from rcad.runs.config import RunConfig
from rcad.runs.files import finite_or_none
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord, versions
from rcad.study.statistics import FEWEST, Paired, paired

KIND = "rcad evaluation"
SEVERAL = 2
"""Seeds from which on a difference is given; its interval and p need more, see `FEWEST`."""
ROUNDING = 1e-12
"""Differences that are this close, relative to the numbers they are of, are equal."""


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
    groups = [sorted(group, key=lambda one: one.record.config.seed) for group in members.values()]
    groups.sort(key=lambda group: not _is_erm(group))
    names = _names([group[0].record for group in groups])
    by_kind = {_kind(group[0].record.config): group for group in groups}
    told = {_kind(group[0].record.config): name for group, name in zip(groups, names, strict=True)}
    return finite_or_none(  # type: ignore[no-any-return]
        {
            "kind": KIND,
            "suites": list(suites),
            "settings": {suite: settings.of(suite) for suite in suites},
            "groups": [_group(group, name, by_kind, told) for group, name in zip(groups, names, strict=True)],
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
    group: Sequence[Outcome], name: str, by_kind: Mapping[str, Sequence[Outcome]], told: Mapping[str, str]
) -> dict[str, Any]:
    base_kind = _kind(erm_config(group[0].record.config))
    base = by_kind.get(base_kind, ())
    rows = [_numbers(one) for one in group]
    notes = []
    for numbers, one in zip(rows, group, strict=True):
        try:
            numbers |= _relative(one, _same_seed(base, one))
        except InputError as error:
            notes.append(f"No mCE for seed {one.record.config.seed}: {error}.")
    is_base = _is_erm(group)
    if not base:
        notes.append("No ERM run with the same data and settings is among these, so there is nothing to compare with.")
    return {
        "name": name,
        "data": group[0].record.config.data.name,
        "is_erm": is_base,
        "classes": "test_accuracy" in group[0].record.metrics,
        "seeds": [one.record.config.seed for one in group],
        "runs": [one.record.id for one in group],
        "numbers": {key: _spread([row.get(key) for row in rows]) for key in dict.fromkeys(k for r in rows for k in r)},
        "comparison": None if is_base or not base else _comparison(group, base, told[base_kind]),
        "refused": {suite: text for one in group for suite, text in one.refused.items()},
        "notes": list(dict.fromkeys(notes)),
        "evaluations": [{suite: found.to_dict() for suite, found in one.evaluations.items()} for one in group],
    }


def _numbers(outcome: Outcome) -> dict[str, float | None]:
    return {key: value for found in outcome.evaluations.values() for key, value in found.numbers.items()}


def _same_seed(base: Sequence[Outcome], one: Outcome) -> Outcome | None:
    """The ERM run with this run's seed, if it is on the very same data."""
    wanted = one.record.config.seed, one.record.data_sha256
    return next((b for b in base if (b.record.config.seed, b.record.data_sha256) == wanted), None)


def _relative(one: Outcome, base: Outcome | None) -> dict[str, float]:
    """mCE with the ERM run of the same seed as the baseline, whose own is 100."""
    if base is None or "corruptions" not in one.evaluations or "corruptions" not in base.evaluations:
        return {}
    own, other = (CorruptionScores.from_dict(o.evaluations["corruptions"].curves) for o in (one, base))
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
    pairs = [(one, other) for one in group if (other := _same_seed(base, one)) is not None]
    seeds = [one.record.config.seed for one, _ in pairs]
    if len(pairs) < SEVERAL:
        count = "none" if not pairs else "1"
        note = f"A difference to {name} needs {SEVERAL} or more common seeds, but there is {count}."
        return {"to": name, "seeds": seeds, "differences": {}, "note": note}
    ratio = _overlap([one.record for one, _ in pairs])
    found: dict[str, Any] = {}
    rows = [(_numbers(one), _numbers(other)) for one, other in pairs]
    for key in rows[0][0]:
        first, second = ([row[side].get(key) for row in rows] for side in (0, 1))
        if any(value is None for value in (*first, *second)):
            continue
        try:
            found[key] = _difference(first, second, ratio)  # type: ignore[arg-type]
        except MissingExtraError as error:
            return {"to": name, "seeds": seeds, "differences": {}, "note": f"No differences: {error}"}
    if len(pairs) < FEWEST:
        note = f"Over {len(pairs)} common seeds: no intervals and no p, which need {FEWEST} or more."
        return {"to": name, "seeds": seeds, "differences": found, "note": note}
    corrected = " The splits overlap; intervals are corrected for that (Nadeau and Bengio, 2003)." if ratio else ""
    note = f"Over {len(pairs)} common seeds, each interval at 95% by itself: many are looked at.{corrected}"
    return {"to": name, "seeds": seeds, "differences": found, "note": note}


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
    return {**dict.fromkeys(one.name for one in fields(Paired)), "mean": statistics.fmean(gaps), "why": why}


def _overlap(records: Sequence[RunRecord]) -> float:
    """n_test / n_train where each seed has a test split of its own, drawn from the same examples; else 0."""
    if len({record.splits["test"].sha256 for record in records}) == 1:
        return 0.0
    return records[0].splits["test"].size / max(records[0].splits["train"].size, 1)
