"""Runs and records as other rooms' tests have them."""

from evaluate.saved_run.conftest import loader, store

__all__ = ["loader", "store"]
