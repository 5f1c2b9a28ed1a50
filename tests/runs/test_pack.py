"""Finished runs in one file: packs, and tables of records."""

import csv
import gzip
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from one_line import fails_in_one_line, refusals
from rcad.errors import InputError
from rcad.runs import pack
from rcad.runs.pack import PackedRun, export, read_pack, thinned, write_pack
from rcad.runs.record import RunRecord
from rcad.runs.store import RECORD, Store, prune
from runs.conftest import make_record

ATTACKS = {"schema": 1, "numbers": {"attacked_accuracy": 0.1 + 0.2}}


def long_record(seed=0, count=200, **options):
    rows = [{"epoch": e, "loss": 1 / e, "lr": 0.1, "val_nll": e / 3, "val_accuracy": 50.0} for e in range(1, count + 1)]
    return make_record(seed, **{"epochs": rows, "metrics": {"test_nll": 1 / 3, "selected_epoch": 77.0}, **options})


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / "runs")
    for seed, status in enumerate(("done", "diverged", "done")):
        store.write(long_record(seed, status=status))
    folder = store.folder(long_record().id) / "evaluation"
    folder.mkdir()
    (folder / "attacks.json").write_text(json.dumps(ATTACKS))
    return store


def packed(store, path):
    write_pack(path, [store.packed(run) for run in store.ids()])
    return path


@pytest.fixture
def file(store, tmp_path):
    return packed(store, tmp_path / "a.jsonl.gz")


def test_everything_but_the_epochs_comes_back_and_the_same_runs_give_the_same_bytes(store, file, tmp_path):
    runs = read_pack(file)
    assert list(runs) == store.ids()
    for record in store.records():
        found = runs[record.id].record
        assert replace(found, epochs=()) == replace(record, epochs=())
        epochs = [row["epoch"] for row in found.epochs]
        assert found.epochs[10] == {k: float(f"{record.epochs[epochs[10] - 1][k]:.7g}") for k in pack.CURVES}
    assert [run.evaluations for run in runs.values() if run.evaluations] == [{"attacks.json": ATTACKS}]
    write_pack(tmp_path / "b.jsonl.gz", reversed(list(runs.values())))
    other = Store.open(tmp_path / "other")
    assert all(other.unpack(run) for run in runs.values())
    assert not any(other.unpack(run) for run in runs.values())
    again = packed(other, tmp_path / "c.jsonl.gz").read_bytes()
    assert again == (tmp_path / "b.jsonl.gz").read_bytes() == file.read_bytes()
    assert again[4:8] == bytes(4)  # no time in it


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 1000])
def test_thinning_keeps_the_ends_and_the_chosen_epoch(count):
    record = long_record(count=count)
    found = thinned(record)
    assert len(found.epochs) == min(count, 50)
    assert thinned(found) == found
    kept = {row["epoch"] for row in found.epochs}
    assert kept >= {epoch for epoch in (1, 77, count) if 0 < epoch <= count}


def test_a_store_takes_packed_runs_as_finished(store, file, tmp_path):
    records = {record.id: thinned(record) for record in store.records()}
    given = Store.open(tmp_path / "new", packs=[file])
    inside = Store.open(tmp_path / "inside")
    (inside.path / file.name).write_bytes(file.read_bytes())
    for one in (given, inside, Store.open(file, create=False)):
        assert one.ids() == sorted(records)
        assert {record.id: record for record in one.records()} == records
        for run, record in records.items():
            assert one.status(record.config) == record.status
            assert one.get(run[:9]) == record
            assert one.config(run) == record.config
            assert pack.is_pack(one.where(run))
        assert one.status(make_record(7).config) == "new"
        assert prune(one, status=["done"], apply=True) == []
        with pytest.raises(InputError, match=r"lies in .*\.jsonl\.gz; it stays there"):
            prune(one, ids=[one.ids()[0]])


def test_a_folder_with_a_record_wins_over_a_pack(file, tmp_path):
    both = Store.open(tmp_path / "both", packs=[file])
    mine = long_record(0, message="mine")
    with both.lock(mine.config):
        assert both.get(mine.id).message == ""  # a folder without a record is none yet
        both.write(mine)
    assert (both.get(mine.id), both.where(mine.id)) == (mine, both.folder(mine.id))
    assert both.packed(mine.id) == PackedRun(mine)
    (both.folder(mine.id) / RECORD).unlink()
    assert both.packed(mine.id).evaluations == {"attacks.json": ATTACKS}


def test_a_run_in_two_packs_must_be_the_same(store, file, tmp_path):
    record = store.records()[0]
    write_pack(tmp_path / "b.jsonl.gz", [PackedRun(record, {"ood.json": {"schema": 1}})])
    two = Store(tmp_path / "none", (file, tmp_path / "b.jsonl.gz"))
    assert "ood.json" in two.packed(record.id).evaluations
    write_pack(tmp_path / "b.jsonl.gz", [PackedRun(replace(record, message="other"))])
    with pytest.raises(InputError, match=f"one record of run {record.id}, but .*a.jsonl.gz and .*b.jsonl.gz hold diff"):
        two.ids()


def test_what_cannot_be_packed(tmp_path, monkeypatch):
    record = long_record()
    running = replace(record, status="running", finished=None)
    monkeypatch.setattr(pack, "LARGEST", 1000)
    for name, records, says in (
        ("study.json", [record], "ends in .jsonl.gz, but got "),
        ("x.jsonl.gz", [], "finished runs to pack, but there are none"),
        ("x.jsonl.gz", [running], f"but {record.id} is running"),
        ("x.jsonl.gz", [record], "at most 1,000 bytes, but 1 runs take"),
    ):
        with fails_in_one_line(says):
            write_pack(tmp_path / name, map(PackedRun, records))
    assert not list(tmp_path.iterdir())


def zipped(*lines):
    return gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode(), mtime=0)


def read_bytes(content):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x.jsonl.gz").write_bytes(content)
        return read_pack(Path(folder, "x.jsonl.gz"))


test_a_file_that_is_no_pack_is_named_in_one_line = refusals(
    (b"no gzip", "to be a pack of runs, but got Not a gzipped file"),
    (zipped({"kind": "other"}), "a file of another kind"),
    (zipped({"kind": "rcad runs", "schema": 2}), "a pack of schema 1 in .. , but got 2; read it with the version"),
    (zipped({"kind": "rcad runs", "schema": 1, "runs": 0, "sha256": "0"}, {}), "do not match its checksum"),
    (gzip.compress(bytes(70_000_000)), "more than 67,108,864 bytes"),
    of=read_bytes,
)


def test_no_file_is_written_outside_a_run(tmp_path):
    write_pack(tmp_path / "x.jsonl.gz", [PackedRun(long_record(), {"../../evil.json": {}})])
    with pytest.raises(InputError, match="expected evaluations by file name"):
        read_pack(tmp_path / "x.jsonl.gz")


def test_every_damage_is_found(file, tmp_path):
    whole, path = file.read_bytes(), tmp_path / "b.jsonl.gz"
    for at in range(0, len(whole), 41):
        flipped = bytes([whole[at] ^ 16])
        for damaged in (whole[:at], whole[:at] + bytes(len(whole) - at), whole[:at] + flipped + whole[at + 1 :]):
            path.write_bytes(damaged)
            try:
                found = read_pack(path)
            except InputError:
                continue
            # Some bytes of gzip's own header mean nothing.
            assert dict(found) == dict(read_pack(file))


def test_records_as_tables_and_whole(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    lost = make_record(1, status="diverged", metrics={"accuracy": float("nan"), "n": 0.5}, message='a "b",\nc')
    records = [make_record(metrics={"accuracy": 0.1 + 0.2, "n": 1}), lost]
    for suffix in ("csv", "parquet", "json"):
        export([], tmp_path / f"a.{suffix}")
        assert (tmp_path / f"a.{suffix}").stat().st_size > 0
        export(records, tmp_path / f"a.{suffix}")
    with (tmp_path / "a.csv").open(newline="") as file:
        texts = list(csv.DictReader(file))
    table = parquet.read_table(tmp_path / "a.parquet")
    for rows in (texts, table.to_pylist()):
        assert [float(row["metrics.accuracy"] or 0) for row in rows] == [0.1 + 0.2, 0]
        assert [row["message"] for row in rows] == ["", 'a "b",\nc']
        assert [int(row["seed"]) for row in rows] == [0, 1]
        assert (rows[0]["method"], float(rows[0]["optim.lr"])) == ("rcad(alpha=0.5)", 0.001)
        assert (rows[0]["split.train"], next(iter(rows[0]))) == ("a" * 64, "id")
    kinds = [str(table.schema.field(name).type) for name in ("metrics.n", "seed", "data.balanced")]
    assert kinds == ["double", "int64", "bool"]
    assert [RunRecord.from_dict(one) for one in json.loads((tmp_path / "a.json").read_text())] == records
