"""Runs that are finished, small and quick, for tests of what comes after training."""

from pathlib import Path

from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.plain import config_id
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.run import run

DIGITS = "digits[:200]"


def config(method: str, seed: int = 0, data: str = DIGITS, *more: str) -> RunConfig:
    settings = ("model.width=8", "train.batch_size=32") if data == DIGITS else ()
    return configure(data, [(method, ())], epochs=6, seed=seed, settings=(*settings, *more))


def run_id(method: str, seed: int = 0, data: str = DIGITS, *more: str) -> str:
    return config_id(config(method, seed, data, *more))


def train_some(folder: Path) -> None:
    """ERM and RCAD on digits with two seeds, and one run each on a table, for regression, without validation."""
    store = Store.open(folder)
    for settings in (
        *(config(method, seed) for method in ("erm", "rcad") for seed in (0, 1)),
        config("erm", 0, "breast_cancer"),
        config("erm", 0, "diabetes"),
        config("label_smoothing", 0, DIGITS, "data.validation=0", "train.selection=last"),
    ):
        assert run(settings, Place(store, device="cpu")).status == "done"
