"""Every file of every run, read to its last byte: what is damaged, and what would heal it. No torch here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rcad.errors import InputError
from rcad.runs.files import SUM, check_tensors, loads, read_log, read_text
from rcad.runs.pack import packs_in, read_pack
from rcad.runs.record import RunRecord
from rcad.runs.store import BEFORE, CONFIG, EVALUATION, LAST, LOG, RECORD, WEIGHTS, Store

Cure = Literal["train", "write", "aside", "restore"]
CURES: dict[Cure, str] = {
    "train": "the run is trained again",
    "write": "it is written again from the record",
    "aside": "it is set aside, and made again when next needed",
    "restore": "restore it, or pack the runs again: rcad runs pack DIR --out FILE --force",
}


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written, or is not there.

    Args:
        run: whose it is; empty for a pack.
        words: what is wrong, in a sentence that names the file.
        cure: what a repair does about it; "restore" is the user's to do.
        missing: whether it is not there at all.
    """

    run: str
    path: Path
    words: str
    cure: Cure
    missing: bool = False


def verify(store: Store, runs: Iterable[str] | None = None) -> Iterator[tuple[Path, list[Damage]]]:
    """Each run's folder, and each pack beside them, with what is wrong there.

    Args:
        runs: only these, whole ids; None for all, and the packs.
    """
    for run in store.ids() if runs is None else runs:
        if store.folder(run).is_dir():
            yield store.folder(run), check_run(store, run)
    for pack in packs_in(store.path) if runs is None else ():
        yield pack, [Damage("", pack, words, "restore") for words in _wrong(lambda path=pack: read_pack(path))]


def check_run(store: Store, run: str) -> list[Damage]:
    """What is wrong with the files of a run."""
    folder = store.folder(run)
    record, found = _record(store, run)
    found += [
        Damage(run, folder / CONFIG, words, "write", missing=not os.path.lexists(folder / CONFIG))
        for words in _wrong(lambda: store.config(run))
    ]
    final = record is not None and record.is_final
    if final or os.path.lexists(folder / LOG):
        found += _log(store, run, record)
    if record is not None and record.status == "done":
        found += _weights(store, run)
    for path in sorted((folder / EVALUATION).glob("*.json")):
        found += [Damage(run, path, words, "aside") for words in _wrong(lambda path=path: store.evaluation(run, path))]
    for path in (store.checkpoint(run) / LAST, store.checkpoint(run) / BEFORE):
        if os.path.lexists(path) and not final:
            found += [Damage(run, path, words, "aside") for words in _wrong_tensors(path)]
    return found


def _record(store: Store, run: str) -> tuple[RunRecord | None, list[Damage]]:
    path = store.folder(run) / RECORD
    if not os.path.lexists(path):
        held = [name for name in (LOG, WEIGHTS) if os.path.lexists(store.folder(run) / name)]
        words = f"expected the record of run {run} in {path}, but it is missing"
        return None, [Damage(run, path, words, "train", missing=True)] if held else []
    try:
        return store.get(run), []
    except InputError as error:
        return None, [Damage(run, path, _words(error), "train")]


def _log(store: Store, run: str, record: RunRecord | None) -> list[Damage]:
    """A finished run's log holds the epochs of its record; one of a run that goes on must be readable."""
    path = store.log(run)
    if record is None or not record.is_final:
        return [Damage(run, path, words, "aside") for words in _wrong(lambda: read_log(path))]
    if not os.path.lexists(path):
        if not os.path.lexists(store.folder(run) / WEIGHTS):
            return []  # a run out of a pack, or one that diverged before a log was kept: its record is all there is
        words = f"expected the log of run {run} in {path}, but it is missing"
        return [Damage(run, path, words, "write", missing=True)]

    def compare() -> None:
        # Before there were sums, an epoch that was trained again after a kill stood in the log with its first time.
        plain = loads(read_text(store.folder(run) / RECORD), str(path))
        rows, wanted = ([_row(row, SUM in plain) for row in found] for found in (read_log(path), record.epochs))
        if rows != wanted:
            raise InputError(f"expected {path} to hold the epochs of the record, but it does not")

    return [Damage(run, path, words, "write") for words in _wrong(compare)]


def _row(row: Any, timed: bool) -> dict[str, Any]:
    return {key: value for key, value in row.items() if timed or key != "seconds"}


def _weights(store: Store, run: str) -> list[Damage]:
    path = store.folder(run) / WEIGHTS
    if os.path.lexists(path):
        return [Damage(run, path, words, "train") for words in _wrong_tensors(path)]
    if not os.path.lexists(store.log(run)):
        return []  # a run out of a pack
    words = f"expected the weights of run {run} in {path}, but they are missing"
    return [Damage(run, path, words, "train", missing=True)]


def _wrong(read: Any) -> list[str]:
    """What a reader says, if it refuses."""
    try:
        read()
    except InputError as error:
        return [_words(error)]
    return []


def _wrong_tensors(path: Path) -> list[str]:
    try:
        check_tensors(path)
    except (OSError, ValueError) as error:
        return [f"expected {path} to be whole, but got: {getattr(error, 'strerror', None) or error}"]
    return []


def _words(error: InputError) -> str:
    return str(error).partition("; ")[0]
