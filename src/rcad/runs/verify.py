"""Every file of every run, read to its last byte: what is damaged, and what would heal it. No torch here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
        yield pack, _refused("", pack, "restore", read_pack, pack)


def check_run(store: Store, run: str) -> list[Damage]:
    """What is wrong with the files of a run."""
    folder, exists = store.folder(run), os.path.lexists
    record, damages = None, list[Damage]()
    if exists(folder / RECORD):
        try:
            record = store.get(run)
        except InputError as error:
            damages.append(Damage(run, folder / RECORD, _words(error), "train"))
    elif exists(folder / LOG) or exists(folder / WEIGHTS):
        damages.append(_missing(run, folder / RECORD, "record", "train"))
    damages += _refused(run, folder / CONFIG, "write", store.config, run)
    if record is not None and record.is_final:
        damages += _final_files(store, record)
    else:
        checkpoints = (store.checkpoint(run) / LAST, store.checkpoint(run) / BEFORE)
        for path in filter(exists, (folder / LOG, *checkpoints)):
            damages += _refused(run, path, "aside", check_tensors if path in checkpoints else read_log, path)
    for path in sorted((folder / EVALUATION).glob("*.json")):
        damages += _refused(run, path, "aside", store.evaluation, run, path)
    return damages


def _final_files(store: Store, record: RunRecord) -> list[Damage]:
    """A finished run's log holds the epochs of its record, and its weights are whole.

    A run out of a pack has neither, nor has one that diverged before logs were kept: its record is all there is.
    """
    run, log, weights = record.id, store.log(record.id), store.folder(record.id) / WEIGHTS
    has_log, has_weights = os.path.lexists(log), os.path.lexists(weights)
    damages = _refused(run, log, "write", _compare_epochs, store, record) if has_log else []
    if has_weights and not has_log:
        damages.append(_missing(run, log, "log", "write"))
    if record.status == "done":
        damages += _refused(run, weights, "train", check_tensors, weights) if has_weights else []
        if has_log and not has_weights:
            damages.append(_missing(run, weights, "weights", "train"))
    return damages


def _compare_epochs(store: Store, record: RunRecord) -> None:
    path = store.log(record.id)
    # Before there were sums, an epoch that was trained again after a kill stood in the log with its first time.
    has_sum = SUM in loads(read_text(store.folder(record.id) / RECORD), str(path))
    logged, recorded = (
        [{key: value for key, value in row.items() if has_sum or key != "seconds"} for row in rows]
        for rows in (read_log(path), record.epochs)
    )
    if logged != recorded:
        raise InputError(f"expected {path} to hold the epochs of the record, but it does not")


def _missing(run: str, path: Path, noun: str, cure: Cure) -> Damage:
    verb = "they are" if noun == "weights" else "it is"
    return Damage(run, path, f"expected the {noun} of run {run} in {path}, but {verb} missing", cure, missing=True)


def _refused(run: str, path: Path, cure: Cure, read: Callable[..., object], *arguments: object) -> list[Damage]:
    """The damage of a file that its reader refuses; none where it takes it."""
    try:
        read(*arguments)
    except (OSError, ValueError) as error:  # an InputError is one; the others are those of `check_tensors`
        whole = f"expected {path} to be whole, but got: {getattr(error, 'strerror', None) or error}"
        words = _words(error) if isinstance(error, InputError) else whole
        return [Damage(run, path, words, cure, missing=not os.path.lexists(path))]
    return []


def _words(error: InputError) -> str:
    return str(error).partition("; ")[0]
