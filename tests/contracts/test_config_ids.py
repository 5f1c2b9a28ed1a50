"""The names of runs: an id that changes makes every stored run of that config unfindable.

The table has the words after `rcad train` and the id; for a config more, add its words with any id and run update.py.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts import tables
from contracts.house import TABLES, rcad, workplace

TABLE = tables.load("config_ids")
RECIPES = ("small", "paper", "paper-2k", "paper-10k", "paper-svhn", "paper-wrn", "released")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> Iterator[None]:
    with workplace(tmp_path):
        yield


def present(words: str) -> str:
    """The id of the run that these words ask for; a file is one of tables/."""
    found = rcad(f"train {words} --dry-run --json", tables=TABLES)
    assert found.code == 0, found.err
    return str(found.json()[0]["id"])


def test_ids_never_change() -> None:
    tables.check("config_ids", "ids of configs", {words: present(words) for words in TABLE})


def test_recipes_and_defaults_never_change() -> None:
    """Every field of the first recipe's config, and what the others have otherwise: an id leaves defaults out."""
    words = "train --data digits --method rcad --dry-run --json --recipe"
    every = {name: flat(rcad(f"{words} {name}").json()[0]["config"]) for name in RECIPES}
    first = every[RECIPES[0]]
    others = {name: {key: one[key] for key in one if one[key] != first.get(key)} for name, one in every.items()}
    tables.check("recipes", "recipes", {**others, RECIPES[0]: first})


def test_the_printed_config_is_the_same_run() -> None:
    """What --dry-run prints, read by --config, is the run it was printed for."""
    for words, run in TABLE.items():
        Path("run.toml").write_text(rcad(f"train {words} --dry-run", tables=TABLES).out, encoding="utf-8")
        assert present("--config run.toml") == run, words


def test_there_are_enough_of_them() -> None:
    assert len(TABLE) >= 30
    for method in [one["name"] for one in rcad("methods list --json").json()]:
        assert re.search(rf"\b{method}\b", " ".join(TABLE)), method


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """By dotted key."""
    sections = {key: value for key, value in config.items() if isinstance(value, dict)}
    fields = {f"{title}.{key}": value for title, section in sections.items() for key, value in section.items()}
    return fields | {key: value for key, value in config.items() if key not in sections}
