"""The attack in a form that takes less than a minute, with a fixed seed; `make attack MINUTES=20` is the long one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from attack import mutants
from attack.commands import bad_command
from attack.damage import Said
from attack.kills import plain
from attack.readers import fault

TESTS = Path(__file__).parents[1]


def told(module: str, folder: Path, *more: str) -> list[dict[str, object]]:
    """What a worker says, but for where it is."""
    paths = [str(TESTS.parent / "src"), str(TESTS), str(TESTS / "support")]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    words = [sys.executable, "-W", "ignore", "-m", f"attack.{module}", "--folder", str(folder / module), *more]
    done = subprocess.run(words, capture_output=True, text=True, env=surroundings)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, (done.returncode, lines[-1:], done.stderr[-2000:])
    return [line for line in lines if "at" not in line]


@pytest.mark.slow
def test_mutants_damages_and_bad_commands_end_in_our_words(tmp_path: Path) -> None:
    *faults, end = told("readers", tmp_path, "--count", "200", "--seed", "7")
    assert faults == [], json.dumps(faults, indent=1)
    tried = end["tried"]
    assert isinstance(tried, dict)
    assert sum(tried.values()) == 200
    assert tried.keys() == {"mutants", "damages", "bad commands"}


@pytest.mark.slow
def test_nothing_is_lost_by_kills_full_disks_and_company(tmp_path: Path) -> None:
    until = str(time.time() + 120)
    *faults, end = told("kills", tmp_path, "--only", "train", "--kills", "8", "--until", until)
    assert faults == [], json.dumps(faults, indent=1)
    tried = end["tried"]
    assert isinstance(tried, dict)
    assert tried["kills"]["train"] >= 1


@pytest.mark.parametrize(
    ("done", "wrong"),
    [
        (Said(0, "fine\n", ""), None),
        (Said(2, "", "rcad: expected a file, but got none\n"), None),
        (Said(1, "diverged: erm\n", ""), None),
        (Said(1, "", "rcad: unexpected KeyError: 'x'\n"), "an exception that is not ours"),
        (Said(1, "", ""), "an exception that is not ours"),
        (Said(-11, "", ""), "an exception that is not ours"),
        (Said(2, "", "rcad: a\nrcad: b\n"), "not one line"),
        (Said(2, "", f"rcad: {'x' * 300}\n"), "a long message"),
        (Said(0, "\x1b[31m", ""), "a control character"),
        (Said(2, "half a table", "rcad: expected\n"), "output beside an error"),
    ],
)
def test_faults_are_seen(done: Said, wrong: str | None) -> None:
    assert fault(done) == wrong


def test_the_same_seed_gives_the_same_mutants() -> None:
    data = json.dumps({"a": [1, {"b": "c"}], "sha256": "0"}).encode()
    first, again, other = ([mutants.as_json(data, Random(f"{seed}/{k}")) for k in range(50)] for seed in (0, 0, 1))
    assert first == again != other
    assert sum(one != data for one in first) > 40
    assert [bad_command(Random(k), "id") for k in range(9)] == [bad_command(Random(k), "id") for k in range(9)]


def test_times_are_left_out_of_comparisons_and_numbers_are_not() -> None:
    assert plain({"seconds": 1, "rows": [{"loss": 2, "started": "x"}]}) == {"rows": [{"loss": 2}]}
