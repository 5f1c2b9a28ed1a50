"""Where the runs of a test are made, and without what."""

from pathlib import Path

import pytest

from rcad.runs.store import Store
from rcad.train.place import Place


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "runs")


@pytest.fixture
def place(store: Store) -> Place:
    return Place(store, device="cpu")
