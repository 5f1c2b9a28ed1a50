"""Which runs can go: a list first, removed only when asked."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta

from rcad.errors import InputError, one_of
from rcad.runs.locks import is_locked
from rcad.runs.record import FINISHED, STATUSES
from rcad.runs.store import CHECKPOINT, LOCK, RECORD, Store

PRUNABLE = (*(status for status in STATUSES if status != "running"), "broken")


@dataclass(frozen=True)
class Pruned:
    """A run that goes, or of which the checkpoints go.

    Args:
        status: as in a record; "broken" where the record cannot be read.
        bytes: how much that frees.
    """

    id: str
    status: str
    bytes: int


def prune(
    store: Store,
    *,
    ids: Iterable[str] | None = None,
    status: Collection[str] | None = None,
    older_than: timedelta | None = None,
    checkpoints_only: bool = False,
    apply: bool = False,
) -> list[Pruned]:
    """The runs that can go, and with `apply` their removal. A run that a process works on never goes.

    Args:
        ids: these runs (ids or the start of one), whatever their status.
        status: else the runs with one of these; by default the interrupted and diverged ones, or with
            `checkpoints_only` the final ones, which need no checkpoint to go on.
        older_than: only runs whose files have not changed for so long.
        checkpoints_only: keep the records.
    """
    wanted = status or (FINISHED if checkpoints_only else ("interrupted", "diverged"))
    for name in wanted:
        one_of("status", name, PRUNABLE)
    chosen = _chosen(store, ids, wanted, checkpoints_only)
    chosen = [one for one in chosen if older_than is None or _age(store, one.id) > older_than.total_seconds()]
    if apply:
        for one in chosen:
            store.remove(one.id, checkpoint_only=checkpoints_only)
    return chosen


def _chosen(store: Store, ids: Iterable[str] | None, wanted: Collection[str], checkpoints_only: bool) -> list[Pruned]:
    found = []
    for run in store.ids() if ids is None else dict.fromkeys(map(store.find, ids)):
        folder = store.checkpoint(run) if checkpoints_only else store.folder(run)
        if is_locked(store.folder(run) / LOCK):
            if ids is not None:
                raise InputError(f"expected run {run} to be free, but a process works on it; stop it first")
        elif ids is not None and not store.folder(run).is_dir():
            raise InputError(f"expected a run with a folder, but {run} lies in {store.where(run)}; it stays there")
        elif folder.is_dir() and ((status := _status(store, run)) in wanted or ids is not None):
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            found.append(Pruned(run, status, size))
    return found


def _status(store: Store, run: str) -> str:
    if not (store.folder(run) / RECORD).exists():
        return "interrupted"
    try:
        return store.get(run).status
    except InputError:
        return "broken"


def _age(store: Store, run: str) -> float:
    folder = store.folder(run)
    times = [path.stat().st_mtime for path in (folder / RECORD, folder / CHECKPOINT) if path.exists()]
    return time.time() - max(times, default=folder.stat().st_mtime)
