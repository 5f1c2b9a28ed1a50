"""One run by several processes: the weights, the numbers and the resumes of one process."""

import functools
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from made import images
from rcad.errors import InputError
from rcad.loss.method_rows import parse_method
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.plain import config_id
from rcad.runs.store import Store
from rcad.train.cluster.ranks import connected, launch, make_together
from rcad.train.loop import Trainer
from rcad.train.place import Place
from rcad.train.progress import SILENT
from rcad.train.run import run
from rcad.train.step import Ranks
from rcad.train.stop import Interrupted
from tiny_runs import weights
from workers import in_ranks

FEW, WHOLE = ["model.width=4", "optim.name=sgd", "optim.lr=0.05"], ["model.norm=batch"]
# The method, how many examples the last batch has, and settings.
CASES: dict[str, tuple[str, int, list[str]]] = {
    "erm, GroupNorm": ("erm", 1, ["model.norm=group"]),
    "rcad, GroupNorm": ("rcad", 1, ["model.norm=group", "train.accumulate=2", "optim.clip=1.0"]),
    "mixup + rcad, SyncBatchNorm": ("mixup + rcad", 1, WHOLE),
    "rcad, SyncBatchNorm": ("rcad", 2, [*WHOLE, "train.ema=0.9"]),
    "a random direction": ("data_augmentation + rcad_random", 3, WHOLE),
}


def config_of(case: str, epochs: int = 2) -> RunConfig:
    """10 steps an epoch, the last of a few examples: fewer than there are processes, or one for each."""
    method, last, settings = CASES[case]
    few = [*FEW, "train.batch_size=20", "data.validation=0.245", "optim.schedule=constant"]
    return configure(f"digits[:{239 + last}]", parse_method(method), epochs=epochs, settings=[*few, *settings])


def streamed_config(folder: Path) -> RunConfig:
    """The same of class folders of images, which each process reads for itself."""
    few = [*FEW, *WHOLE, "train.batch_size=16"]
    return configure(str(folder), parse_method("data_augmentation + rcad"), epochs=2, settings=few)


def place_in(folder: Path, **more: Any) -> Place:
    return Place(Store.open(folder), device="cpu", **more)


def assert_alike(place: Place, alone: Place, config: RunConfig) -> None:
    several, single = (weights(where.store, config_id(config)) for where in (place, alone))
    torch.testing.assert_close(several, single, rtol=1e-4, atol=2e-5)


PROGRAM = """
import sys
from train import test_ranks as these
getattr(these, sys.argv[1])(*sys.argv[2:-1])
"""


def runs_in_a_rank(name: str) -> None:
    torch.set_num_threads(1)
    place = place_in(folder := Path(name))
    streaming = place_in(folder, stream=True, cache_dir=folder.with_name("cache"))
    with connected(torch.device("cpu")) as ranks:
        make = functools.partial(make_together, ranks, progress=SILENT, minutes=None)
        assert make(streamed_config(folder.with_name("images")), streaming).complete
        for config in map(config_of, CASES):
            assert make(config, place).complete
        assert make(config, place).already == {config_id(config)}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The runs of one process, beside the images."""
    folder = tmp_path_factory.mktemp("alone")
    images(str(folder / "images" / "train"), classes=3, each=27)
    images(str(folder / "images" / "val"), classes=3, each=7)
    place = place_in(folder / "runs")
    for config in [*map(config_of, CASES), streamed_config(folder / "images")]:
        run(config, place)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_end_with_the_weights_of_one(alone, size):
    several = place_in(alone.store.path.with_name(f"by {size}"))
    in_ranks(size, PROGRAM, "runs_in_a_rank", several.store.path)
    for case in CASES:
        config = config_of(case)
        wanted, found = alone.store.get(config_id(config)), several.store.get(config_id(config))
        assert wanted.splits["train"].size % 20 == CASES[case][1]
        assert_alike(several, alone, config)
        assert found.resolved == {**wanted.resolved, "engine": f"eager, {size} processes"}
        assert found.metrics == pytest.approx(dict(wanted.metrics), rel=1e-3, abs=1e-4), case
        for one, other in zip(found.epochs, wanted.epochs, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
            assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.6)
    assert_alike(several, alone, streamed_config(alone.store.path.with_name("images")))
    assert len(several.store.records()) == len(CASES) + 1


def norms_in_a_rank() -> None:
    torch.set_num_threads(1)
    with connected(torch.device("cpu")) as ranks:
        for count in range(2, 2 * ranks.size + 1):
            for side in (1, 2):  # one number a channel and example, and a few
                draw = torch.Generator().manual_seed(count)
                x, up = torch.randn(2, count, 3, side, side, dtype=torch.float64, generator=draw)
                mine = ranks.part(count)
                alone, layer = torch.nn.BatchNorm2d(3).double(), torch.nn.BatchNorm2d(3).double()
                ranks.prepare_model(layer)
                layer.has_all = count < ranks.size  # type: ignore[assignment]
                whole, part = x.clone().requires_grad_(), x[mine].clone().requires_grad_()
                alone(whole).backward(up)
                layer(part).backward(up[mine])
                torch.testing.assert_close(part.grad, whole.grad[mine], rtol=1e-9, atol=1e-11)
                for name, buffer in alone.named_buffers():
                    torch.testing.assert_close(layer.get_buffer(name), buffer, rtol=1e-11, atol=1e-13)
                for name, weight in alone.named_parameters():
                    gradient = layer.get_parameter(name).grad
                    summed = gradient if count < ranks.size else ranks.summed(gradient)
                    torch.testing.assert_close(summed, weight.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("size", [2, 3])
def test_batch_norm_over_parts_of_one_example_is_that_over_the_batch(size):
    in_ranks(size, PROGRAM, "norms_in_a_rank")


def in_second_epoch(monkeypatch: pytest.MonkeyPatch, folder: Path, rank: str, act: Callable[[], object]) -> Mock:
    """Has a process of this rank do something, once, when the second epoch begins.

    Gives what torch's launcher calls to end who has not ended in the time that it was given.
    """
    run_steps, once, by_force = Trainer._run_steps, folder / "once", Mock(return_value=signal.SIGKILL)

    def acting(self: Trainer, pause: Any) -> Any:
        if self.epoch == 1 and os.environ.get("RANK") == rank and not once.exists():
            once.touch()
            act()
        return run_steps(self, pause)

    monkeypatch.setattr(Trainer, "_run_steps", acting)
    monkeypatch.setattr("torch.distributed.elastic.multiprocessing.api._get_kill_signal", by_force)
    return by_force


@pytest.mark.slow
def test_a_killed_process_ends_all_and_another_number_goes_on(alone, tmp_path, forked, monkeypatch, caplog):
    by_force = in_second_epoch(monkeypatch, tmp_path, "1", lambda: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr(logging.getLogger("torch"), "propagate", True)
    config = config_of("rcad, SyncBatchNorm")
    place = place_in(tmp_path / "runs", devices=("cpu",) * 2, checkpoint_seconds=0.0)
    with pytest.raises(InputError, match=r"expected all 2 processes to go on, but one has ended.*process 1.*-9"):
        launch(config, place, minutes=None, quiet=True, as_json=False)
    by_force.assert_not_called()
    assert caplog.messages == []  # the error is the one line
    record = place.store.get(config_id(config))
    assert record.status == "interrupted"
    outcome = launch(config, replace(place, devices=("cpu",) * 3), minutes=None, quiet=True, as_json=False)
    assert outcome.complete
    found = place.store.get(config_id(config))
    assert (found.started, found.resolved["engine"]) == (record.started, "eager, 3 processes")
    assert_alike(place, alone, config)


@pytest.mark.slow
def test_a_signal_ends_all_processes_as_soon_as_they_have_saved(tmp_path, forked, monkeypatch):
    by_force = in_second_epoch(monkeypatch, tmp_path, "0", lambda: os.kill(os.getppid(), signal.SIGTERM))
    config, place = config_of("erm, GroupNorm", epochs=10_000), place_in(tmp_path / "runs", devices=("cpu",) * 2)
    with pytest.raises(Interrupted, match="stopped; the same command goes on"):
        launch(config, place, minutes=None, quiet=True, as_json=False)
    by_force.assert_not_called()
    record = place.store.get(config_id(config))
    assert (record.status, record.message[:25]) == ("interrupted", "stopped between two steps")


def test_parts_cover_a_batch_once_and_differ_by_one():
    for size in (2, 3, 8):
        for count in (8, 20, 43):
            parts = [Ranks(rank, size).part(count) for rank in range(size)]
            assert [row for part in parts for row in range(count)[part]] == list(range(count))
            assert max(p.stop - p.start for p in parts) - min(p.stop - p.start for p in parts) <= 1
        assert Ranks(size - 1, size).part(1) == slice(0, 1)  # everybody has it
        rows = [Ranks(rank, size).rows(9000, 1024) for rank in range(size)]
        assert [row for part in rows for row in range(9000)[part]] == list(range(9000))
        assert all(part.start % 1024 == 0 for part in rows)
