"""The grid: a finished run is never made again, wherever the last attempt ended; missing data are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rcad.errors import InputError
from rcad.paper import benchmarks, grid
from rcad.paper.grid import Plan, Progress, Standing, make_runs, plan
from rcad.paper.tables import SUITES
from rcad.runs.config import RunConfig
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord, Status
from rcad.runs.store import Store
from rcad.train import executors
from rcad.train.executors import Sequential, Together, suitable
from rcad.train.processes import Processes
from rcad.train.run import Place

STARTED, FINISHED = "2024-01-31T12:00:00+00:00", "2024-01-31T12:30:00+00:00"


def written(config: RunConfig, status: Status = "done") -> RunRecord:
    finished = FINISHED if status in ("done", "diverged") else None
    return RunRecord(config=config, status=status, started=STARTED, finished=finished, metrics={"test_accuracy": 50.0})


@pytest.fixture
def planned() -> Plan:
    return plan(SUITES["F4"], "smoke", "one view", range(2), only=["alpha 0.5", "alpha 1"])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(Store.open(tmp_path / "runs"), device="cpu")


class Broken:
    """Stands for `run`: works until a given call, and there does what it is told to."""

    def __init__(self, store: Store, at: int, how: Callable[[RunConfig], RunRecord]) -> None:
        self.store, self.at, self.how = store, at, how
        self.made: Counter[str] = Counter()

    def __call__(self, config: RunConfig, store: Store, **options: object) -> RunRecord:
        if sum(self.made.values()) == self.at:
            self.at = -1
            return self.how(config)
        self.made[config_id(config)] += 1
        record = written(config, "diverged" if config.seed else "done")
        self.store.write(record)
        return record


def interrupted(config: RunConfig) -> RunRecord:
    return written(config, "interrupted")


def killed(config: RunConfig) -> RunRecord:
    raise KeyboardInterrupt


def crashed(config: RunConfig) -> RunRecord:
    raise RuntimeError("the machine is on fire")


@pytest.mark.parametrize("how", [interrupted, killed, crashed])
@pytest.mark.parametrize("at", [0, 1, 5, 11])
def test_whatever_stops_it_nothing_finished_is_repeated(
    at: int, how: Callable[[RunConfig], RunRecord], planned: Plan, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Broken(place.store, at, how)
    monkeypatch.setattr(executors, "run", run)
    sequential = lambda configs: Sequential()  # noqa: E731
    told: list[Standing] = []
    try:
        assert make_runs(planned, place, sequential, told.append) is False
    except (KeyboardInterrupt, RuntimeError):
        assert how is not interrupted
    assert sum(run.made.values()) == at
    assert make_runs(planned, place, sequential, told.append) is True
    assert run.made == Counter(planned.configs().keys())
    assert (told[-1].done, told[-1].total) == (12, 12)
    # A third time there is nothing to do.
    assert make_runs(planned, place, lambda configs: pytest.fail("no run is left"), told.append) is True


def test_cells_share_runs(planned: Plan) -> None:
    assert len(planned.runs) == 16
    assert len(planned.configs()) == 12  # ERM and the entropy at x do not know alpha


def test_the_time_left_counts_work_and_not_what_was_there_before(
    planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(grid.time, "monotonic", lambda: now)
    monkeypatch.setattr(grid, "work", lambda config: 10.0)
    told: list[Standing] = []
    configs = list(planned.configs().values())[:4]
    progress = Progress(configs, 3, told.append)
    progress.moved(0, 0.5)  # resumed from a checkpoint
    assert told[-1].left is None
    now = 110.0
    progress.moved(0, 0.75)
    assert told[-1].share == pytest.approx(0.75 / 4)
    assert told[-1].left == pytest.approx(10 * 3.25 / 0.25)
    now = 120.0
    progress.ended(0, written(configs[0]))
    assert (told[-1].done, told[-1].total) == (4, 7)
    assert told[-1].left == pytest.approx(20 * 3 / 0.5)
    now = 140.0
    progress.ended(1, written(configs[1]))  # told of at its end only, as by another process
    assert told[-1].left == pytest.approx(40 * 2 / 1.5)


def test_executors_suit_the_work(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(planned.configs().values())
    many = [one.config for one in SUITES["T4"].runs("small", range(3), "one view")]
    monkeypatch.setattr(executors, "cores", lambda: 16)
    assert suitable("cpu", few, None) == Sequential()
    assert suitable("cpu", few, 3) == Processes(3)
    assert suitable("cpu", many, None) == Processes(2)
    assert suitable("cpu", many, 1) == Sequential()
    monkeypatch.setattr(executors, "cores", lambda: 1)
    assert suitable("cpu", many, None) == Sequential()
    monkeypatch.setattr(executors, "pick_device", lambda name: type("Device", (), {"type": "cuda"}))
    assert suitable("auto", few, None) == Together(None)
    assert suitable("auto", few, 4) == Together(4)
    assert suitable("auto", few, 1) == Sequential()


def test_together_takes_the_rest_one_by_one(planned: Plan, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = list(planned.configs().values())[:4]
    monkeypatch.setattr(executors, "can_share", lambda config: config is not configs[1])
    run = Broken(place.store, -1, crashed)
    monkeypatch.setattr(executors, "run", run)

    def together(some: Sequence[RunConfig], place: Place, **options: object) -> list[RunRecord]:
        records = [written(config) for config in some]
        for number, record in enumerate(records):
            options["ended"](number, record)  # type: ignore[operator]
        return records

    monkeypatch.setattr(executors, "run_together", together)
    ended: list[tuple[int, str]] = []

    class Watch:
        def moved(self, index: int, share: float) -> None: ...

        def ended(self, index: int, record: RunRecord) -> None:
            ended.append((index, record.id))

    assert Together()(configs, place, Watch()) is True
    assert ended == [(index, config_id(configs[index])) for index in (0, 2, 3, 1)]
    assert list(run.made) == [config_id(configs[1])]


def test_together_equals_one_by_one(planned: Plan, tmp_path: Path) -> None:
    """On the CPU the runs take turns; what a GPU adds has tests of its own."""
    configs, told = list(planned.configs().values())[:2], []
    found = []
    for executor in (Sequential(), Together()):
        place = Place(Store.open(tmp_path / type(executor).__name__), device="cpu")
        assert executor(configs, place, Progress(configs, 0, told.append)) is True
        found.append([place.store.get(config_id(config)).metrics for config in configs])
        assert (told[-1].done, told[-1].share) == (2, 1.0)
    assert found[0] == found[1]


def test_missing_data_are_named_and_the_rest_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RCAD_DATA", raising=False)
    (tmp_path / "cifar100").mkdir()
    (tmp_path / "cifar100" / "train.bin").write_bytes(b"")
    found = plan(SUITES["T1"], "small", "one view", [0], data_dir=tmp_path)
    assert found.columns == ("CIFAR-100-2k", "CIFAR-100-10k", "CIFAR-100")
    assert [line.split(":")[0] for line in found.missing] == ["Tiny ImageNet", "CIFAR-10", "SVHN"]
    assert all(line.endswith("so it was not run.") for line in found.missing)
    assert {one.column for one in found.runs} == set(found.columns)
    with pytest.raises(InputError, match=r"expected data for T1, but there are none: CIFAR-100-2k: cifar100 was not"):
        plan(SUITES["T1"], "small", "one view", [0], data_dir=tmp_path / "nowhere")
    with pytest.raises(InputError, match="no reader"):
        plan(SUITES["T5"], "full", "one view", [0], data_dir=tmp_path)
    with pytest.raises(InputError, match="expected --only to be"):
        plan(SUITES["T1"], "smoke", "one view", [0], only=["MNIST"])


def test_a_part_of_tiny_imagenet_is_not_taken_for_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny-imagenet").mkdir()
    (tmp_path / "tiny-imagenet" / "train.parquet").write_bytes(b"")

    class Part:
        train = range(4000)

    monkeypatch.setattr("rcad.data.registry.load", lambda *names, **options: Part)
    why = benchmarks.missing(benchmarks.TINY, "full", tmp_path, None)
    assert why == "Tiny ImageNet: only 4,000 of 100,000 images were found, so it was not run."
    assert benchmarks.missing(benchmarks.TINY, "small", tmp_path, None) is None
    Part.train = range(100_000)
    assert benchmarks.missing(benchmarks.TINY, "full", tmp_path, None) is None


def test_runs_in_bf16_are_other_runs() -> None:
    plain = plan(SUITES["T4"], "smoke", "one view", [0], only=["n=500"])
    found = plan(SUITES["T4"], "smoke", "one view", [0], only=["n=500"], precision="bf16")
    assert (plain.precision, found.precision) == ("fp32", "bf16")
    assert not set(plain.configs()) & set(found.configs())
    for one, other in zip(plain.runs, found.runs, strict=True):
        assert other[:2] == one[:2]
        assert (other.config.train.precision, other.config.train.channels_last) == ("bf16", True)
        assert replace(other.config, train=one.config.train) == one.config


def test_skipped_columns_are_kept_in_mind() -> None:
    found = plan(SUITES["T4"], "smoke", "one view", [0], only=["n=500"])
    assert found.columns == ("n=500",)
    assert len(found.skipped) == 5
