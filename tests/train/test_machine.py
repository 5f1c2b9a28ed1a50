"""The switches of the process that a run sets and gives back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from rcad.train.machine import deterministic, keep_kernels, timed

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


def test_start_up_is_timed_where_asked_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cpu = torch.device("cpu")
    monkeypatch.delenv("RCAD_TIMES", raising=False)
    with timed("data", "run 1", cpu):
        assert not caplog.messages
    monkeypatch.setenv("RCAD_TIMES", "1")
    with timed("capture", "rcad, 5 joined", cpu):
        pass
    (line,) = caplog.messages
    assert line.startswith("times: capture 0.00 s, ")
    assert line.endswith(" s after the start, of rcad, 5 joined")


def test_kernels_are_kept_in_the_cache_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "mine")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "x")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    keep_kernels(tmp_path)
    assert os.environ["TRITON_CACHE_DIR"] == "mine"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "kernels" / "inductor")
