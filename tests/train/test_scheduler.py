"""One scheduler for all: nothing finished is repeated, busy runs are left, stops are clean, dead workers replaced."""

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from made import images
from one_line import fails_in_one_line
from rcad.errors import InputError
from rcad.runs import locks
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.locks import BusyError
from rcad.runs.record import RunRecord, Status, utc_now
from rcad.runs.store import LAST, Store
from rcad.train import processes, scheduler
from rcad.train import run as engine
from rcad.train.loop import Trainer
from rcad.train.machine import pick_device, pick_devices
from rcad.train.one_gpu import OneGPU
from rcad.train.place import Place
from rcad.train.processes import Processes
from rcad.train.scheduler import choose_backend, one_by_one, schedule
from rcad.train.stop import Interrupted, exit_code, stopping
from tiny_runs import Watcher, arrays_in


def config(seed: int = 0, epochs: int = 2, data: str = "digits[:60]", **train: Any) -> RunConfig:
    made = configure(data, [("erm", ())], epochs=epochs, seed=seed, settings=["model.width=4"])
    return replace(made, train=replace(made.train, **train))


CONFIGS = [config(seed) for seed in range(4)]


def written(config: RunConfig, status: Status = "done") -> RunRecord:
    now, metrics = utc_now(), {"test_accuracy": 50.0}
    finished = now if status in ("done", "diverged") else None
    return RunRecord(config=config, status=status, started=now, finished=finished, metrics=metrics)


@pytest.mark.parametrize("how", [None, KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_whatever_stops_it_nothing_finished_is_repeated(at, how, place, monkeypatch):
    made, ends = list[int](), [how]

    def run(config, place, *others, **options):
        if len(made) == at and ends:
            if error := ends.pop():
                raise error
            os.kill(os.getpid(), signal.SIGTERM)
            return written(config, "interrupted")
        made.append(config.seed)
        place.store.write(record := written(config, "diverged" if config.seed == 3 else "done"))
        return record

    monkeypatch.setattr(engine, "run", run)
    with nullcontext() if how is None else pytest.raises(how):
        outcome = schedule(CONFIGS, place)
        assert (outcome.exit_code, outcome.unfinished, outcome.complete) == (143, 4 - at, False)
        assert outcome.words().endswith(f"{4 - at} run{'s' * (at < 3)} left; run the same command to continue")
    assert len(made) == at
    outcome = schedule(CONFIGS, place)
    assert made == [0, 1, 2, 3]
    assert (outcome.complete, outcome.words(), outcome.exit_code) == (True, "", 1)  # one diverged
    assert len(outcome.already) == at
    assert [record.config.seed for record in schedule(CONFIGS, place).records] == made == [0, 1, 2, 3]


@pytest.mark.parametrize("begun", [True, False])
def test_a_signal_in_a_runs_last_moment_is_not_lost_and_one_before_the_first_ends_it_at_once(begun, place, monkeypatch):
    """Before: while torch is imported, say. An hour of that would be heard through otherwise."""

    def run(config, place, *others, **options):
        if begun:
            options["stop"].at_once = False  # as a run says when it begins
        os.kill(os.getpid(), signal.SIGINT)
        place.store.write(record := written(config))
        return record

    monkeypatch.setattr(engine, "run", run)
    outcome = schedule(CONFIGS, place)
    assert (outcome.exit_code, outcome.unfinished, len(place.store.ids())) == (130, 4 - begun, begun)
    left = "every run is done" if begun else "1 run left; run the same command to continue"
    assert schedule(CONFIGS[: 1 + begun], place).words() == f"stopped: {left}"


def test_a_time_limit_ends_cleanly_and_says_what_is_left(place, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rcad.train.stop.time.monotonic", lambda: now[0])
    monkeypatch.setattr(scheduler, "SHOW_S", -1.0)
    passing = Watcher(lambda watcher: watcher.text, lambda: now.__setitem__(0, 61.0))
    (done,) = schedule(CONFIGS[:1], place).records
    outcome = schedule([*CONFIGS[:1], config(7, epochs=100_000), config(8)], place, passing, minutes=1)
    assert [record.status for record in outcome.records] == ["done", "interrupted"]
    assert (outcome.exit_code, outcome.out_of_time, outcome.signal) == (2, True, None)
    assert outcome.words() == "the time is up: 2 runs left; run the same command to continue"
    assert schedule(CONFIGS[:1], place, minutes=1e-9).records == (done,)


def test_what_cannot_end_in_time_is_not_begun(place, monkeypatch):
    now, begun = [0.0], []

    def taking_its_time(config, place, *others, **options):
        begun.append(config.seed)
        now[0] += (seconds := 10.0 * config.train.epochs)
        place.store.write(record := replace(written(config), timings={"train_seconds": seconds}))
        return record

    monkeypatch.setattr("rcad.train.stop.time.monotonic", lambda: now[0])
    monkeypatch.setattr(engine, "run", taking_its_time)
    asked = [config(seed, epochs=epochs) for seed, epochs in enumerate((2, 2, 4, 1))]
    outcome = schedule(asked, place, minutes=1)  # 20 s, 20 s, then 40 s of which 20 are left, then 10 s
    assert begun == [0, 1, 3]
    assert (outcome.exit_code, outcome.out_of_time, outcome.unfinished) == (2, True, 1)


def test_a_run_is_made_once_however_often_it_is_asked_for(place):
    first, again = Watcher(), Watcher()
    assert len(schedule([*CONFIGS[:2], CONFIGS[0]], place, first).records) == 2
    assert sum(note.startswith("done: ") for note in first.notes) == 2
    schedule(CONFIGS[:1], place, again)
    assert [note.split("  ")[0] for note in again.notes] == ["done already: erm on digits[:60], seed 0"]


def test_busy_runs_are_left_to_others_and_looked_at_again(place, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE_S", 0.01)
    lock, watcher = place.store.lock(CONFIGS[1]), Watcher()
    outcome = schedule(CONFIGS, place, watcher)
    assert [record.config.seed for record in outcome.records] == [0, 2, 3]
    assert (outcome.exit_code, outcome.complete, len(outcome.left)) == (2, False, 1)
    assert outcome.words().startswith(f"left seed 1 to process {os.getpid()} on ")
    assert sum("seed 1  left to process" in note for note in watcher.notes) == 2
    with pytest.raises(BusyError):
        schedule(CONFIGS[1:2], place)
    with place.store.lock(config(9)), fails_in_one_line("expected one of 2 runs to be free, but process"):
        schedule([CONFIGS[1], config(9)], place)
    train = engine.run
    monkeypatch.setattr(engine, "run", lambda *words, **options: (lock.release(), train(*words, **options))[1])
    assert schedule([CONFIGS[1], config(9)], place).complete


def test_backends_suit_work(place, monkeypatch, caplog):
    many = [replace(one, data=replace(one.data, name="digits[:50000]")) for one in CONFIGS]
    monkeypatch.setattr(scheduler, "cores", lambda: 16)
    assert choose_backend(CONFIGS, place, None, None) is one_by_one
    assert choose_backend(CONFIGS, place, None, 3) == Processes(3)
    assert choose_backend(many, place, None, None) == Processes(2)
    assert choose_backend(many, place, None, 1) is one_by_one
    assert choose_backend(many[:1], place, None, 4) is one_by_one
    with pytest.raises(InputError, match="the number of processes"):
        choose_backend(many, place, None, 0)
    monkeypatch.setattr(scheduler, "cores", lambda: 1)
    assert choose_backend(many, place, None, None) is one_by_one
    assert not caplog.records
    assert choose_backend(CONFIGS, replace(place, joined=2), 2, 1) is one_by_one
    monkeypatch.setattr("rcad.train.machine.pick_device", lambda name: torch.device("cuda"))
    gpu = replace(place, device="auto")
    assert choose_backend(CONFIGS, gpu, None, 1) == OneGPU(None)
    assert choose_backend(CONFIGS, gpu, 4, None) == OneGPU(4)
    assert choose_backend(CONFIGS, gpu, 1, None) is one_by_one
    assert choose_backend(CONFIGS[:1], gpu, None, None) is one_by_one
    two = replace(gpu, device="cuda:0", devices=("cuda:0", "cuda:2"))
    assert choose_backend(CONFIGS, two, 4, 1) == Processes(2, ("cuda:0", "cuda:2"), 4)
    assert choose_backend(CONFIGS[:1], two, None, 1) is one_by_one
    choose_backend([config(deterministic=True), config(1)], replace(gpu, joined=2), None, None)
    assert caplog.messages == [
        "--at-once and --join: only for runs that share a GPU; on the CPU they go one after the other",
        "--join: not for dropout, timm or train.deterministic",
    ]


def test_several_devices_are_a_number_or_a_list(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert pick_device("cuda:3").index == 3
    given = {("2", "cpu"): ("cpu", "cpu"), ("2",): ("cuda:0", "cuda:1"), ("3, 1",): ("cuda:3", "cuda:1")}
    for words, names in (given | {("1,", "cuda"): ("cuda:1",)}).items():
        assert pick_devices(*words) == names
    for says, *words in (
        *(("--devices to be a number", wrong) for wrong in ("", "a", "1,1", "-1", "1,,2")),
        ("say how many processes", "0,1", "cpu"),
        ("but got '0'; for the first GPU alone: --device cuda:0", "0"),
        ("expected one of the 4 GPUs that torch sees, but got cuda:4", "0,4"),
        ("got both: cuda:1 and 2", "2", "cuda:1"),
    ):
        with fails_in_one_line(says):
            pick_devices(*words)


def test_one_device_takes_those_that_cannot_share_one_by_one(place):
    configs = [config(0), config(1, deterministic=True), config(2)]
    outcome = schedule(configs, place, backend=OneGPU())
    words = [record.resolved["engine"] for record in outcome.records]
    assert words == ["eager, 2 runs at once", "eager", "eager, 2 runs at once"]
    assert [record.metrics for record in outcome.records] == [metrics_of(one, place) for one in configs]


@pytest.fixture
def arrays(tmp_path: Path) -> str:
    return arrays_in(tmp_path)


def kill_seed_1(monkeypatch: pytest.MonkeyPatch, folder: Path, times: int) -> Callable[[], int]:
    """The worker that trains it is killed so often in its second epoch. Gives how often it was."""
    end, parent = Trainer._end_epoch, os.getpid()

    def deaths() -> int:
        return len(list(folder.glob("died*")))

    def killed(self: Trainer, *words: Any) -> bool:
        finite = end(self, *words)
        if os.getpid() != parent and self.config.seed == 1 and self.epoch >= 2 and deaths() < times:
            (folder / f"died{deaths()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return finite

    monkeypatch.setattr(Trainer, "_end_epoch", killed)
    return deaths


def test_a_killed_worker_is_replaced_and_its_share_goes_on_one_by_one(tmp_path, place, arrays, forked, monkeypatch):
    deaths = kill_seed_1(monkeypatch, tmp_path, times=1)
    configs = [config(seed, 3, arrays) for seed in range(4)]
    before, taken, watcher = dict(os.environ), list[list[int]](), Watcher()
    hand_out = processes._Crew._hand_out

    def seen(self, worker):
        hand_out(self, worker)
        taken.append([config.seed for config in worker.runs.values()])

    monkeypatch.setattr(processes._Crew, "_hand_out", seen)
    monkeypatch.setattr(Processes, "_shares", lambda self, work: [work.configs[:3], work.configs[3:]])
    outcome = schedule(configs, replace(place, devices=("cpu",) * 2, checkpoint_seconds=0.0), watcher)
    assert deaths() == 1
    assert {(record.status, record.device) for record in outcome.records} == {("done", "CPU, 1 thread")}
    assert [one for one in taken if one] == [[0, 1, 2], [3], [1], [2]]
    assert dict(os.environ) == before
    assert any(note.startswith("going on after ") and " epoch" in note for note in watcher.notes)
    assert outcome.records[1].metrics == metrics_of(configs[1], place)


def test_a_run_that_kills_every_worker_is_named_and_what_is_done_stays(tmp_path, place, arrays, forked, monkeypatch):
    monkeypatch.setattr(processes, "ATTEMPTS", 2)
    deaths = kill_seed_1(monkeypatch, tmp_path, times=99)
    words = r"ended with -9 \(killed, out of memory, or .*\) on erm on .*arrays.npz, seed 1"
    with pytest.raises(InputError, match=words):
        schedule([config(seed, 2, arrays) for seed in range(2)], place, backend=Processes(1))
    assert deaths() == 2
    assert place.store.status(config(0, 2, arrays)) == "done"


@pytest.mark.usefixtures("forked")
def test_what_a_worker_refuses_is_one_line(place, arrays, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE_S", 0.01)
    busy, good, bad = config(0, 2, arrays), config(1, 2, arrays), config(2, 2, "nothing-of-this-name")
    with place.store.lock(busy), pytest.raises(InputError, match="nothing-of-this-name"):
        schedule([busy, good, bad], place, backend=Processes(1))
    assert place.store.status(good) == "done"


def test_workers_save_their_runs_when_asked_to_stop(place, arrays, forked):
    ending = Watcher(lambda watcher: "2 at work" in watcher.text, signal.SIGTERM)
    outcome = schedule([config(seed, 100_000, arrays) for seed in range(3)], place, ending, processes=2)
    assert [record.status for record in outcome.records] == ["interrupted"] * 2
    assert (outcome.exit_code, outcome.unfinished) == (143, 3)
    assert all((place.store.checkpoint(record.id) / LAST).exists() for record in outcome.records)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_the_first_signal_asks_and_the_second_insists(number, code, request):
    outside = signal.signal(number, signal.SIG_DFL)  # under nohup, SIGHUP is ignored, and stays so
    request.addfinalizer(lambda: signal.signal(number, outside))
    with stopping() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert (stop.is_set(), stop.signal) == (True, number)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == signal.SIG_DFL
    assert exit_code(number) == code


def metrics_of(config: RunConfig, place: Place) -> Any:
    """Of the same run, elsewhere and undisturbed."""
    (record,) = schedule([config], Place(Store.open(place.store.path / "undisturbed"), device="cpu")).records
    return record.metrics


@pytest.mark.parametrize(("nth", "tested"), [(1, 0.2), (2, 0.2), (3, 0.2), (1, 0.0)])
def test_a_signal_in_the_final_evaluation_is_heard(nth, tested, place):
    """The first evaluation is the last epoch's, the second the chosen one's, the third that of the held-out split."""
    ending = Watcher(lambda watcher: watcher.details.count("evaluating") == nth)
    first = replace(config(epochs=8), optim=replace(config().optim, lr=0.2))
    first = replace(first, data=replace(first.data, test_fraction=tested))
    outcome = schedule([first, config(1)], place, ending)
    assert (outcome.exit_code, [record.status for record in outcome.records]) == (130, ["interrupted"])
    assert schedule([first], place).records[0].metrics == metrics_of(first, place)


def test_a_signal_while_data_are_read_ends_it(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images(classes=2, each=8)
    place = replace(place, cache_dir=tmp_path / "cache")
    reading = Watcher(lambda watcher: watcher.details, signal.SIGTERM)
    outcome = schedule([config(0, 1, "images"), config(1, 1, "images")], place, reading)
    assert (outcome.exit_code, outcome.records, outcome.unfinished) == (143, (), 2)
    assert len(reading.details) == 1
    assert place.store.ids() == []
    assert not list((tmp_path / "cache").rglob("*partial*"))
    assert schedule([config(0, 1, "images")], place).complete
