"""The folder of runs: `<id>/{config.toml, record.json, log.jsonl, checkpoint/, lock}`. A finished record stays.

Packs (`*.jsonl.gz`) in the folder, or named beside it, hold finished runs too; a folder with a record wins over them.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rcad.errors import InputError, command, expanded, one_of, shown
from rcad.runs import files
from rcad.runs.config import RunConfig
from rcad.runs.locks import RunLock, abandoned, held_here, is_locked
from rcad.runs.pack import PackedRun, broken_pack, is_pack, packs_in, thinned, united, write_pack
from rcad.runs.plain import ID_LENGTH, config_id, load_config, to_toml
from rcad.runs.record import FINISHED, RUN, STATUSES, RunRecord, Status

CONFIG, RECORD, LOG, CHECKPOINT, LOCK = "config.toml", "record.json", "log.jsonl", "checkpoint", "lock"
EVALUATION, WEIGHTS = "evaluation", "model.safetensors"
LAST, BEFORE = "last.safetensors", "before.safetensors"
"""The checkpoints of a run that is not finished: the newest, and the one before it."""
NEWEST = "last"  # in place of an id: the run that was done last
_ID = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")
_REMOVED = re.compile(rf"\.[0-9a-f]{{{ID_LENGTH}}}\.[0-9a-f]{{12}}\.removed")


@dataclass(frozen=True)
class Store:
    """A folder of runs, or one pack, which can only be read; runs of `packs` elsewhere count as finished here."""

    path: Path
    packs: tuple[Path, ...] = ()

    @staticmethod
    def open(path: str | Path, *, create: bool = True, packs: Iterable[Path] = ()) -> Store:
        """The store in a folder, made or else required to be there, rid of what killed processes left half-written.

        Where there must be one, its runs may also lie in the folder `runs` inside, as those of a table or a study do.
        """
        store = Store(expanded(path), tuple(packs))
        if is_pack(store.path) and store.path.is_file():
            return store
        if create:
            files.make_folder(store.path)
        elif is_pack(store.path) and not store.path.exists():
            raise broken_pack(store.path, "nothing there")
        elif not store.path.is_dir():
            got = (
                "it is a file; name a folder" if store.path.exists() else "there is none; train first, or name another"
            )
            raise InputError(f"expected a folder of runs at {str(path)!r}, but {got}")
        elif (inside := store.path / "runs").is_dir() and not store.ids():
            store = replace(store, path=inside)
        store._clean()
        return store

    def ids(self) -> list[str]:
        """Every run there is, with or without a record."""
        return sorted({*self._folders(), *self._packed()})

    def find(self, prefix: str) -> str:
        """The id that starts with `prefix`; there must be just one. "last" is the run that was done last."""
        runs = [run for run in self.ids() if run.startswith(prefix)] if prefix else []
        if prefix == NEWEST:
            done = [record for record in self.records(lambda error: None) if record.status == "done"]
            if not done:
                raise InputError(
                    f"expected a finished run in {self.path}, but none of {len(self.ids())} is; train one to its end, "
                    "or see: rcad runs list"
                )
            return max(done, key=lambda record: record.finished or "").id
        if not runs:
            raise InputError(f"expected the id of a run in {self.path}, but got {prefix!r}; see: rcad runs list")
        if len(runs) > 1:
            raise InputError(
                f"expected the start of one id, but {prefix!r} fits {len(runs)}: {', '.join(runs[:4])}; give more of it"
            )
        return runs[0]

    def folder(self, run: str) -> Path:
        """Where a run keeps its files; `run` is a whole id."""
        if not _ID.fullmatch(run):
            raise InputError(f"expected an id of {ID_LENGTH} hexadecimal digits, but got {run!r}")
        return self.path / run

    def where(self, run: str) -> Path:
        """What a reader should look at: the pack that holds a run, or its folder, which wins once it has a record."""
        in_pack = self._in_pack(run)
        return self.folder(run) if in_pack is None else in_pack[0]

    def packed(self, run: str) -> PackedRun:
        """A finished run as a pack holds it, whether it lies in one or in a folder."""
        if (in_pack := self._in_pack(run)) is not None:
            return in_pack[1]
        paths = sorted((self.folder(run) / EVALUATION).glob("*.json"))
        return PackedRun(self._read(run), {path.name: self.evaluation(run, path) for path in paths})

    def unpack(self, packed: PackedRun) -> bool:
        """Give a packed run a folder; False where there is one with a record already, which stays as it is."""
        run = packed.record.id
        with self.lock(packed.record.config):
            if self._has_record(run):
                return False
            files.make_folder(self.folder(run) / EVALUATION)
            for name, evaluation in packed.evaluations.items():
                files.write_sealed(self.folder(run) / EVALUATION / name, evaluation)
            self.write(packed.record)
        return True

    def evaluation(self, run: str, path: Path) -> Mapping[str, Any]:
        """What an evaluation beside a run holds; only that it is whole, and this run's, is checked."""
        try:
            plain = files.unsealed(files.loads(files.read_text(path), str(path)))
            if not isinstance(plain, dict) or plain.get("run", run) != run:
                raise InputError(f"expected {path} to be an evaluation of run {run}, but got {shown(plain)}")
        except InputError as error:
            raise self._damaged(path, error, run) from None
        return plain

    def log(self, run: str) -> Path:
        """A run's log.jsonl."""
        return self.folder(run) / LOG

    def checkpoint(self, run: str) -> Path:
        """A run's folder of checkpoints."""
        return self.folder(run) / CHECKPOINT

    def config(self, prefix: str) -> RunConfig:
        """The config of a run by the start of its id, though it may have no record yet: the id is its checksum."""
        run = self.find(prefix)
        path = self.folder(run) / CONFIG
        if not path.exists() and run in self._packed():
            return self._packed()[run][1].record.config
        try:
            config = load_config(path)
            if config_id(config) != run:
                raise InputError(f"expected {path} to hold run {run}, but got {config_id(config)}")
        except InputError as error:
            raise self._damaged(path, error, run) from None
        return config

    def lock(self, config: RunConfig) -> RunLock:
        """Claim a run: its folder is made, its config written. Held until released or the process ends."""
        run = config_id(config)
        files.make_folder(self.folder(run))
        lock = RunLock(self.folder(run) / LOCK, run)
        try:
            path = self.folder(run) / CONFIG
            if path.exists():
                try:
                    self.config(run)
                except files.DamagedError:
                    files.set_aside(path)
            if not path.exists():
                files.write_text(path, to_toml(config))
        except BaseException:
            lock.release()
            raise
        return lock

    def record(self, config: RunConfig) -> RunRecord | None:
        """The record of the run of `config`, if there is one."""
        return self._record(config_id(config))

    def status(self, config: RunConfig) -> Status | Literal["new"]:
        """How far the run of `config` is: "new" without a record."""
        record = self.record(config)
        return "new" if record is None else record.status

    def get(self, prefix: str) -> RunRecord:
        """The record of a run by its id or the start of it."""
        run = self.find(prefix)
        return self._record(run) or self._read(run)

    def records(self, on_error: Callable[[InputError], None] | None = None) -> list[RunRecord]:
        """Every record, by the time it was started; `on_error` takes the error of one that cannot be read."""
        records = []
        for run in self.ids():
            try:
                records.append(self._record(run))
            except InputError as error:
                if on_error is None:
                    raise
                on_error(error)
        return sorted(filter(None, records), key=lambda record: (record.started, record.id))

    def write(self, record: RunRecord) -> None:
        """Put a record in place of the run's last one, under its lock; final ones give way only to final ones."""
        path = self.folder(record.id) / RECORD
        if not held_here(path.with_name(LOCK)):
            with self.lock(record.config):
                self.write(record)
            return
        if not record.is_final and path.exists() and (last := self._read(record.id)).is_final:
            raise InputError(
                f"expected run {record.id} to stay {last.status}, but got a record that is {record.status}; "
                "prune it first"
            )
        files.write_sealed(path, record.to_dict())

    def remove(self, run: str, *, checkpoint_only: bool = False) -> None:
        """Remove a run, or its checkpoints; refused while a process works on it."""
        folder = self.folder(run)
        with RunLock(folder / LOCK, run):
            target = folder / CHECKPOINT if checkpoint_only else folder
            # Renamed first: a removal cut short never leaves half a run under its name.
            removed = self.path / f".{run}.{secrets.token_hex(6)}.removed"
            with files.expecting(target, "removable"):
                os.replace(target, removed)
                files.sync_folder(self.path)
                shutil.rmtree(removed)

    def _folders(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return [folder.name for folder in self.path.iterdir() if _ID.fullmatch(folder.name) and folder.is_dir()]

    def _has_record(self, run: str) -> bool:
        return (self.folder(run) / RECORD).exists()

    def _packed(self) -> Mapping[str, tuple[Path, PackedRun]]:
        own = [self.path] if is_pack(self.path) else packs_in(self.path)
        return united(dict.fromkeys([*own, *self.packs]))

    def _in_pack(self, run: str) -> tuple[Path, PackedRun] | None:
        """The pack that holds a run and the run; None where its folder has a record, or there is none."""
        return None if self._has_record(run) else self._packed().get(run)

    def _record(self, run: str) -> RunRecord | None:
        if self._has_record(run):
            return self._read(run)
        return self._packed()[run][1].record if run in self._packed() else None

    def _read(self, run: str) -> RunRecord:
        """The record, where "running" means that a process is: a killed one could not write that it was stopped."""
        path = self.folder(run) / RECORD
        try:
            record = RUN.read(path)
            killed = record.status == "running" and not is_locked(path.with_name(LOCK))
            record = RUN.read(path) if killed else record  # it may have been finished between the two looks
        except InputError as error:
            raise self._damaged(path, error, run) from None
        if record.id != run:
            raise InputError(f"expected {path} to hold run {run}, but got {record.id}; move it to its own folder")
        if killed and record.status == "running":
            return replace(record, status="interrupted", message=record.message or "its process was killed")
        return record

    def _damaged(self, path: Path, error: InputError, run: str) -> InputError:
        """The error of a file of a run, with the command that heals it; one that was not damaged stays as it is."""
        if files.denied(error) or isinstance(error, files.OtherVersionError):
            return error
        words = str(error).partition("; ")[0]
        return files.DamagedError(path, words if str(path) in words else f"in {path}: {words}", self.remedy(run))

    @property
    def option(self) -> str:
        """How a command is told of this folder: nothing where it looks by itself."""
        return "" if self.path == Path("runs") else " " + command("--runs", str(self.path))

    def remedy(self, run: str) -> str:
        """What to do about a damaged run, in words that can be pasted."""
        return f"to make it again: rcad runs verify {run} --repair{self.option}"

    def _clean(self) -> None:
        for folder in self.path.glob(".*.removed"):
            if _REMOVED.fullmatch(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
        for folder in map(self.folder, self._folders()):
            if (files.leftovers(folder) or abandoned(folder / LOCK)) and os.access(folder, os.W_OK):
                self._clean_run(folder.name)

    def _clean_run(self, run: str) -> None:
        try:
            lock = RunLock(self.folder(run) / LOCK, run)
        except InputError:
            return  # somebody is at work there, and the file may be the one being written
        with lock, contextlib.suppress(InputError):
            for path in files.leftovers(self.folder(run)):
                path.unlink(missing_ok=True)
            if self.get(run).is_final:  # killed between its record and the end
                for name in (LAST, BEFORE):
                    (self.folder(run) / CHECKPOINT / name).unlink(missing_ok=True)


class Packing(NamedTuple):
    """What was packed: how many runs, how many unfinished ones were left out, and the file's size."""

    runs: int
    unfinished: int
    bytes: int


def pack(stores: Iterable[Store], path: Path) -> Packing:
    """Write every finished run of the stores, with its evaluations, to one file; a run in two must be the same."""
    packed: dict[str, PackedRun] = {}
    unfinished = 0
    for store in stores:
        for record in store.records():
            if not record.is_final:
                unfinished += 1
                continue
            run = store.packed(record.id)
            first = packed.setdefault(record.id, run)
            if thinned(first.record) != thinned(run.record):
                raise InputError(
                    f"expected one record of run {record.id}, but {store.path} holds another; pack it apart"
                )
            packed[record.id] = replace(first, evaluations={**run.evaluations, **first.evaluations})
    return Packing(len(packed), unfinished, write_pack(path, packed.values()))


PRUNABLE = (*(status for status in STATUSES if status != "running"), "failed", "broken")


@dataclass(frozen=True)
class Pruned:
    """A run that goes, or of which the checkpoints go: its state, or "broken", and how many bytes that frees."""

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
            `checkpoints_only`, which keeps the records, the final ones.
        older_than: only runs whose files have not changed for so long.
    """
    statuses = status or (FINISHED if checkpoints_only else ("interrupted", "diverged"))
    for name in statuses:
        one_of("status", name, PRUNABLE)
    statuses = (*statuses, "failed") if "interrupted" in statuses else statuses
    pruned = []
    for run in store.ids() if ids is None else dict.fromkeys(map(store.find, ids)):
        folder = store.folder(run)
        target = store.checkpoint(run) if checkpoints_only else folder
        if is_locked(folder / LOCK):
            if ids is not None:
                raise InputError(f"expected run {run} to be free, but a process works on it; stop it first")
        elif ids is not None and not folder.is_dir():
            raise InputError(f"expected a run with a folder, but {run} lies in {store.where(run)}; it stays there")
        elif target.is_dir() and ((current := _status(store, run)) in statuses or ids is not None):
            if older_than is not None and _age(folder) <= older_than.total_seconds():
                continue
            size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
            pruned.append(Pruned(run, current, size))
    if apply:
        for entry in pruned:
            store.remove(entry.id, checkpoint_only=checkpoints_only)
    return pruned


def _status(store: Store, run: str) -> str:
    if not (store.folder(run) / RECORD).exists():
        return "interrupted"
    try:
        return store.get(run).state
    except InputError:
        return "broken"


def _age(folder: Path) -> float:
    """Seconds since the files of a run have changed."""
    times = [path.stat().st_mtime for path in (folder / RECORD, folder / CHECKPOINT) if path.exists()]
    return time.time() - max(times, default=folder.stat().st_mtime)
