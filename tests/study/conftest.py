"""Runs and records as other rooms' tests have them."""

from evaluate.saved_run.conftest import loader, runs, store

__all__ = ["loader", "runs", "store"]
