"""Every file of every run, read to its last byte: what is damaged, and how it is mended. No torch here.

It is written again from what is whole, or trained again. Nothing is lost: what is replaced stays beside it as
`NAME.aside`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from filecmp import cmp
from pathlib import Path
from typing import Literal

from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.files import check_tensors, make_folder, read_log, set_aside, write_log
from rcad.runs.pack import packs_in, read_pack
from rcad.runs.record import RunRecord
from rcad.runs.store import BEFORE, CONFIG, EVALUATION, LAST, LOG, RECORD, WEIGHTS, Store
from rcad.train.place import Place
from rcad.train.progress import SILENT, Progress
from rcad.train.scheduler import Outcome, check_data, schedule

Cure = Literal["train", "write", "aside", "restore"]
CURES: dict[Cure, str] = {
    "train": "the run is trained again",
    "write": "it is written again from the record",
    "aside": "it is set aside, and made again when next needed",
    "restore": "restore it, or pack the runs again: rcad runs pack DIR --out FILE --force",
}


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written, or is not there."""

    run: str  # whose it is; empty for a pack
    path: Path
    words: str  # what is wrong, in a sentence that names the file
    cure: Cure  # what a repair does about it; "restore" is the user's to do
    missing: bool = False  # whether it is not there at all


def verify(store: Store, runs: Iterable[str] | None = None) -> Iterator[tuple[Path, list[Damage]]]:
    """Each run's folder with what is wrong there: of these whole ids, or of all and of the packs beside them."""
    for run in store.ids() if runs is None else runs:
        if store.folder(run).is_dir():
            yield store.folder(run), list(check_run(store, run))
    for pack in packs_in(store.path) if runs is None else ():
        yield pack, list(_refused("", pack, "restore", read_pack, pack))


def check_run(store: Store, run: str) -> Iterator[Damage]:
    """What is wrong with the files of a run."""
    folder, exists, record = store.folder(run), os.path.lexists, None
    if exists(folder / RECORD):
        try:
            record = store.get(run)
        except InputError as error:
            yield Damage(run, folder / RECORD, _words(error), "train")
    elif exists(folder / LOG) or exists(folder / WEIGHTS):
        yield _missing(run, folder / RECORD, "record", "train")
    yield from _refused(run, folder / CONFIG, "write", store.config, run)
    if record is not None and record.is_final:
        yield from _final_files(store, record)
    else:
        checkpoints = (store.checkpoint(run) / LAST, store.checkpoint(run) / BEFORE)
        for path in filter(exists, (folder / LOG, *checkpoints)):
            yield from _refused(run, path, "aside", check_tensors if path in checkpoints else read_log, path)
    for path in sorted((folder / EVALUATION).glob("*.json")):
        yield from _refused(run, path, "aside", store.evaluation, run, path)


def _final_files(store: Store, record: RunRecord) -> Iterator[Damage]:
    """A finished run's log holds the epochs of its record, and its weights are whole.

    A run out of a pack has neither, nor has one that diverged before logs were kept: its record is all there is.
    """
    run, log, weights = record.id, store.log(record.id), store.folder(record.id) / WEIGHTS
    has_log, has_weights = os.path.lexists(log), os.path.lexists(weights)
    if has_log:
        yield from _refused(run, log, "write", _compare_epochs, store, record)
    elif has_weights:
        yield _missing(run, log, "log", "write")
    if record.status == "done" and has_weights:
        yield from _refused(run, weights, "train", check_tensors, weights)
    elif record.status == "done" and has_log:
        yield _missing(run, weights, "weights", "train")


def _compare_epochs(store: Store, record: RunRecord) -> None:
    path = store.log(record.id)
    if read_log(path) != [dict(row) for row in record.epochs]:
        raise InputError(f"expected {path} to hold the epochs of the record, but it does not")


def _missing(run: str, path: Path, noun: str, cure: Cure) -> Damage:
    verb = "they are" if noun == "weights" else "it is"
    return Damage(run, path, f"expected the {noun} of run {run} in {path}, but {verb} missing", cure, missing=True)


def _refused(run: str, path: Path, cure: Cure, read: Callable[..., object], *arguments: object) -> Iterator[Damage]:
    """The damage of a file that its reader refuses; none where it takes it."""
    try:
        read(*arguments)
    except (OSError, ValueError) as error:  # an InputError is one; the others are those of `check_tensors`
        whole = f"expected {path} to be whole, but got: {getattr(error, 'strerror', None) or error}"
        words = _words(error) if isinstance(error, InputError) else whole
        yield Damage(run, path, words, cure, missing=not os.path.lexists(path))


def _words(error: InputError) -> str:
    return str(error).partition("; ")[0]


AGAIN = ".again"
"""The folder of runs, inside the damaged one, where they are trained again: the old record stays until the new one is
there, and a repair that was interrupted goes on."""


def repair(
    place: Place, runs: Sequence[str], progress: Progress = SILENT, *, configs: Mapping[str, RunConfig] | None = None
) -> Outcome | None:
    """Mends these runs, by their whole ids; what became of those that had to be trained again, if there were any.

    Args:
        configs: by id, where they are known from elsewhere; else they come from the run's own files.
    """
    store, again = place.store, dict[str, RunConfig]()
    for run in runs:
        if not (damages := list(check_run(store, run))):
            continue
        config = (configs or {}).get(run) or _config(store, run)
        with store.lock(config):  # which writes the config, where that is damaged
            for damage in damages:
                _mend(store, damage, progress)
        if any(damage.cure == "train" for damage in damages):
            again[run] = config
    return _trained(again, place, progress) if again else None


def _config(store: Store, run: str) -> RunConfig:
    """From the config's file or from the record, whichever is whole."""
    with suppress(InputError):
        return store.config(run)
    with suppress(InputError):
        return store.get(run).config
    raise InputError(
        f"expected the config or the record of run {run} to be whole, but neither is; add --repair to the command that "
        f"trained it, or remove it: rcad runs prune {run} --yes{store.option}"
    )


def _mend(store: Store, damage: Damage, progress: Progress) -> None:
    if damage.cure == "train" or damage.path == store.folder(damage.run) / CONFIG:
        return
    aside = f", kept as {set_aside(damage.path).name}" if os.path.lexists(damage.path) else ""
    if damage.cure == "write":
        write_log(damage.path, store.get(damage.run).epochs)
        progress.note(f"{damage.path}: written again from the record{aside}")
    else:
        progress.note(f"{damage.path}: set aside{aside}")


def _trained(configs: Mapping[str, RunConfig], place: Place, progress: Progress) -> Outcome:
    store = place.store
    check_data([config for run, config in configs.items() if _readable(store, run)], place, progress)
    second = Store.open(store.path / AGAIN)
    for run in configs:
        if not _readable(store, run) and (store.checkpoint(run) / LAST).is_file():
            # It was not finished, and goes on from there.
            make_folder(second.folder(run))
            with suppress(OSError):
                os.replace(store.checkpoint(run), second.checkpoint(run))
    try:
        outcome = schedule(list(configs.values()), replace(place, store=second), progress)
        for record in outcome.records:
            if record.is_final:
                _take_over(store, second, record)
                progress.note(f"{store.folder(record.id)}: trained again; what was there is kept as *.aside")
        return outcome
    finally:
        with suppress(OSError):  # it holds what goes on next time
            second.path.rmdir()


def _take_over(store: Store, second: Store, record: RunRecord) -> None:
    """The new run's files take the place of the old one's, the record last. Evaluations of other weights go aside."""
    run = record.id
    new, old = second.folder(run), store.folder(run)
    before = _readable(store, run)
    with store.lock(record.config):
        if not _same(new / WEIGHTS, old / WEIGHTS) and (before is None or before.metrics != record.metrics):
            for path in sorted((old / EVALUATION).glob("*.json")):
                set_aside(path)
        for name in (WEIGHTS, LOG, RECORD):
            if os.path.lexists(old / name) and not _same(new / name, old / name):
                set_aside(old / name)
            if (new / name).exists():
                os.replace(new / name, old / name)
    second.remove(run)


def _same(new: Path, old: Path) -> bool:
    return new.is_file() and old.is_file() and cmp(new, old, shallow=False)


def _readable(store: Store, run: str) -> RunRecord | None:
    with suppress(InputError):
        return store.get(run)
    return None


def refuse_damaged(store: Store, runs: Sequence[str], warn: Callable[[str], None]) -> None:
    """A finished run whose record or weights are damaged is an error; what its record still tells is said."""
    for run in runs:
        for damage in check_run(store, run):
            if damage.cure == "train" and not damage.missing:
                raise InputError(f"{damage.words}; {store.remedy(run)}, or add --repair to this command")
            if damage.path.name in (LOG, WEIGHTS) and damage.cure != "aside":
                warn(f"{damage.words}; {store.remedy(run)}")
