"""The switches of the process that a run sets and gives back."""

from __future__ import annotations

import pytest
import torch

from rcad.experiments.machine import deterministic

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> object:
    """As in a build with cuDNN, whose switches can be turned without a GPU."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark_limit", 10, raising=False)
    return torch.backends.cudnn


@pytest.mark.parametrize(
    ("wanted", "device", "thorough", "inside"),
    [
        (False, CPU, False, (False, False, 10)),
        (True, CPU, False, (True, False, 10)),
        (False, CUDA, False, (False, True, 10)),
        (False, CUDA, True, (False, True, 0)),
        (True, CUDA, True, (True, False, 0)),
    ],
)
def test_algorithms(
    wanted: bool, device: torch.device, thorough: bool, inside: tuple[bool, bool, int], cudnn: torch.backends.cudnn
) -> None:
    def now() -> tuple[bool, bool, int]:
        return torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.benchmark_limit

    before = now()
    with deterministic(wanted, device, thorough=thorough):
        assert now() == inside
    assert now() == before


def test_a_build_without_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark_limit", None, raising=False)
    with deterministic(False, CUDA, thorough=True):
        assert torch.backends.cudnn.benchmark_limit is None
