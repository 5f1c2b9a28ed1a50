"""Several runs one after the other, with their progress shown; what is done already is not run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rcad.cli.grid import Grid, Said, Trackers
from rcad.cli.signals import last_signal
from rcad.cli.views import View
from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.plain import config_id
from rcad.runs.record import FINISHED, RunRecord
from rcad.runs.store import Store
from rcad.runs.words import left_to, said, title

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
    words = told or partial(said, most=2)
    grid = Grid(store, view, data_dir, cache_dir, device, engine, joined, trackers, words)
    work = _Work([canonical(config) for config in configs], grid, leave_busy)
    with view, last_signal() as signalled:
        if not work.go(at_once):
            return work.outcome(signalled() or SIGINT)
    work.check_some_free()
    return work.outcome()


class _Work:
    """The runs of a sweep, and what has become of them so far.

    Attributes:
        already: the ids of those that had been finished before.
        records, left: by id, of those that were begun, and of those that another process works on.
    """

    def __init__(self, configs: list[RunConfig], grid: Grid, leave_busy: bool) -> None:
        self.configs, self.grid, self.leave_busy = configs, grid, leave_busy
        self.already = {config_id(config) for config in configs if grid.store.status(config) in FINISHED}
        self.records: dict[str, RunRecord] = {}
        self.left: dict[str, BusyError] = {}

    def go(self, at_once: int | None) -> bool:
        """Every run that has no final record yet; False where a signal came."""
        self.grid.check([config for config in self.configs if config_id(config) in self.already])
        fresh = [config for config in self.configs if config_id(config) not in self.already]
        beside = self.grid.shared(fresh, at_once)
        if beside and not self._side_by_side(beside, at_once):
            return False
        numbered = list(enumerate(self.configs, 1))
        if not self._one_by_one([one for one in numbered if one[1] not in beside]):
            return False
        # By now the other process may have finished a run that was left to it, or have been stopped.
        return self._one_by_one([one for one in numbered if config_id(one[1]) in self.left])

    def check_some_free(self) -> None:
        if self.left and not self.records:
            raise InputError(
                f"expected one of {len(self.configs)} runs to be free, but {next(iter(self.left.values())).owner} is "
                "working on them; wait for it or stop it"
            )

    def outcome(self, signal: int | None = None) -> Outcome:
        found = [self.records[run] for run in map(config_id, self.configs) if run in self.records]
        busy = [(config.seed, self.left.get(config_id(config))) for config in self.configs]
        owners = tuple((seed, error.owner) for seed, error in busy if error is not None)
        return Outcome(found, frozenset(self.already), signal, owners)

    def _side_by_side(self, configs: list[RunConfig], at_once: int | None) -> bool:
        self.records |= self.grid.side_by_side(configs, at_once, self.left if self.leave_busy else None)
        begun = len(self.records) + len(self.left) >= len(configs)
        return begun and all(record.is_final for record in self.records.values())

    def _one_by_one(self, numbered: list[tuple[int, RunConfig]]) -> bool:
        return all(self._make(number, config) for number, config in numbered)

    def _make(self, number: int, config: RunConfig) -> bool:
        """One run by itself; whether to go on."""
        run, grid = config_id(config), self.grid
        grid.view.begin(number, len(self.configs), title(config))
        if grid.store.status(config) in FINISHED:
            self.already.add(run)
        try:
            record = grid.store.get(run) if run in self.already else grid.one(config)
        except BusyError as error:
            if not self.leave_busy or len(self.configs) == 1:
                raise
            self.left[run] = error
            grid.view.end(left_to(error))
            return True
        self.left.pop(run, None)
        self.records[run] = record
        grid.view.end(grid.told(record, run in self.already))
        return record.is_final


def canonical(config: RunConfig) -> RunConfig:
    """The config under which the run is kept: without parameters that are the method's defaults."""
    if not any(values for _, values in config.method):
        return config  # nothing to leave out, and no need to wait for torch
    from rcad.train.run import canonical_config

    return canonical_config(config)
