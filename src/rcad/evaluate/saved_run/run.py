"""Suites on runs: what is there already is taken from its record, the rest is measured and recorded at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rcad.errors import InputError, need
from rcad.evaluate.saved_run.loading import OnStep, RunLoader, SavedRun, finished, foreign_inputs, load_weights
from rcad.evaluate.saved_run.settings import EVALUATION, FOLDER, Evaluation, Settings, read_stored
from rcad.evaluate.saved_run.suites import (
    NotApplicable,
    SuiteResult,
    attacks,
    calibration,
    corruptions,
    ood,
    published_set,
)
from rcad.runs.config import DataConfig, RunConfig
from rcad.runs.files import check_folder, make_folder, write_sealed
from rcad.runs.pack import is_pack
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord, commit, utc_now, versions
from rcad.runs.store import Store
from rcad.train.machine import device_words, suitable_threads
from rcad.train.progress import SILENT, Progress
from rcad.train.task import as_asked

AUGMENTATION, TWO_VIEWS = "data_augmentation", "two_views"
OnError = Callable[[str, InputError], None]
"""Called with a run that cannot be evaluated, and why."""


@dataclass(frozen=True)
class Outcome:
    """What was found about one run, by suite; `refused` says in a sentence why a suite makes no sense for it.

    `asked` is its config as it was asked for, with "auto" for what was measured; None where its data were not read.
    """

    record: RunRecord
    evaluations: dict[str, Evaluation]
    refused: dict[str, str]
    asked: RunConfig | None = None


def evaluate(
    loader: RunLoader,
    run: str,
    suites: Sequence[str],
    settings: Settings,
    progress: Progress = SILENT,
    *,
    title: str = "",
    again: bool = False,
) -> Outcome:
    """One run, by its id or the start of it, suite by suite; each record is written as soon as it is whole.

    The progress calls it `title`; `again` measures also what a record holds already.
    """
    record = loader.store.get(run)
    if is_pack(loader.store.where(record.id)) and not again:
        return _from_pack(loader.store, record, suites, settings)
    saved = loader.load(record.id)
    twin = erm_twin(loader.store, record) if "attacks" in suites and settings.masking else None
    outcome = Outcome(record, {}, {}, as_asked(record.config, saved.problem))
    with suitable_threads(saved.problem.test[0]):
        for suite in suites:
            path = loader.store.folder(record.id) / FOLDER / settings.file(suite)
            # All that the numbers depend on: a record with other settings is not taken for this one.
            full = {**settings.of(suite), "limit": saved.limit(suite, settings)}
            if suite == "attacks" and settings.masking:
                full["twin"] = twin
            before = None if again else read_stored(path, record.id, full)
            if before is not None:
                outcome.evaluations[suite] = before
                continue
            check_folder(path.parent)
            start = time.perf_counter()
            try:
                result = _measure(saved, suite, settings, twin, partial(_told, progress, f"{title}{suite}"))
            except NotApplicable as reason:
                outcome.refused[suite] = str(reason)
                continue
            outcome.evaluations[suite] = Evaluation(
                run=record.id,
                suite=suite,
                settings=full,
                **vars(result),
                seconds=round(time.perf_counter() - start, 2),
                device=device_words(saved.problem.device),
                versions=versions(),
                commit=commit(),
                finished=utc_now(),
            )
            make_folder(path.parent)
            write_sealed(path, outcome.evaluations[suite].to_dict())
    return outcome


def _from_pack(store: Store, record: RunRecord, suites: Sequence[str], settings: Settings) -> Outcome:
    """What was measured before the run was packed; there are no weights to measure more."""
    pack, held = store.where(record.id), store.packed(record.id).evaluations
    evaluations = {}
    for suite in suites:
        name = settings.file(suite)
        if name not in held:
            raise InputError(
                f"expected the {suite} of run {record.id}, but {pack.name} holds neither its {suite} nor its "
                "weights; train it in another folder"
            )
        evaluations[suite] = EVALUATION.parse(held[name], f"{pack}, {record.id}, {name}")
    return Outcome(record, evaluations, {})


def evaluate_all(
    loader: RunLoader,
    runs: Sequence[str],
    suites: Sequence[str],
    settings: Settings,
    progress: Progress = SILENT,
    *,
    again: bool = False,
    on_error: OnError | None = None,
) -> list[Outcome]:
    """Several runs, one after the other; a suite that makes sense for none of them is an error.

    `on_error` takes a run that cannot be evaluated, and the others follow; None raises its error. A request that fits
    none of the runs, for one and the same reason, is an error all the same.
    """
    unfit: dict[str, InputError] = {}
    misfits: dict[str, InputError] = {}
    fitting: set[DataConfig] = set()
    for run in runs:
        saved = None
        try:
            if (data := finished(loader.store, run).config.data) not in fitting:  # one run of each data is tried
                saved = loader.load(run)
                check(saved, suites, settings)
                fitting.add(data)
        except InputError as error:
            unfit[run] = error
            if saved is not None:
                misfits[str(error)] = error
    if len(misfits) == 1 and len(unfit) == len(runs):
        raise misfits.popitem()[1]
    if unfit and on_error is None:
        raise next(iter(unfit.values()))
    outcomes = []
    for number, run in enumerate(runs, 1):
        try:
            if run in unfit:
                raise unfit[run]
            title = f"run {number} of {len(runs)}, "
            outcomes.append(evaluate(loader, run, suites, settings, progress, title=title, again=again))
        except InputError as error:
            if on_error is None:
                raise
            on_error(run, error)
    if outcomes and all(not outcome.evaluations for outcome in outcomes):
        reason = next(iter(outcomes[0].refused.values()))
        raise InputError(f"expected a suite that fits the runs, but got {', '.join(suites)}: {reason}")
    return outcomes


def check(saved: SavedRun, suites: Sequence[str], settings: Settings) -> None:
    """Checks that what the suites need is there and fits the run's data, before an hour is spent on the others."""
    if "attacks" in suites and settings.standard:
        need("pyautoattack", "pyautoattack", "attacks")
    if "corruptions" in suites and settings.corrupted is not None and saved.is_image:
        published_set(saved, settings)
    for name in settings.ood_data if "ood" in suites else ():
        foreign_inputs(saved, name, 1, settings.seed)


def erm_config(config: RunConfig) -> RunConfig:
    """The same run without its method: what belongs to the protocol, crops and flips or two views, stays."""
    names = [name for name, _ in config.method]
    base = tuple(row for row in config.method if row[0] == AUGMENTATION)
    plain = TWO_VIEWS if TWO_VIEWS in names or "rcad_released" in names else "erm"
    return replace(config, method=(*base, (plain, ())))


def erm_twin(store: Store, record: RunRecord) -> str | None:
    """The finished ERM run with the same data, model, training and seed, if the store holds its weights, whole."""
    run = config_id(erm_config(record.config))
    if run == record.id or run not in store.ids():
        return None
    try:
        twin = finished(store, run)
        load_weights(store, run)
    except InputError:
        return None
    return run if twin.data_sha256 == record.data_sha256 else None


def _told(progress: Progress, suite: str, step: str, done: int, total: int) -> None:
    progress.detail(f"{suite}: {step}", done, total)


def _measure(saved: SavedRun, suite: str, settings: Settings, twin: str | None, progress: OnStep) -> SuiteResult:
    if suite == "attacks":
        return attacks(saved, settings, progress, None if twin is None else saved.loader.load(twin))
    measure = {"calibration": calibration, "corruptions": corruptions, "ood": ood}[suite]
    return measure(saved, settings, progress)
