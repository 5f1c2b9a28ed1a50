"""Trackers are told of every run once, whoever made it; one that fails costs a line and no run."""

import json
import math
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from made import png
from one_line import fails_in_one_line
from rcad.errors import InputError, MissingExtraError
from rcad.loss.method_rows import parse_method
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.record import RunRecord
from rcad.train import scheduler, trackers
from rcad.train.place import Place
from rcad.train.scheduler import schedule
from rcad.train.trackers import TRACKERS, Subject, Tracked, parse_trackers, track_study
from tiny_runs import Watcher


def config(epochs: int = 3, seed: int = 0) -> RunConfig:
    return configure("digits[:60]", parse_method("erm"), epochs=epochs, seed=seed)


class Heard:
    """A tracker that keeps what it is told; `fails` names what it cannot do."""

    calls: list[tuple[Any, ...]] = []  # noqa: RUF012
    fails = ""

    def __init__(self, subject: Subject) -> None:
        self._id = subject.id
        self._tell("open", subject.name, subject.kind)

    @staticmethod
    def address() -> str:
        return os.environ.get("HEARD", "")

    def _tell(self, what: str, *words: Any) -> None:
        if what == self.fails:
            raise OSError("the server\nis away")
        self.calls.append((what, self._id, *words))

    def log(self, step: int, row: dict[str, Any]) -> None:
        self._tell("log", step, dict(row))

    def finish(self, status: str, numbers: dict[str, Any], files: Sequence[Path]) -> None:
        self._tell("finish", status, dict(numbers), [file.name for file in files if file.is_file()])


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Heard]:
    monkeypatch.setitem(TRACKERS, "heard", Heard)
    monkeypatch.setattr(Heard, "calls", [])
    monkeypatch.setattr(Tracked, "failed", set())
    monkeypatch.setattr(trackers, "LOOK_S", 0.0)
    monkeypatch.setattr(scheduler, "SHOW_S", 0.0)
    monkeypatch.setenv("RCAD_CACHE", str(tmp_path / "cache"))
    return Heard


@pytest.fixture
def tracked(place: Place) -> Place:
    return replace(place, track=("heard",))


def steps(calls: Sequence[tuple[Any, ...]], run: str | None = None) -> list[int]:
    return [call[2] for call in calls if call[0] == "log" and run in (None, call[1])]


def test_a_run_is_told_epoch_by_epoch_while_it_goes_on_and_then_its_end(tracked, heard):
    seen: list[list[int]] = []
    (record,) = schedule([config()], tracked, Watcher(lambda watcher: seen.append(steps(heard.calls)))).records
    assert [1] in seen
    first, *rows, last = heard.calls
    assert first == ("open", record.id, "erm on digits[:60], seed 0", "run")
    assert [row[3] for row in rows] == [dict(row) for row in record.epochs]
    assert (last[2], last[3]["test_accuracy"]) == ("done", record.metrics["test_accuracy"])
    # The curve of that name is of the epochs.
    assert last[3]["selected_val_nll"] == record.metrics["val_nll"]
    assert "val_nll" not in last[3]
    assert last[4] == ["record.json", "config.toml"]


def test_what_was_told_is_not_told_again_unless_nobody_can_tell_or_at_a_new_address(place, tracked, heard, monkeypatch):
    schedule([config()], place)
    schedule([config()], tracked)  # it had been finished before anybody asked for a tracker
    first = list(heard.calls)
    assert (steps(first), first[-1][2]) == ([1, 2, 3], "done")
    schedule([config()], tracked)
    assert heard.calls == first
    monkeypatch.setenv("HEARD", "elsewhere")
    schedule([config()], tracked)
    assert heard.calls == first * 2
    (sent,) = place.store.path.glob(f"*/{trackers.SENT}")
    for number, text in enumerate(("[]", '{"heard elsewhere": 3}', '{"heard elsewhere": {"step": "1"}}', "{"), 3):
        sent.write_text(text)
        schedule([config()], tracked)
        assert heard.calls == first * number


@pytest.mark.parametrize("what", ["open", "log", "finish"])
def test_a_tracker_that_fails_costs_one_line_and_no_run(what, tracked, heard, monkeypatch, caplog):
    monkeypatch.setattr(heard, "fails", what)
    configs = [config(seed=seed) for seed in (0, 1)]
    found = schedule(configs, tracked)
    assert [record.status for record in found.records] == ["done", "done"]
    assert caplog.messages == ["heard failed and is left out (the server is away); the same command tells it again"]
    monkeypatch.setattr(heard, "fails", "")
    monkeypatch.setattr(Tracked, "failed", set())
    schedule(configs, tracked)
    for record in found.records:
        assert steps(heard.calls, record.id) == [1, 2, 3]
        assert [one[2] for one in heard.calls if one[:2] == ("finish", record.id)] == ["done"]


def test_a_full_disk_or_a_damaged_log_is_not_the_observers_to_tell(tracked, heard, monkeypatch):
    monkeypatch.setattr(trackers, "write_text", Mock(side_effect=InputError("expected space on the disk")))
    monkeypatch.setattr(trackers, "read_log", Mock(side_effect=InputError("expected an object")))
    assert schedule([config()], tracked).records[0].status == "done"
    assert steps(heard.calls) == [1, 2, 3]


def test_a_study_goes_on_while_its_config_is_the_same(tmp_path, heard):
    rows = [{"trial": 1, "nll": 0.5}, {"trial": 2, "nll": None, "brier": math.nan}, {"nll": 0.1}, {"trial": "x"}]
    for count in (1, 2, 4):
        config, results = {"data": "digits"}, {"trials": count, "nll": math.inf}
        track_study(("heard",), "tune", "a search", tmp_path, config, results, [], rows=rows[:count])
    assert [one[2:] for one in heard.calls if one[0] == "log"] == [(1, {"trial": 1, "nll": 0.5}), (2, {"trial": 2})]
    assert [one[3] for one in heard.calls if one[0] == "finish"] == [{"trials": float(count)} for count in (1, 2, 4)]
    assert len({one[1] for one in heard.calls}) == 1


def test_names_are_checked_before_anything_runs(monkeypatch):
    assert parse_trackers("heard, heard") == ("heard",)
    assert parse_trackers(None) == parse_trackers("") == ()
    with fails_in_one_line("--track to be one of wandb, mlflow, tensorboard, ", "did you mean 'wandb'"):
        parse_trackers("wandbb")
    folder = type(sys)("wandb")  # a folder called wandb, which an earlier run left, is not the package
    for module, found in (("wandb", None), ("wandb", folder), ("mlflow", None), ("torch.utils.tensorboard", None)):
        monkeypatch.setitem(sys.modules, module, found)
        name = module.rpartition(".")[2]
        with pytest.raises(MissingExtraError, match=rf"\[{name}\]"):
            parse_trackers(name)


def twice(place: Place, name: str) -> RunRecord:
    """A run that was stopped and went on, tracked; and told once more by a third call."""
    place = replace(place, track=(name,))
    in_the_middle = Watcher(lambda watcher: watcher.shares and watcher.done >= 0.5 * watcher.shares[-1][1])
    schedule([config(epochs=4)], place, in_the_middle)
    (record,) = schedule([config(epochs=4)], place).records
    schedule([config(epochs=4)], place)
    assert record.status == "done"
    return record


def study(tmp_path: Path, name: str) -> None:
    """A study with a picture and a record."""
    files, results = [tmp_path / "map.png", tmp_path / "tune.json"], {"rcad(alpha=1)/nll": 0.25}
    files[0].write_bytes(png())
    files[1].write_text('{"best": 1}')
    track_study((name,), "tune", "a search", tmp_path, {"data": "digits"}, results, files, rows=[{"trial": 1}])


@pytest.fixture
def no_failure(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record.getMessage() for record in caplog.records if record.name == "rcad"]


@pytest.mark.usefixtures("no_failure")
def test_tensorboard_event_files(place, tmp_path):
    pytest.importorskip("torch.utils.tensorboard", reason="needs the extra tensorboard", exc_type=ImportError)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = twice(place, "tensorboard")
    found = EventAccumulator(str(tmp_path / "runs" / record.id / "tensorboard")).Reload()
    points = [(one.step, one.value) for one in found.Scalars("loss")]
    assert [step for step, _ in points] == [1, 2, 3, 4]
    assert [value for _, value in points] == pytest.approx([row["loss"] for row in record.epochs])
    assert [one.value for one in found.Scalars("test_nll")] == pytest.approx([record.metrics["test_nll"]])
    assert {"config/text_summary", "record.json/text_summary"} <= set(found.Tags()["tensors"])
    study(tmp_path, "tensorboard")
    (folder,) = (tmp_path / "tracking").glob("*/tensorboard")
    assert EventAccumulator(str(folder)).Reload().Tags()["images"] == ["map"]


@pytest.mark.usefixtures("no_failure")
def test_mlflow_file_store(place, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    record = twice(place, "mlflow")
    study(tmp_path, "mlflow")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("rcad")
    runs = {one.data.tags["rcad.id"]: one for one in client.search_runs([experiment.experiment_id])}
    run = runs.pop(record.id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "erm on digits[:60], seed 0")
    assert run.data.params["train.epochs"] == "4"
    history = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "loss")]
    assert history == [(number, row["loss"]) for number, row in enumerate(record.epochs, 1)]
    assert run.data.metrics["test_nll"] == record.metrics["test_nll"]
    assert {one.path for one in client.list_artifacts(run.info.run_id)} == {"record.json", "config.toml"}
    (search,) = runs.values()
    assert search.data.metrics["rcad_alpha_1_/nll"] == 0.25
    assert {one.path for one in client.list_artifacts(search.info.run_id)} == {"map.png", "tune.json"}


@pytest.mark.usefixtures("no_failure")
def test_wandb_offline(place, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    for key, value in (("MODE", "offline"), ("DIR", str(tmp_path)), ("CACHE_DIR", str(tmp_path / "cache"))):
        monkeypatch.setenv(f"WANDB_{key}", value)
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staging"))
    record = twice(place, "wandb")
    study(tmp_path, "wandb")
    files = sorted((tmp_path / "wandb").glob(f"offline-run-*-{record.id}/*.wandb"))
    assert len(files) == 2  # one for each time it was at work, under one id
    said = [one for file in files for one in wandb_records(file)]
    run = next(one.run for one in said if one.HasField("run"))
    assert (run.run_id, run.project, run.display_name) == (record.id, "rcad", "erm on digits[:60], seed 0")
    sections = {one.key: json.loads(one.value_json) for one in run.config.update}
    assert sections["train"]["epochs"] == 4
    items = [item for one in said for item in one.history.item]
    losses = [json.loads(item.value_json) for item in items if "loss" in (item.key, *item.nested_key)]
    assert losses == [row["loss"] for row in record.epochs]
    summary = {one.key: one.value_json for each in said if each.HasField("summary") for one in each.summary.update}
    assert json.loads(summary["test_nll"]) == record.metrics["test_nll"]
    artefact = [one.artifact for one in said if one.HasField("artifact")][-1]
    assert {one.path for one in artefact.manifest.contents} == {"record.json", "config.toml"}
    (search,) = (tmp_path / "wandb").glob("offline-run-*-tune-*/*.wandb")
    assert any("image-file" in one.value_json for each in wandb_records(search) for one in each.history.item)


def wandb_records(path: Path) -> Iterator[Any]:
    """The messages of a .wandb file: a header of 7 bytes, then pieces in blocks of 32 kB."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (room := 32768 - at % 32768) < 7:
            at += room
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""
