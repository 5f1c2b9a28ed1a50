"""Several runs one after the other, with their progress shown; what is done already is not run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rcad.cli.figures import duration, leading, metric
from rcad.cli.screen import warn
from rcad.cli.signals import last_signal
from rcad.cli.views import View
from rcad.errors import InputError
from rcad.experiments.config import RunConfig
from rcad.experiments.locks import BusyError
from rcad.experiments.plain import config_id
from rcad.experiments.record import FINISHED, RunRecord
from rcad.experiments.rows import label
from rcad.experiments.store import Store
from rcad.train.reporting import Tracker

SIGINT, LEFT = 2, 2
Trackers = Callable[[Path], Sequence[Tracker]]
Said = Callable[[RunRecord, bool], str]
"""A run's end in one line; the flag says that it had been finished before."""


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
            view.end(_left(error))
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


@dataclass(frozen=True)
class Grid:
    """Where the runs of a sweep are made. What brings torch is imported when the first of them is."""

    store: Store
    view: View
    data_dir: Path | None
    cache_dir: Path | None
    device: str
    engine: str
    joined: int
    trackers: Trackers
    told: Said

    def check(self, finished: Sequence[RunConfig]) -> None:
        """That what is done already was done on the data that are there now."""
        from rcad.data.registry import READERS
        from rcad.data.splits import parse_spec

        # The sets that rcad knows by name do not change, and to say so needs no torch.
        own = [config for config in finished if parse_spec(config.data.name)[0] not in READERS]
        if own:
            from rcad.experiments.run import Place, check_data_of_finished

            check_data_of_finished(own, Place(self.store, self.data_dir, self.cache_dir, "cpu"), self.view)

    def one(self, config: RunConfig) -> RunRecord:
        """A run by itself."""
        from rcad.experiments.run import run

        return run(
            config,
            self.store,
            data_dir=self.data_dir,
            cache_dir=self.cache_dir,
            device=self.device,
            engine=self.engine,  # type: ignore[arg-type]
            reporter=self.view,
            trackers=self._trackers(config),
        )

    def shared(self, configs: Sequence[RunConfig], at_once: int | None) -> list[RunConfig]:
        """The runs that go side by side: on a GPU, and only if there are several."""
        given = [name for name, value in (("--at-once", at_once), ("--join", self.joined)) if value not in (None, 1)]
        if len(configs) < 2 or at_once == 1 or (not given and self.device == "cpu"):
            return []
        from rcad.experiments.machine import allow_many_queues, pick_device
        from rcad.experiments.together import can_share

        allow_many_queues()
        if pick_device(self.device).type != "cuda":
            if given:
                warn(f"{' and '.join(given)}: only for runs that share a GPU; on the CPU they go one after the other")
            return []
        sharing = [config for config in configs if can_share(config)]
        if given and len(sharing) < 2:
            warn(f"{' and '.join(given)}: not for dropout, timm or train.deterministic; those go one after the other")
        return sharing if len(sharing) > 1 else []

    def side_by_side(
        self, configs: Sequence[RunConfig], at_once: int | None, left: dict[str, BusyError] | None = None
    ) -> dict[str, RunRecord]:
        """The records of these runs by id; fewer than runs where a signal came.

        Args:
            left: where runs are put that another process works on; None to make that an error.
        """
        from rcad.cli.crowd import Crowd
        from rcad.experiments.run import Place
        from rcad.experiments.together import run_together

        crowd = Crowd(self.view, len(configs))

        def busy(index: int, error: BusyError) -> None:
            assert left is not None
            left[config_id(configs[index])] = error
            crowd.end(index, f"{title(configs[index])}  {_left(error)}")

        found = run_together(
            configs,
            Place(
                self.store,
                self.data_dir,
                self.cache_dir,
                self.device,
                self.engine,  # type: ignore[arg-type]
                joined=self.joined,
            ),
            at_once=at_once,
            reporter_of=crowd.member,
            trackers_of=self._trackers,
            ended=lambda index, record: crowd.end(index, self.told(record, False)),
            busy=None if left is None else busy,
        )
        return {record.id: record for record in found if record is not None}

    def _trackers(self, config: RunConfig) -> Sequence[Tracker]:
        return self.trackers(self.store.folder(config_id(config)))


def _left(error: BusyError) -> str:
    return f"left to {error.owner}"


def canonical(config: RunConfig) -> RunConfig:
    """The config under which the run is kept: without parameters that are the method's defaults."""
    if not any(values for _, values in config.method):
        return config  # nothing to leave out, and no need to wait for torch
    from rcad.experiments.run import canonical_config

    return canonical_config(config)


def seconds(record: RunRecord) -> float | None:
    """How long a run took, all in all."""
    known = [value for value in record.timings.values() if value is not None]
    return sum(known) if known else None


def title(config: RunConfig) -> str:
    """A run in a few words."""
    return f"{label(config.method)} on {config.data.name}, seed {config.seed}"


def said(record: RunRecord, already: bool, *, most: int = 3) -> str:
    """How a run ended, in one line with at most so many metrics."""
    numbers = [f"{name} {metric(name, record.metrics[name])}" for name in leading(record.metrics, most)]
    verb = f"{record.status} already" if already else record.status
    parts = [f"{verb}: {title(record.config)}", *numbers]
    if record.status == "diverged":
        parts.append(record.message)
    elif not already:
        parts.append(duration(seconds(record)))
    else:
        parts.append(f"run {record.id}")
    return "  ".join(part for part in parts if part)
