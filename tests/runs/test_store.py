import itertools
import os
from datetime import timedelta
from unittest.mock import Mock

import pytest

from one_line import fails_in_one_line
from rcad.errors import InputError
from rcad.runs import locks
from rcad.runs.plain import config_id
from rcad.runs.store import LOCK, RECORD, Store, prune
from runs.conftest import CONFIG, HOLD, make_record, started


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE_S", 0.1)
    return Store.open(tmp_path / "runs")


def test_writes_reads_and_removes(store):
    records = [make_record(seed=seed, started=f"2024-01-31T12:00:0{9 - seed}+00:00") for seed in range(3)]
    for record in records:
        store.write(record)
    assert store.records() == records[::-1]
    assert store.get(records[1].id) == store.get(records[1].id[:6]) == records[1]
    assert store.config(records[1].id[:6]) == records[1].config
    assert sorted(path.name for path in store.folder(records[0].id).iterdir()) == ["config.toml", LOCK, RECORD]
    store.remove(records[0].id)
    assert store.records() == records[:0:-1]


def test_status(store):
    record = make_record(status="running", finished=None)
    assert store.status(record.config) == "new"
    with store.lock(record.config):
        assert store.status(record.config) == "new"
        store.write(record)
        assert store.status(record.config) == "running"
    assert store.status(record.config) == "interrupted"
    assert store.get(record.id).message == "its process was killed"
    store.write(make_record(status="diverged"))
    assert store.status(record.config) == "diverged"


def test_a_finished_record_stays_finished(store):
    store.write(make_record())
    with pytest.raises(InputError, match="to stay done, but got a record that is running; prune it first"):
        store.write(make_record(status="running", finished=None))
    assert store.records() == [make_record()]


def test_a_run_is_found_by_the_start_of_its_id(store):
    with pytest.raises(InputError, match=r"expected a finished run in .*, but none of \d is; train one to its end"):
        store.find("last")
    for seed in range(17):  # of 17 ids, two share their first digit
        store.write(make_record(seed=seed, finished=f"2026-01-02T{7 * seed % 17:02}:00:00+00:00"))
    store.write(make_record(seed=17, status="diverged", finished="2026-01-03T00:00:00+00:00"))
    assert store.get("last").finished == "2026-01-02T16:00:00+00:00"
    digit = next(run[0] for run, after in itertools.pairwise(store.ids()) if run[0] == after[0])
    with fails_in_one_line(f"expected the start of one id, but '{digit}' fits ", f": {digit}"):
        store.get(digit)
    with fails_in_one_line("but got '../..'"):
        store.get("../..")
    with fails_in_one_line("expected an id of 16 hexadecimal digits"):
        store.folder("../" + "0" * 13)


def test_a_broken_record_is_named_and_can_be_stepped_over(store):
    good, broken = make_record(seed=0), make_record(seed=1)
    store.write(good)
    store.write(broken)
    path, errors = store.folder(broken.id) / RECORD, []
    path.write_text("{")
    assert store.records(errors.append) == [good]
    assert [f"{broken.id}/record.json" in str(error) for error in errors] == [True]
    path.write_text((store.folder(good.id) / RECORD).read_text())
    with fails_in_one_line("move it to its own folder"):
        store.records()


def test_two_processes_do_not_share_a_run(store):
    record = make_record()
    store.lock(record.config).release()
    with started(HOLD, store.folder(record.id) / LOCK) as (process, _):
        partial = store.folder(record.id) / ".record.json.0123456789ab.partial"
        partial.write_text("being written")
        for action in (store.lock, lambda config: store.write(record), lambda config: store.remove(record.id)):
            with pytest.raises(InputError, match=f"but process {process.pid} on "):
                action(record.config)
        Store.open(store.path)
        assert partial.exists(), "the file of a process at work must stay"
    Store.open(store.path)
    assert not partial.exists()


@pytest.mark.parametrize("status", ["done", "running"])
def test_opening_finishes_what_was_cut_short_and_touches_nothing_named_alike(store, status):
    store.write(make_record(status=status))
    folder, checkpoint = store.folder(make_record().id), store.checkpoint(make_record().id)
    left = [checkpoint / ".w.safetensors.0123456789ab.partial", store.path / f".{'0' * 16}.0123456789ab.removed" / "x"]
    kept = [checkpoint / "w.safetensors", folder / ".film.partial", store.path / ".mine.removed" / "x"]
    checkpoints = [checkpoint / "last.safetensors", checkpoint / "before.safetensors"]
    for path in (*left, *kept, *checkpoints, folder / "lock.owner"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1 host")
    Store.open(store.path)
    assert not any(path.exists() for path in (left[0], left[1].parent, folder / "lock.owner"))
    assert all(path.exists() for path in kept)
    assert [path.exists() for path in checkpoints] == [status == "running"] * 2  # the record was the end
    assert store.ids() == [folder.name]


def test_a_folder_must_be_there_and_that_of_a_table_stands_for_the_runs_inside_it(tmp_path):
    with pytest.raises(InputError, match=r"expected a folder of runs at .*, but there is none"):
        Store.open(tmp_path / "T4", create=False)
    assert not (tmp_path / "T4").exists()
    for folder, seed in (("T4/runs", 0), ("T4", 1)):  # runs of its own come first
        Store(tmp_path / folder).write(make_record(seed=seed))
        assert Store.open(tmp_path / "T4", create=False).records() == [make_record(seed=seed)]
    assert Store.open(tmp_path / "T4").path == tmp_path / "T4"


def test_a_failure_while_claiming_frees_the_run(store, monkeypatch):
    full = Mock(side_effect=InputError("the disk is full"))
    with monkeypatch.context() as patch, fails_in_one_line("the disk is full"):
        patch.setattr("rcad.runs.files.write_text", full)
        store.lock(CONFIG)
    with store.lock(CONFIG):
        assert store.config(config_id(CONFIG)) == CONFIG


@pytest.fixture
def runs(store):
    """One run of every status, by status; each with a checkpoint of 10 bytes."""
    made = {}
    for seed, status in enumerate(("done", "diverged", "interrupted", "running", "broken", "claimed")):
        known = status if status in ("diverged", "interrupted", "running") else "done"
        record = make_record(seed=seed, status=known)
        store.lock(record.config).release()
        if status != "claimed":
            store.write(record)
        if status == "broken":
            (store.folder(record.id) / RECORD).write_text("{")
        store.checkpoint(record.id).mkdir()
        (store.checkpoint(record.id) / "w").write_bytes(b"0123456789")
        made[status] = record.id
    return made


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"diverged", "interrupted", "running", "claimed"}),
        ({"status": ["diverged"]}, {"diverged"}),
        ({"status": ["done", "broken"]}, {"done", "broken"}),
        ({"checkpoints_only": True}, {"done", "diverged"}),
        ({"older_than": timedelta(hours=1)}, {"interrupted"}),
    ],
)
def test_what_goes(store, runs, options, expected):
    """A run left "running" by a killed process counts as interrupted."""
    for path in (store.folder(runs["interrupted"]) / RECORD, store.checkpoint(runs["interrupted"])):
        os.utime(path, (0, 0))
    before = sorted(store.path.rglob("*"))
    found = prune(store, **options)
    assert {run.id for run in found} == {runs[status] for status in expected}
    assert all(run.bytes == 10 if "checkpoints_only" in options else run.bytes > 10 for run in found)
    assert sorted(store.path.rglob("*")) == before
    prune(store, **options, apply=True)
    left = set() if options.get("checkpoints_only") else expected
    assert set(store.ids()) == {run for status, run in runs.items() if status not in left}


def test_ids_go_whatever_their_status_but_for_one_at_work(store, runs):
    assert [run.id for run in prune(store, ids=[runs["done"][:8]], apply=True)] == [runs["done"]]
    with store.lock(store.config(runs["interrupted"])):
        assert runs["interrupted"] not in {run.id for run in prune(store)}
        with pytest.raises(InputError, match=f"expected run {runs['interrupted']} to be free"):
            prune(store, ids=[runs["interrupted"]], apply=True)
    assert set(store.ids()) == set(runs.values()) - {runs["done"]}
