"""Every committed run record: found under its name, read whole, and named by its config."""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from contracts import tables
from contracts.house import kept_runs, rcad
from contracts.test_config_ids import flat

RUNS = kept_runs()
SHOWN = ("test_accuracy", "test_nll", "last_accuracy", "last_nll")
# What a record had besides when this was written.
REST = ("commit", "data_sha256", "device", "finished", "message", "metrics", "peak_memory_bytes", "resolved", "splits")
REST += ("started", "status", "timings", "versions")
# What a record leaves out and a user must write, since the defaults have changed.
MEANT = {name: {"alpha": 0.5, "lam": 0.02} for name in ("rcad", "rcad_random")}


@functools.cache
def read(store: Path, run: str) -> dict[str, Any]:
    """The record as the package gives it; what it may have more than the file has its default."""
    result = rcad(f"runs show {run} --runs {{store}} --json", store=store)
    assert result.code == 0, result.err
    return {key: value for key, value in result.json().items() if key != "folder"}


def test_every_record_is_read_whole() -> None:
    for store, content in RUNS:
        record = read(store, content["id"])
        for key, value in content.items():
            now = record[key]
            if key == "config":  # with the fields that it was written before
                value = {key: {**now[key], **one} if isinstance(one, dict) else one for key, one in value.items()}
            assert now == value, (content["id"], key)


def test_the_records_are_the_committed_ones() -> None:
    """By pack and id: what was run, its main numbers, and digests of all that the package reads of it."""
    found: dict[str, dict[str, str]] = {}
    for store, content in RUNS:
        record = read(store, content["id"])
        shown = [f"{name} {record['metrics'][name]:.6g}" for name in SHOWN if name in record["metrics"]]
        config, norm = record["config"], record["config"]["model"]["norm"]
        parts = [_method(config["method"]), *([f"{norm} norm"] if norm else []), f"seed {config['seed']}"]
        parts += [record["status"], *shown, f"{len(record['epochs'])} epochs {_digest(record, 'epochs')}"]
        parts += [f"rest {_digest(record, *REST)}"]
        found.setdefault(store.name.removesuffix(".jsonl.gz"), {})[record["id"]] = ", ".join(parts)
    tables.check("kept_runs", "a committed run", found)


def test_a_list_has_every_record() -> None:
    for store in {store for store, _ in RUNS}:
        found = rcad("runs list --runs {store} --json", store=store)
        assert (found.code, found.err) == (0, "")
        assert sorted(one["id"] for one in found.json()) == sorted(run["id"] for pack, run in RUNS if pack == store)


def test_the_config_asks_for_the_run() -> None:
    """Its fields, given to `rcad train` one by one, name the same run: it would not be trained again."""
    for _, content in RUNS:
        config = content["config"]
        fields = {key: "" if value is None else str(value).replace(" ", "") for key, value in flat(config).items()}
        options = [f"--set {key}={value}" for key, value in fields.items() if "." in key]
        method = [{**row, **MEANT.get(row["name"], {}), **row} for row in config["method"]]
        words = f"train --data {config['data']['name']} --method '{_method(method)}' --recipe small"
        found = rcad(f"{words} {' '.join(options)} --seed {config['seed']} --dry-run --json")
        assert found.code == 0, found.err
        assert found.json()[0]["id"] == content["id"]


def _method(rows: list[dict[str, Any]]) -> str:
    texts = [(row["name"], ", ".join(f"{key}={value}" for key, value in row.items() if key != "name")) for row in rows]
    return " + ".join(f"{name}({values})" if values else name for name, values in texts)


def _digest(record: dict[str, Any], *keys: str) -> str:
    """With numbers by their value, 1 like 1.0."""
    plain = json.loads(json.dumps({key: record[key] for key in keys}), parse_int=float)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]
