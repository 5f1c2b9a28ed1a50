"""A store of small finished runs, made once."""

from pathlib import Path

import pytest

from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.settings import Settings
from rcad.runs.store import Store

# Small enough for a test; every number still has all its parts.
QUICK = Settings(
    limit=24, attack_eps=(0.05, 0.1), steps=3, corruptions=("fog", "pixelate"), severities=(1, 5), alphas=(0.0, 1.0)
)


@pytest.fixture(scope="session")
def store(trained_runs: Path) -> Store:
    return Store.open(trained_runs)


@pytest.fixture
def loader(store: Store) -> RunLoader:
    return RunLoader(store, device="cpu")
