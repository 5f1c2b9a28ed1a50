"""What the tests of adapters share."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _own_accelerator():
    """Accelerators of one process share a state; each test begins with its own."""
    yield
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(True)
        state.GradientState._reset_state()
