"""What is damaged in a folder of runs, mended: written again from what is whole, or trained again. Nothing is lost:
what is replaced stays beside it as `NAME.aside`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from filecmp import cmp
from pathlib import Path

from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.files import make_folder, set_aside, write_log
from rcad.runs.record import RunRecord
from rcad.runs.store import CONFIG, EVALUATION, LAST, LOG, RECORD, WEIGHTS, Store
from rcad.runs.verify import Damage, check_run
from rcad.train.place import Place
from rcad.train.progress import SILENT, Progress
from rcad.train.scheduler import Outcome, check_data, schedule

AGAIN = ".again"
"""The folder of runs, inside the damaged one, where they are trained again: the old record stays until the new one is
there, and a repair that was interrupted goes on."""


def repair(
    place: Place,
    runs: Sequence[str],
    progress: Progress = SILENT,
    *,
    configs: Mapping[str, RunConfig] | None = None,
) -> Outcome | None:
    """Mends these runs.

    Args:
        runs: whole ids.
        configs: by id, where they are known from elsewhere; else they come from the run's own files.

    Returns:
        What became of the runs that had to be trained again; None where there was none.
    """
    store, again = place.store, dict[str, RunConfig]()
    for run in runs:
        damages = check_run(store, run)
        if not damages:
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
    finally:
        with suppress(OSError):  # it holds what goes on next time
            second.path.rmdir()
    return outcome


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
