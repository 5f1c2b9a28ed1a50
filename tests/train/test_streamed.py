"""Runs whose images stay on disk: the weights, records and resumes of runs whose images lie in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rcad.data.streams import Stream
from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.store import Store
from rcad.train.joined import JoinedUpdate
from rcad.train.loop import Trainer
from rcad.train.place import Place
from rcad.train.run import run
from rcad.train.step import Streamed
from rcad.train.stop import Stop
from rcad.train.task import Reader, method_of, model_of, prepare
from tiny_runs import CPU, same_weights

SETTINGS = ("model.width=4", "train.batch_size=16", "optim.lr=0.01", "model.norm=batch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of digits, train/ and val/."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    root = tmp_path_factory.mktemp("digits")
    for k in range(180):
        path = root / ("val" if k % 5 == 4 else "train") / f"{digits.target[k]}"
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[k] * 15).astype("uint8")).save(path / f"{k}.png")
    return root


def config_of(folder: Path, method: str = "rcad") -> RunConfig:
    return configure(str(folder), [(method, ())], epochs=3, settings=SETTINGS)


@pytest.fixture
def streamed(tmp_path: Path) -> Place:
    """A place where images stay on disk."""
    return Place(Store.open(tmp_path / "streamed"), cache_dir=tmp_path / "cache", device="cpu", stream=True)


@pytest.fixture
def memory(streamed: Place) -> Place:
    return replace(streamed, store=Store.open(streamed.store.path.with_name("memory")), stream=False)


@pytest.mark.parametrize("method", ["rcad", "cutmix", "data_augmentation"])
def test_the_weights_are_those_of_a_run_in_memory(folder: Path, streamed: Place, memory: Place, method: str) -> None:
    config = config_of(folder, method)
    first, second = run(config, streamed), run(config, memory)
    assert first.id == second.id
    assert first.metrics == second.metrics
    assert first.metrics["test_top5"] >= first.metrics["test_accuracy"]
    assert same_weights(streamed.store, memory.store, first.id)
    assert first.data_sha256.startswith("files:")
    # Either way finds the other's record.
    assert run(config, replace(memory, store=streamed.store)) == first
    assert run(config, replace(streamed, store=memory.store)) == second


def test_a_run_that_stops_in_mid_epoch_goes_on_at_the_next_example(
    folder: Path, streamed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config_of(folder), method=(("rcad", (("alpha", 1.0), ("lam", 0.1))),))
    straight = replace(streamed, store=Store.open(streamed.store.path.with_name("straight")))
    whole = run(config, straight)
    monkeypatch.setattr("rcad.train.run.low_alpha", lambda *_: [])  # looks at a few images at every start
    stops, calls = 0, []
    for kind, name in ((Streamed, "expect"), (Streamed, "split"), (Stream, "batches")):
        monkeypatch.setattr(kind, name, _counted(getattr(kind, name), name, calls))
    while (record := run(config, replace(streamed, checkpoint_seconds=0.0), stop=_after(5))).status == "interrupted":
        stops += 1
    assert stops > 3
    # Nothing was decoded that had not been expected, also where an epoch went on.
    assert calls.count("batches") == calls.count("expect") + calls.count("split") > stops
    assert record.metrics == whole.metrics
    assert same_weights(streamed.store, straight.store, whole.id)


def _counted(function: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls.append(name)
        return function(*arguments)

    return call


def _after(questions: int) -> Stop:
    """Asks to stop once it was asked so often."""
    stop = Stop()
    asked = iter(range(questions))
    stop.is_set = lambda: next(asked, None) is None  # type: ignore[method-assign]
    return stop


def test_files_that_changed_are_other_data(folder: Path, streamed: Place, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    run(config_of(copy, "erm"), streamed)
    next((copy / "train" / "1").glob("*.png")).unlink()
    with pytest.raises(InputError, match=r"^expected the data that run .* was made from, but .* has changed since"):
        run(config_of(copy, "erm"), streamed)


def test_examples_that_were_not_expected_come_all_the_same(folder: Path, streamed: Place, memory: Place) -> None:
    config = config_of(folder)
    x, expected = (prepare(config, Reader(place)(config.data), CPU).train[0] for place in (streamed, memory))
    assert isinstance(x, Streamed)
    x.expect(torch.arange(40).split(8))
    for index in (torch.arange(8), torch.tensor([3, 50, 3]), torch.arange(16, 24)):
        assert torch.equal(x[index], expected[index])


def test_what_takes_images_in_memory_is_refused(folder: Path, streamed: Place) -> None:
    config = replace(config_of(folder), method=(("me_ada", ()),))
    words = "leaves the training set as it is, for its images are streamed from disk, but got 'me_ada'"
    with pytest.raises(InputError, match=words):
        run(config, streamed)


def test_runs_are_not_joined_and_steps_are_not_captured(folder: Path, streamed: Place) -> None:
    config = config_of(folder)
    problem = prepare(config, Reader(streamed)(config.data), CPU)
    trainer = Trainer(config, problem, method_of(config, problem), model_of(config, problem), engine="graph")
    assert trainer.stepper.name == "eager"
    with pytest.raises(InputError, match="expected images in memory to join runs, but these are streamed from disk"):
        JoinedUpdate([trainer.stepper.update] * 2)


@pytest.mark.gpu
def test_on_a_gpu_they_are_those_of_eager_steps_in_memory(folder: Path, streamed: Place, memory: Place) -> None:
    config = config_of(folder)
    config = replace(config, train=replace(config.train, deterministic=True))
    record = run(config, replace(streamed, device="cuda"))
    run(config, replace(memory, device="cuda", engine="eager"))
    assert same_weights(streamed.store, memory.store, record.id)
