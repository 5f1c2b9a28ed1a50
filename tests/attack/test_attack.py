"""The attack in a form that takes less than a minute, with a fixed seed; `make attack MINUTES=20` is the long one."""

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from attack import kills, mutants, readers
from attack.__main__ import attack
from attack.damage import RECORD, matrix
from attack.readers import BOUNDS, OURS, bad_command, fault
from contracts.house import Result
from made import saved

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.mark.slow
def test_mutants_damages_and_bad_commands_end_in_our_words(tmp_path: Path) -> None:
    found = attack(tmp_path, islice(readers.attacks(7), 200))
    assert found["faults"] == []
    assert sum(found["tried"].values()) == 200
    assert min(found["tried"][name] for name in ("mutants", "damages", "bad commands")) > 0


@pytest.mark.slow
def test_nothing_is_lost_by_kills_full_disks_and_company(tmp_path: Path) -> None:
    found = attack(tmp_path, islice(kills.attacks(0, kills.ROUNDS[:1]), 5))
    assert found["faults"] == []
    assert found["tried"] == {"kills": found["kills by command"]["train"], "processes on one sweep": 3, "full disks": 1}


@pytest.mark.parametrize(
    ("done", "wrong"),
    [
        (Result(0, "fine\n", ""), None),
        (Result(2, "", "rcad: expected a file, but got none\n"), None),
        (Result(1, "diverged: erm\n", ""), None),
        (Result(1, "", "rcad: unexpected KeyError: 'x'\n"), OURS),
        (Result(1, "", ""), OURS),
        (Result(2, "", "rcad: a\nrcad: b\n"), BOUNDS),
        (Result(2, "", f"rcad: {'x' * 300}\n"), BOUNDS),
        (Result(0, "\x1b[31m", ""), BOUNDS),
        (Result(2, "half a table", "rcad: expected\n"), BOUNDS),
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
    assert kills.plain({"seconds": 1, "rows": [{"loss": 2, "started": "x"}]}) == {"rows": [{"loss": 2}]}


def test_every_damage_is_healed_or_named_as_the_page_says(tmp_path: Path) -> None:
    found = matrix(tmp_path)
    assert {one["how"] for row in found.values() for one in row["damages"].values()} == {"healed", "named"}
    assert found == saved(RECORD), "python -m attack.damage writes it anew"
