"""Where the runs of a sweep are made: by themselves, or side by side on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rcad.cli.screen import warn
from rcad.cli.views import View
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.runs.words import left_to, title
from rcad.train.reporting import Tracker

Trackers = Callable[[Path], Sequence[Tracker]]
Said = Callable[[RunRecord, bool], str]
"""A run's end in one line; the flag says that it had been finished before."""


@dataclass(frozen=True)
class Grid:
    """Makes runs in one place. What brings torch is imported when the first of them is made."""

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
            from rcad.train.run import Place, check_data_of_finished

            check_data_of_finished(own, Place(self.store, self.data_dir, self.cache_dir, "cpu"), self.view)

    def one(self, config: RunConfig) -> RunRecord:
        """A run by itself."""
        from rcad.train.run import run

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
        from rcad.train.machine import allow_many_queues, pick_device
        from rcad.train.together import can_share

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
        from rcad.train.run import Place
        from rcad.train.together import run_together

        crowd = Crowd(self.view, len(configs))

        def busy(index: int, error: BusyError) -> None:
            assert left is not None
            left[config_id(configs[index])] = error
            crowd.end(index, f"{title(configs[index])}  {left_to(error)}")

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
