import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rcad.runs
from one_line import refusals
from rcad.runs.files import dumps, loads, sealed
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord, Split, advised, commit, more_epochs
from runs.conftest import make_record


def test_a_record_shows_itself_in_a_notebook():
    epochs = [{"epoch": k, "loss": 2.0 - k, "val_nll": 1.0 + k, "seconds": 1.0} for k in range(2)]
    shown = make_record(epochs=epochs, message="<b>", status="diverged")._repr_html_()
    assert "<th>status</th><td>diverged: &lt;b&gt;</td>" in shown
    assert "<th>val_nll, by epoch</th><td>▁█</td></tr><tr><th>loss, by epoch</th><td>█▁</td>" in shown
    assert "by epoch" not in make_record(epochs=())._repr_html_()
    summary = make_record(seed=4).summary()
    assert [summary[name] for name in ("model", "method", "seed", "epochs")] == ["auto", "rcad(alpha=0.5)", 4, 2]


test_bad_values_are_named = refusals(
    ({"status": "finished"}, "expected status to be one of running, interrupted, diverged, done, but got 'finished'"),
    ({"started": "2024-01-31T12:00:00+02:00"}, "expected started to be an ISO time in UTC"),
    ({"finished": None}, "expected finished for a run that is done, but got None"),
    ({"message": None}, "expected message to be a text, but got None"),
    ({"metrics": {"accuracy": "high"}}, "expected metrics.accuracy to be a number, but got 'high'"),
    ({"epochs": {"loss": 1}}, "expected epochs to be a list of rows"),
    ({"peak_memory_bytes": -1}, "expected peak_memory_bytes to be a whole number >= 0, but got -1"),
    ({"splits": {"train": {"size": 3}}}, "expected splits.train with size and sha256"),
    ({"splits": {"train": {"size": 1, "sha256": "xyz"}}}, "as 64 hexadecimal digits, but got 'xyz'"),
    of=lambda changes: make_record(**changes),
)


TEXT = dumps(sealed(make_record().to_dict()))
test_bad_files_are_named = refusals(
    (lambda text: "[" * 100_000, "lists nested too deeply"),
    (lambda text: text.replace("0.875", "1e999"), "to be valid JSON, but got: a number that is too large, 1e999"),
    (lambda text: text.replace('"metrics"', '"metric"'), "but got 'metric'; did you mean 'metrics'?"),
    (lambda text: text.replace('"status": "done",', ""), "expected status to be given, but it is missing"),
    (lambda text: text.replace('"epochs": 30', '"epochs": 31'), "for this config, but got"),
    of=lambda change: RunRecord.from_dict(loads(change(TEXT), "record.json"), source="record.json"),
)


def test_json_goes_both_ways_with_null_for_what_is_not_finite():
    metrics = {"a": np.float32(0.1), "b": 0.1 + 0.2, "c": np.int64(2), "nll": float("nan"), "f": np.float32("inf")}
    rows = [{"loss": float("inf"), "epoch": np.int64(3)}]
    record = make_record(message="é\n", commit="abc", status="diverged", metrics=metrics, epochs=rows)
    metrics.clear()  # the giver's dict stays his
    assert record.metrics == {"a": float(np.float32(0.1)), "b": 0.1 + 0.2, "c": 2, "nll": None, "f": None}
    assert record.epochs == ({"loss": None, "epoch": 3},)
    plain = json.loads(dumps(record.to_dict()))
    assert RunRecord.from_dict(plain) == record
    assert plain["schema"] == 1
    assert record.splits["train"] == Split(size=100, sha256="a" * 64)
    assert record.id == config_id(record.config)


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "tag", "-a", "v1", "-m", "v1")
    return tmp_path


FALLING = [-2 * k for k in range(250)]  # a density's NLL may be negative
LEVEL, RISING = [1.0, 0.5, 0.5, 0.49, 0.49], [1.0, 0.5, 0.45, 0.46]


@pytest.mark.parametrize(("nll", "found"), [(FALLING[:4], 500), (FALLING, None), (LEVEL, None), (RISING, None)])
def test_a_training_that_was_too_short_says_how_many_epochs_it_should_have(nll, found):
    """Two steps an epoch: it is too short with fewer than 500."""
    rows = [{"epoch": k, "val_nll": value} for k, value in enumerate(nll, 1)]
    record = make_record(epochs=rows, splits={"train": Split(size=55, sha256="0" * 64)})
    assert record.more_epochs == more_epochs(nll, 55, 32) == found
    assert replace(record, epochs=(*rows[:-1], {"epoch": 600, "val_nll": 0.0})).more_epochs is None  # packed
    assert replace(record, status="diverged").more_epochs is None
    assert advised([500, None, 40]) == 500  # of most runs
    assert advised([500, None]) is None


def test_nothing_here_imports_anything_heavy():
    names = [path.stem for path in Path(rcad.runs.__file__).parent.glob("*.py") if path.stem != "configure"]
    heavy = {"torch", "numpy", "pyarrow", "pandas"}
    code = f"import sys, rcad.runs.record as record; [__import__('rcad.runs.' + name) for name in {names}]"
    code += f"; record.versions(); print(*({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_commit_of_a_checkout_whatever_git_variables_its_caller_has_and_nothing_is_written(checkout, monkeypatch):
    head, index = git(checkout, "rev-parse", "HEAD"), checkout / ".git" / "index"
    os.utime(checkout / "code.py", (1, 1))  # git would note that the content is the same
    before = index.read_bytes()
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    assert commit(checkout / "code.py") == head
    assert index.read_bytes() == before  # a lock that a kill leaves would keep its owner from committing
    (checkout / "code.py").write_text("x = 2\n")
    commit.cache_clear()
    assert commit(checkout / "code.py") == f"{head}-dirty"


def test_no_commit_without_git_or_of_a_file_that_it_does_not_track(checkout, monkeypatch):
    (checkout / "installed.py").write_text("")  # into an environment inside somebody's repository
    assert commit(checkout / "installed.py") is None
    monkeypatch.setenv("PATH", str(checkout / "nowhere"))
    assert commit(checkout / "code.py") is None
