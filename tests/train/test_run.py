"""A run from config to record: never twice, resumed bit for bit, killed at any moment."""

import errno
import json
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from made import images
from one_line import fails_in_one_line
from rcad.data.dataset import Dataset, Split
from rcad.errors import InputError
from rcad.loss.method_rows import parse_method
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.files import KEY, NO_SUM, SUM, DamagedError, read_log, seal_tensors
from rcad.runs.plain import config_id, to_toml
from rcad.runs.record import RunRecord, utc_now
from rcad.runs.store import BEFORE, LAST, Store
from rcad.train import checkpoint, machine
from rcad.train import run as engine
from rcad.train.checkpoint import load_tensors, save_tensors
from rcad.train.joined import JoinedUpdate
from rcad.train.loop import Trainer
from rcad.train.place import Place
from rcad.train.run import plan_of, run
from rcad.train.step import Streamed
from rcad.train.stop import Stop
from rcad.train.task import FEW_IMAGES, Reader, as_built, method_of, model_of, prepare
from tiny_runs import CPU, Watcher, essence, same_weights, weights
from workers import started


def small(method: str = "rcad", epochs: int = 3, seed: int = 0, data: str = "digits[:200]") -> RunConfig:
    settings = ("model.width=4", "train.batch_size=32")
    return configure(data, parse_method(method), epochs=epochs, seed=seed, settings=settings)


def test_a_run_leaves_a_record_a_log_and_weights(store):
    record = run(small(), Place(store))
    assert (record, record.status) == (store.get(record.id), "done")
    assert set(record.metrics) >= {"test_accuracy", "test_nll", "test_brier", "val_accuracy", "selected_epoch"}
    assert {name: split.size for name, split in record.splits.items()} == {"train": 180, "validation": 20, "test": 359}
    assert [row["epoch"] for row in read_log(store.log(record.id))] == [1, 2, 3]
    assert record.timings["train_seconds"] > 0
    assert record.versions["torch"].startswith("2.")
    assert not list(store.checkpoint(record.id).glob("*"))
    assert weights(store, record.id)


def test_the_last_epoch_stands_beside_the_selected_one(place):
    config = small("erm", epochs=8)
    config = replace(config, optim=replace(config.optim, lr=0.2))  # so large that the first epochs are the best
    chosen = run(config, place)
    last = run(replace(config, train=replace(config.train, selection="last")), place)
    assert chosen.metrics["selected_epoch"] < 8
    for name in ("accuracy", "nll", "brier"):
        assert chosen.metrics[f"last_{name}"] == last.metrics[f"test_{name}"]
    assert chosen.metrics["last_nll"] != chosen.metrics["test_nll"]
    assert not [name for name in last.metrics if name.startswith("last_")]


def table(path: Path, flip: bool) -> RunConfig:
    rows = [f"{i % 7},{(i % 7 > 3) != (flip and i % 2 == 0)}" for i in range(80)]
    path.write_text("\n".join(["x,y", *rows]))
    return configure({"name": str(path), "target": "y"}, [("erm", ())], epochs=2, settings=["train.batch_size=8"])


def after(questions: int) -> Stop:
    """Asks to stop once it was asked so often."""
    stop, asked = Stop(), iter(range(questions))
    stop.is_set = lambda: next(asked, None) is None  # type: ignore[method-assign]
    return stop


def stopped(config: RunConfig, store: Store, *, saves: int = 3) -> Path:
    """A run that was stopped after so many checkpoints; the newest of them."""
    with patch.object(engine, "SAVING_SHARE", 1e9):
        record = run(config, Place(store, checkpoint_seconds=0.0), stop=after(2 * saves))
    assert record.status == "interrupted"
    return store.checkpoint(record.id) / LAST


def flip(path: Path, at: float = 0.7) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 4
    path.write_bytes(content)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store.open(tmp_path_factory.mktemp("straight"))
    run(small("rcad_random", epochs=2), Place(store))
    return store


@pytest.mark.parametrize("damage", [flip, Path.unlink])
@pytest.mark.parametrize("both", [False, True])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(damage, both, straight, store, caplog):
    config = small("rcad_random", epochs=2)
    last = stopped(config, store)
    for path in (last, last.with_name(BEFORE)) if both else (last,):
        damage(path)
    record = run(config, Place(store))
    assert essence(record) == essence(straight.get(record.id))
    assert same_weights(store, straight, record.id)
    assert read_log(store.log(record.id)) == [dict(row) for row in record.epochs]
    if damage is flip:
        assert len(caplog.messages) == 1 + both
        assert all("; it is kept as " in words for words in caplog.messages)
        assert f", and the run {'starts over' if both else 'goes on after '}" in caplog.messages[-1]
        assert last.with_name(f"{LAST}.aside").exists()


def test_a_checkpoint_of_another_seed_or_of_other_data_is_not_gone_on_with(store, tmp_path, caplog):
    config = table(tmp_path / "d.csv", flip=True)
    other_data = stopped(config, Store.open(tmp_path / "data"))
    table(tmp_path / "d.csv", flip=False)
    other_seed = stopped(replace(config, seed=1), Store.open(tmp_path / "seed"))
    says = {other_seed: f"the checkpoint of run {other_seed.parts[-3]}", other_data: "made from other data"}
    for path in says:
        ours = stopped(config, store)
        path.rename(ours)
        ours.with_name(BEFORE).unlink()
        caplog.clear()
        assert run(config, Place(store)).status == "done"
        assert [says[path] in words and words.endswith("the run starts over") for words in caplog.messages] == [True]
        store.remove(config_id(config))


def test_a_run_goes_on_with_the_threads_it_began_with(tmp_path, request):
    """Of two threads the sums differ from those of one. Tiny problems take one, and give the rest back."""
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    config = configure("digits[:64]", [("erm", ())], epochs=1, settings=("model.width=32", "train.batch_size=8"))
    tiny, two, mixed, one = (Store.open(tmp_path / name) for name in ("tiny", "two", "mixed", "one"))
    torch.set_num_threads(2)
    devices = [run(small(epochs=1), Place(tiny)).device]
    assert torch.get_num_threads() == 2
    with patch.object(machine, "SMALL_IMAGE", 4):
        for store, first, then in ((two, 2, 2), (mixed, 2, 1), (one, 1, 1)):
            torch.set_num_threads(first)
            stopped(config, store)
            torch.set_num_threads(then)
            devices.append(run(config, Place(store)).device)
            assert torch.get_num_threads() == then
    assert devices == ["CPU, 1 thread", "CPU, 2 threads", "CPU, 2 threads", "CPU, 1 thread"]
    assert same_weights(mixed, two, config_id(config))
    assert not same_weights(one, two, config_id(config))


def test_runs_in_threads_are_those_made_one_by_one(tmp_path):
    configs = [small("rcad_random", epochs=1, seed=seed) for seed in range(4)]
    configs = [replace(config, model=replace(config.model, dropout=0.5)) for config in configs]  # draws at every step
    before, stores = torch.get_rng_state(), [Store.open(tmp_path / name) for name in ("alone", "together")]
    for store, workers in zip(stores, (1, 4), strict=True):
        with ThreadPoolExecutor(workers) as pool:
            assert len(list(pool.map(lambda config, store=store: run(config, Place(store)), configs))) == 4
    assert torch.equal(torch.get_rng_state(), before)
    assert same_weights(*stores, *map(config_id, configs))


def test_a_batch_that_leaves_batch_norm_one_number_a_channel_is_one_line(place):
    settings = ["model.name=resnet18", "model.width=4", "train.batch_size=50", "data.validation=0.15"]
    with fails_in_one_line("expected several numbers ", "but got a batch of 1 example; take another"):
        run(configure("digits[:60]", [("erm", ())], epochs=1, settings=settings), place)


WORKER = """
import os, signal, sys
import sklearn.datasets, torch._dynamo
from rcad.runs.plain import load_config
from rcad.runs.store import Store
from rcad.train import run as engine
from rcad.train.place import Place
from rcad.train.step import Stepper
config, store, *moments = sys.argv[1:]
engine.SAVING_SHARE = 1e9  # a checkpoint after every step
for moment in moments:  # each in a process of its own, which has everything imported
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        continue
    kind, _, left = moment.partition(" ")
    home, name, left = {"step": (Stepper, "step"), "write": (os, "replace")}[kind] + ([int(left)],)
    original = getattr(home, name)
    def counted(*words, **options):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*words, **options)
    setattr(home, name, counted)
    engine.run(load_config(config), Place(Store.open(store), checkpoint_seconds=0.0))
    os._exit(1)
"""


@pytest.mark.slow
def test_kills_at_any_moment_change_nothing(tmp_path):
    """Killed before a step or in the middle of a write and started again: the same weights and one record."""
    chance, config, path = random.Random(0), small("rcad_random", epochs=10), tmp_path / "run.toml"
    path.write_text(to_toml(config))
    moments = [f"{moment} {chance.randint(3, 15)}" for moment in ("step", "write") * 2]
    assert started(WORKER, path, tmp_path / "runs", *moments, copied=True)() == 0
    store, plain = (Store.open(tmp_path / name) for name in ("runs", "whole"))
    assert (store.ids(), store.status(config)) == ([config_id(config)], "interrupted")
    record = run(config, Place(store))
    assert essence(record) == essence(run(config, Place(plain)))
    assert same_weights(store, plain, record.id)
    logged = [row["epoch"] for row in read_log(store.log(record.id))]
    assert logged == sorted(set(logged))


def test_a_run_says_its_network_its_numbers_its_device_and_its_steps(place):
    watcher, config = Watcher(), configure("digits[:60]", parse_method("rcad(alpha=0.05)"), epochs=2)
    run(config, place, watcher)
    (line,) = [note for note in watcher.notes if "parameters" in note]
    assert line.startswith("SmallCNN, 89,933 parameters; rcad(alpha=0.05, lam=0.1); CPU, ")
    assert line.endswith("; 2 epochs of 2 steps")
    assert plan_of(config, place)[0] == line
    for words in ("alpha=0.05 is far below ", "only 6 validation examples, so few that "):
        assert any(note.startswith(words) for note in watcher.notes)


@pytest.mark.parametrize(
    ("side", "count", "network"),
    [(28, 40, "SmallCNN"), (32, FEW_IMAGES, "SmallCNN"), (33, 40, "ResNet"), (28, FEW_IMAGES + 1, "ResNet")],
)
def test_few_small_images_get_the_small_network(side, count, network):
    asked = configure("d", parse_method("erm"), settings=["train.selection=last", "data.validation=0"])
    train = Split(np.broadcast_to(np.uint8(0), (count, 1, side, side)), np.arange(count) % 2)
    data = Dataset("d", "classification", train, test=Split(train.x[:4], train.y[:4]), classes=("a", "b"))
    assert type(model_of(asked, prepare(asked, data, CPU))).__name__ == network


def test_a_finished_run_keeps_the_network_it_was_made_with():
    record = RunRecord(config=small(), status="running", started=utc_now(), resolved={"model": "ResNet, 11 parameters"})
    assert as_built(record).model.name == "resnet18"
    assert as_built(replace(record, resolved={})).model.name == "auto"


# From here on images stay on disk: the weights, records and resumes are those of runs whose images lie in memory.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    images(str(root / "train"), classes=10, each=14)
    images(str(root / "val"), classes=10, each=4)
    return root


def config_of(folder: Path, method: str = "rcad") -> RunConfig:
    settings = ["model.width=4", "train.batch_size=16", "optim.lr=0.01", "model.norm=batch"]
    return configure(str(folder), parse_method(method), epochs=3, settings=settings)


@pytest.fixture
def streamed(place: Place, tmp_path: Path) -> Place:
    return replace(place, cache_dir=tmp_path / "cache", stream=True)


@pytest.fixture
def memory(streamed: Place) -> Place:
    return replace(streamed, store=Store.open(streamed.store.path.with_name("memory")), stream=False)


@pytest.mark.parametrize("method", ["rcad", "cutmix", "data_augmentation"])
def test_the_weights_are_those_of_a_run_in_memory(folder, streamed, memory, method):
    config = config_of(folder, method)
    first, second = run(config, streamed), run(config, memory)
    assert (first.id, first.metrics) == (second.id, second.metrics)
    assert first.metrics["test_top5"] >= first.metrics["test_accuracy"]
    assert same_weights(streamed.store, memory.store, first.id)
    # Either way finds the other's record.
    assert run(config, replace(memory, store=streamed.store)) == first
    assert run(config, replace(streamed, store=memory.store)) == second


def test_a_run_that_stops_in_mid_epoch_goes_on_at_the_next_example(folder, streamed, monkeypatch):
    config = config_of(folder, "rcad(alpha=1.0, lam=0.1)")
    straight = replace(streamed, store=Store.open(streamed.store.path.with_name("straight")))
    whole = run(config, straight)
    monkeypatch.setattr("rcad.train.run.low_alpha", lambda *_: [])  # looks at a few images at every start
    stops = 0
    while (record := run(config, replace(streamed, checkpoint_seconds=0.0), stop=after(5))).status == "interrupted":
        stops += 1
    assert stops > 3
    assert record.metrics == whole.metrics
    assert same_weights(streamed.store, straight.store, whole.id)


def test_files_that_changed_are_other_data(folder, streamed, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    run(config_of(copy, "erm"), streamed)
    next((copy / "train" / "class1").glob("*.png")).unlink()
    with pytest.raises(InputError, match=r"^expected the data that run .* was made from, but .* has changed since"):
        run(config_of(copy, "erm"), streamed)


def test_examples_that_were_not_expected_come_all_the_same(folder, streamed, memory):
    config = config_of(folder)
    x, expected = (prepare(config, Reader(place)(config.data), CPU).train[0] for place in (streamed, memory))
    assert isinstance(x, Streamed)
    x.expect(torch.arange(40).split(8))
    for index in (torch.arange(8), torch.tensor([3, 50, 3]), torch.arange(16, 24)):
        assert torch.equal(x[index], expected[index])


def test_what_takes_images_in_memory_is_refused(folder, streamed):
    with fails_in_one_line("for its images are streamed from disk, but got 'me_ada'"):
        run(config_of(folder, "me_ada"), streamed)
    config = config_of(folder)
    problem = prepare(config, Reader(streamed)(config.data), CPU)
    trainer = Trainer(config, problem, method_of(config, problem), model_of(config, problem), engine="graph")
    assert trainer.stepper.name == "eager", "its steps are not captured"
    with fails_in_one_line("expected images in memory to join runs, but these are streamed from disk"):
        JoinedUpdate([trainer.stepper.update] * 2)


@pytest.mark.gpu
def test_on_a_gpu_they_are_those_of_eager_steps_in_memory(folder, streamed, memory):
    config = config_of(folder)
    config = replace(config, train=replace(config.train, deterministic=True))
    record = run(config, replace(streamed, device="cuda"))
    run(config, replace(memory, device="cuda", engine="eager"))
    assert same_weights(streamed.store, memory.store, record.id)


def test_a_header_that_is_not_ours_is_refused_in_one_line(tmp_path):
    path = tmp_path / "file"
    for content, message in (
        ({"version": "2", "meta": {}}, "expected a checkpoint of version 1 in .*, but got '2'"),
        ({"version": "1"}, "expected .* to be whole, but got: 'meta'; remove it to start over"),
        ({"version": "1", "meta": []}, "expected .* to be whole, but got: no table beside its tensors; remove .*"),
        ({}, "expected .* to be whole, but got: its bytes are not those that were written; remove .*"),
    ):
        save_file({"a": torch.ones(3)}, path, metadata={KEY: json.dumps({SUM: NO_SUM, **content})} if content else {})
        if content:
            seal_tensors(path)
        with fails_in_one_line(match=rf"^{message}$"):
            load_tensors(path)


def test_a_full_disk_is_told_in_one_line_and_costs_nothing(tmp_path, monkeypatch):
    path, full = tmp_path / "file", SafetensorError("I/O error: No space left on device (os error 28)")
    save_tensors(path, {"a": torch.ones(3)}, {"epoch": 1})
    monkeypatch.setattr(checkpoint, "save_file", Mock(side_effect=full))
    with fails_in_one_line(match=r"^expected .*file to be writable, but got: .*No space left on device.*; check"):
        save_tensors(path, {"a": torch.zeros(3)}, {"epoch": 2})
    assert load_tensors(path)[1] == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_flipped_bit_in_any_byte_is_found(tmp_path):
    path = tmp_path / "file"
    save_tensors(path, {"a": torch.randn(20), "b": torch.tensor(3)}, {"epoch": 3, "rows": [{"loss": 0.5}]})
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(DamagedError, match=r"^expected .*file to be whole, but got: .*; remove it to start over$"):
            load_tensors(path)
    path.write_bytes(content)
    assert load_tensors(path)[1]["epoch"] == 3


def test_others_may_read_weights_as_the_umask_allows(tmp_path, monkeypatch):
    path, previous = tmp_path / "file", os.umask(0o027)
    save_tensors(path, {"a": torch.ones(3)}, {})
    os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o640
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    with fails_in_one_line(match=r"^expected .*file to be a readable file, but got: Permission denied; .*a\+r"):
        load_tensors(path)  # which does not call it damaged
