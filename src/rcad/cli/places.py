"""The folders that rcad works with: data, cache, runs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from rcad.cli.probes import Check
from rcad.data.cache import cache_root, contents, entries, open_entry
from rcad.data.registry import available, data_root
from rcad.errors import InputError, MissingExtraError
from rcad.runs.store import Store
from rcad.runs.words import plural, size


def places(data_dir: Path | None, cache_dir: Path | None, runs: Path) -> list[Check]:
    """One check per folder; none of them is made."""
    return [_data(data_dir), _cache(cache_dir), _runs(runs)]


def _data(data_dir: Path | None) -> Check:
    root = data_root(data_dir)
    if root is not None and not root.is_dir():
        return Check("data", "bad", f"{root} is no folder", "mend --data-dir or RCAD_DATA")
    try:
        known = available(data_dir)
    except (InputError, MissingExtraError) as error:
        return Check("data", "bad", str(error))
    found = [one.name for one in known if one.where is not None]
    missing = [one.name for one in known if one.where is None]
    text = f"{', '.join(found) or 'none'} found" + (f" in {root} or inside scikit-learn" if root else "")
    if root is None:
        return Check("data", "warn", f"{text}; no data folder is set", "pass --data-dir or set RCAD_DATA for more")
    return Check("data", "ok", text + (f"; not there: {', '.join(missing)}" if missing else ""))


def _cache(cache_dir: Path | None) -> Check:
    root = cache_root(cache_dir)
    held = entries(cache_dir)
    used = sum(contents(cache_dir).values())
    text = f"{root}: {plural(len(held), 'data set')}, {size(used)}" + (" (rcad data clear empties it)" if used else "")
    broken = sum(open_entry(entry) is None for entry in held)
    if broken:
        return Check("cache", "warn", f"{text}, {broken} not whole", "nothing to do: they are rebuilt when next used")
    if root.is_dir() and not os.access(root, os.W_OK):
        return Check("cache", "bad", f"{text}, not writable", "pass --cache-dir or set RCAD_CACHE")
    return Check("cache", "ok", text)


def _runs(folder: Path) -> Check:
    if not folder.exists():
        return Check("runs", "ok", f"{folder}: none yet")
    if not folder.is_dir():
        return Check("runs", "bad", f"{folder} is no folder", "pass another --runs")
    broken: list[InputError] = []
    records = Store(folder).records(on_error=broken.append)
    counts = Counter(record.status for record in records)
    text = f"{folder}: " + (", ".join(f"{count} {status}" for status, count in counts.items()) or "none yet")
    if broken:
        return Check(
            "runs", "bad", f"{text}; {plural(len(broken), 'record')} broken: {broken[0]}", "see: rcad runs prune"
        )
    return Check("runs", "ok", text)
