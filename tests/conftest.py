"""One thread per worker: the suite runs as many workers as there are cores, and spinning threads starve each other."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some virtual machines advertise instructions for bf16 that they die of.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch

gc.set_threshold(10_000, 10, 10)
torch.set_num_threads(1)
# Disks keep their word without waiting for them: thousands of files, and no test cuts the power.
os.fsync = lambda handle: None
# A shell starts background jobs so, and nohup; tests that press Ctrl-C in a child of theirs would wait for its end.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where there is none."""
    for item in items if not torch.cuda.is_available() else ():
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


_loaded = 0  # modules when garbage was last looked for among everything


def pytest_runtest_logstart() -> None:
    """What is loaded by now stays, and a tenth of the tests' time went into looking through it for garbage."""
    global _loaded
    if len(sys.modules) != _loaded:
        _loaded = len(sys.modules)
        gc.collect()
        gc.freeze()
        if guards := sys.modules.get("torch._dynamo.guards"):
            # It measures the guards of everything that is compiled, and empties the processor's caches before.
            guards.profile_guard_manager = lambda *words: 0.0  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def trained_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small finished runs, made once for all rooms; tests that change it take a copy."""
    from trained import train_some

    pytest.importorskip("sklearn")
    train_some(folder := tmp_path_factory.mktemp("trained"))
    return folder


@pytest.fixture
def undrawn() -> Iterator[None]:
    from contracts.house import without_pictures

    with without_pictures():
        yield


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that the package starts are copies of this one: they have everything imported, and its patches."""
    from rcad.train import processes

    work_for = processes.work_for

    def work(*words: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)  # as in a process that was started afresh
        work_for(*words)

    if not torch.cuda.is_available():  # whose threads, for autograd, no copy has
        monkeypatch.setattr(processes, "START", "fork")
        monkeypatch.setattr(processes, "work_for", work)
