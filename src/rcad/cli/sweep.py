"""Several runs one after the other, with their progress shown; what is done already is not run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rcad.cli.grid import Grid, Said, Trackers
from rcad.cli.run_words import left_to, said, title
from rcad.cli.signals import last_signal
from rcad.cli.views import View
from rcad.errors import InputError
from rcad.experiments.config import RunConfig
from rcad.experiments.locks import BusyError
from rcad.experiments.plain import config_id
from rcad.experiments.record import FINISHED, RunRecord
from rcad.experiments.store import Store

SIGINT, LEFT = 2, 2


@dataclass(frozen=True)
class Outcome:
    """What became of a grid.

    Args:
        records: of the runs that were begun, in order.
        already: the ids of those that had been finished before.
        signal: the number of the signal that stopped it.
        left: seed and owner of the runs that other processes were working on.
    """

    records: list[RunRecord]
    already: frozenset[str]
    signal: int | None = None
    left: tuple[tuple[int, str], ...] = ()

    @property
    def exit_code(self) -> int:
        """128 and the signal where one stopped it, 2 where runs were left to others, 1 where a run diverged."""
        if self.signal is not None:
            return 128 + self.signal
        if self.left:
            return LEFT
        return int(any(record.status == "diverged" for record in self.records))


def open_store(path: Path) -> Store:
    """The folder of runs; the engine makes it when there is something to put there, so bad input leaves no trace."""
    return Store.open(path, create=False) if path.exists() else Store(path)


def sweep(
    configs: Sequence[RunConfig],
    store: Store,
    view: View,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    device: str = "auto",
    engine: str = "auto",
    at_once: int | None = None,
    joined: int = 1,
    trackers: Trackers = lambda folder: (),
    told: Said | None = None,
    leave_busy: bool = False,
) -> Outcome:
    """Run every config that has no final record yet; stops at the first interruption.

    Args:
        at_once: how many runs share a GPU; by default as many as pay. On the CPU they go one after the other.
        joined: how many of them, alike but for their seed, are trained there as one network.
        told: how a run's end is shown; by default with its test metrics.
        leave_busy: go on with the other runs where another process works on one, and look at that one again at the
            end; only where no run is free it is an error, as it always is by default.
    """
    configs = [canonical(config) for config in configs]
    already = {config_id(config) for config in configs if store.status(config) in FINISHED}
    words = told or partial(said, most=2)
    grid = Grid(store, view, data_dir, cache_dir, device, engine, joined, trackers, words)
    records: dict[str, RunRecord] = {}
    left: dict[str, BusyError] = {}

    def outcome(signal: int | None = None) -> Outcome:
        found = [records[run] for run in map(config_id, configs) if run in records]
        owners = [(config.seed, left[config_id(config)].owner) for config in configs if config_id(config) in left]
        return Outcome(found, frozenset(already), signal, tuple(owners))

    def make(number: int, config: RunConfig) -> bool:
        """One run by itself; whether to go on."""
        run = config_id(config)
        view.begin(number, len(configs), title(config))
        if store.status(config) in FINISHED:
            already.add(run)
        try:
            record = store.get(run) if run in already else grid.one(config)
        except BusyError as error:
            if not leave_busy or len(configs) == 1:
                raise
            left[run] = error
            view.end(left_to(error))
            return True
        left.pop(run, None)
        records[run] = record
        view.end(words(record, run in already))
        return record.is_final

    with view, last_signal() as signalled:
        grid.check([config for config in configs if config_id(config) in already])
        beside = grid.shared([config for config in configs if config_id(config) not in already], at_once)
        if beside:
            records |= grid.side_by_side(beside, at_once, left if leave_busy else None)
            if len(records) + len(left) < len(beside) or not all(record.is_final for record in records.values()):
                return outcome(signalled() or SIGINT)
        numbered = list(enumerate(configs, 1))
        for number, config in [one for one in numbered if one[1] not in beside]:
            if not make(number, config):
                return outcome(signalled() or SIGINT)
        # By now the other process may have finished a run that was left to it, or have been stopped.
        for number, config in [one for one in numbered if config_id(one[1]) in left]:
            if not make(number, config):
                return outcome(signalled() or SIGINT)
    if left and not records:
        raise InputError(
            f"expected one of {len(configs)} runs to be free, but {next(iter(left.values())).owner} is working on "
            "them; wait for it or stop it"
        )
    return outcome()


def canonical(config: RunConfig) -> RunConfig:
    """The config under which the run is kept: without parameters that are the method's defaults."""
    if not any(values for _, values in config.method):
        return config  # nothing to leave out, and no need to wait for torch
    from rcad.experiments.run import canonical_config

    return canonical_config(config)
