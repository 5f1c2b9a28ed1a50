"""The switches of the process that a run sets and gives back."""

from __future__ import annotations

import pytest
import torch

from rcad.train.machine import deterministic

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("wanted", "device", "inside"),
    [
        (False, CPU, (False, False)),
        (True, CPU, (True, False)),
        (False, CUDA, (False, True)),
        (True, CUDA, (True, False)),
    ],
)
def test_algorithms(wanted: bool, device: torch.device, inside: tuple[bool, bool]) -> None:
    def now() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark

    before = now()
    with deterministic(wanted, device):
        assert now() == inside
    assert now() == before
