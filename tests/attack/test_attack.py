"""The attack in a form that takes less than a minute, with a fixed seed; `make attack MINUTES=20` is the long one."""

import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from attack import kills, mutants, readers
from attack.damage import RECORD, matrix
from attack.kills import plain
from attack.readers import bad_command, fault
from contracts.house import Result
from made import saved

pytestmark = pytest.mark.usefixtures("undrawn")


def tried(main: Callable[..., None], folder: Path, **options: Any) -> dict[str, Any]:
    """What a worker has tried, in a copy of this process, without a fault."""
    copy = multiprocessing.get_context("fork").Process(target=_told, args=(main, folder, options))
    copy.start()
    copy.join()
    lines = [json.loads(line) for line in (folder / "out").read_text().splitlines() if line.startswith("{")]
    assert copy.exitcode == 0, (copy.exitcode, lines[-1:], (folder / "err").read_text()[-2000:])
    *faults, end = (line for line in lines if "at" not in line)
    assert faults == [], json.dumps(faults, indent=1)
    return dict(end["tried"])


def _told(main: Callable[..., None], folder: Path, options: dict[str, Any]) -> None:
    warnings.simplefilter("ignore")
    sys.stdout, sys.stderr = (folder / "out").open("w"), (folder / "err").open("w")
    main(str(folder / "work"), **options)


@pytest.mark.slow
def test_mutants_damages_and_bad_commands_end_in_our_words(tmp_path: Path) -> None:
    found = tried(readers.main, tmp_path, count=200, seed=7)
    assert sum(found.values()) == 200
    assert found.keys() == {"mutants", "damages", "bad commands"}


@pytest.mark.slow
def test_nothing_is_lost_by_kills_full_disks_and_company(tmp_path: Path) -> None:
    assert tried(kills.main, tmp_path, only=("train",), kills=8, until=time.time() + 120)["kills"]["train"] >= 1


@pytest.mark.parametrize(
    ("done", "wrong"),
    [
        (Result(0, "fine\n", ""), None),
        (Result(2, "", "rcad: expected a file, but got none\n"), None),
        (Result(1, "diverged: erm\n", ""), None),
        (Result(1, "", "rcad: unexpected KeyError: 'x'\n"), "an exception that is not ours"),
        (Result(1, "", ""), "an exception that is not ours"),
        (Result(-11, "", ""), "an exception that is not ours"),
        (Result(2, "", "rcad: a\nrcad: b\n"), "not one line"),
        (Result(2, "", f"rcad: {'x' * 300}\n"), "a long message"),
        (Result(0, "\x1b[31m", ""), "a control character"),
        (Result(2, "half a table", "rcad: expected\n"), "output beside an error"),
    ],
)
def test_faults_are_seen(done: Result, wrong: str | None) -> None:
    assert fault(done) == wrong


def test_the_same_seed_gives_the_same_mutants() -> None:
    data = json.dumps({"a": [1, {"b": "c"}], "sha256": "0"}).encode()
    first, again, other = ([mutants.as_json(data, Random(f"{seed}/{k}")) for k in range(50)] for seed in (0, 0, 1))
    assert first == again != other
    assert sum(one != data for one in first) > 40
    assert [bad_command(Random(k), "id") for k in range(9)] == [bad_command(Random(k), "id") for k in range(9)]
    # Times are left out of comparisons, and numbers are not.
    assert plain({"seconds": 1, "rows": [{"loss": 2, "started": "x"}]}) == {"rows": [{"loss": 2}]}


def test_every_damage_is_healed_or_named_as_the_page_says(tmp_path: Path) -> None:
    found = matrix(tmp_path)
    assert {one["how"] for row in found.values() for one in row["damages"].values()} == {"healed", "named"}
    assert found == saved(RECORD), "python -m attack.damage writes it anew"
