"""The switches of the process that a run sets and gives back."""

import os

import pytest
import torch

from one_line import fails_in_one_line
from rcad.train.machine import deterministic, keep_kernels, pick_device, pick_devices


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("wanted", [True, False])
def test_algorithms(wanted, device, monkeypatch):
    def now():
        return torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark

    before, switched = now(), []
    switch = torch.use_deterministic_algorithms
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda on: (switched.append(on), switch(on)))
    with deterministic(wanted, torch.device(device)):
        assert now() == (wanted, not wanted and device == "cuda")
    assert now() == before
    assert switched == [True, False] * wanted  # torch loads its compiler for it, a second at the start of every run


def test_kernels_are_kept_in_the_cache_unless_said_otherwise(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", {"TRITON_CACHE_DIR": "mine"})
    keep_kernels(tmp_path)
    assert os.environ["TRITON_CACHE_DIR"] == "mine"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "kernels" / "inductor")


def test_several_devices_are_a_number_or_a_list(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert pick_device("cuda:3").index == 3
    given = {("2", "cpu"): ("cpu", "cpu"), ("2",): ("cuda:0", "cuda:1"), ("3, 1",): ("cuda:3", "cuda:1")}
    for words, names in (given | {("1,", "cuda"): ("cuda:1",)}).items():
        assert pick_devices(*words) == names
    for says, *words in (
        *(("--devices to be a number", wrong) for wrong in ("", "a", "1,1", "-1", "1,,2")),
        ("say how many processes", "0,1", "cpu"),
        ("but got '0'; for the first GPU alone: --device cuda:0", "0"),
        ("expected one of the 4 GPUs that torch sees, but got cuda:4", "0,4"),
        ("got both: cuda:1 and 2", "2", "cuda:1"),
    ):
        with fails_in_one_line(says):
            pick_devices(*words)
