"""Runs and records as other rooms' tests have them."""

from evaluate.saved_run.conftest import loader, runs, store
from runs.conftest import make_record

__all__ = ["loader", "make_record", "runs", "store"]
