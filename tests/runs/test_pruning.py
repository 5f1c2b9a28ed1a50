from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rcad.errors import InputError
from rcad.runs.pruning import prune
from rcad.runs.record import RunRecord
from rcad.runs.store import RECORD, Store

Runs = dict[str, str]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path)


@pytest.fixture
def runs(store: Store, make_record: Callable[..., RunRecord]) -> Runs:
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
        ({"older_than": timedelta(hours=1)}, set()),
    ],
)
def test_what_goes(store: Store, runs: Runs, options: dict[str, Any], expected: set[str]) -> None:
    """A run left "running" by a killed process counts as interrupted."""
    before = sorted(store.path.rglob("*"))
    assert {one.id for one in prune(store, **options)} == {runs[status] for status in expected}
    assert sorted(store.path.rglob("*")) == before


def test_apply_removes_just_those(store: Store, runs: Runs) -> None:
    gone = prune(store, apply=True)
    assert set(store.ids()) == {runs["done"], runs["broken"]}
    assert len(gone) == 4


def test_checkpoints_go_and_records_stay(store: Store, runs: Runs) -> None:
    gone = prune(store, status=["done"], checkpoints_only=True, apply=True)
    assert [(one.id, one.status, one.bytes) for one in gone] == [(runs["done"], "done", 10)]
    assert not store.checkpoint(runs["done"]).exists()
    assert store.get(runs["done"]).status == "done"
    assert prune(store, status=["done"], checkpoints_only=True) == []


def test_ids_go_whatever_their_status(store: Store, runs: Runs) -> None:
    assert [one.id for one in prune(store, ids=[runs["done"][:8]], apply=True)] == [runs["done"]]
    assert runs["done"] not in store.ids()


def test_age_is_that_of_the_record(store: Store, runs: Runs) -> None:
    for path in (store.folder(runs["diverged"]) / RECORD, store.checkpoint(runs["diverged"])):
        os.utime(path, (0, 0))
    assert [one.id for one in prune(store, older_than=timedelta(days=1))] == [runs["diverged"]]


def test_a_run_at_work_never_goes(store: Store, runs: Runs) -> None:
    config = store.config(runs["interrupted"])
    with store.lock(config):
        assert runs["interrupted"] not in {one.id for one in prune(store)}
        with pytest.raises(InputError, match=f"expected run {runs['interrupted']} to be free"):
            prune(store, ids=[runs["interrupted"]], apply=True)
    assert runs["interrupted"] in store.ids()


def test_an_unknown_status_is_named(store: Store) -> None:
    with pytest.raises(InputError, match=r"but got 'diverge'; did you mean 'diverged'\?"):
        prune(store, status=["diverge"])
