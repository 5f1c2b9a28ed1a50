"""Runs and records as other rooms' tests have them."""

from evaluate.saved_run.conftest import runs, shelf, store
from runs.conftest import make_record

__all__ = ["make_record", "runs", "shelf", "store"]
