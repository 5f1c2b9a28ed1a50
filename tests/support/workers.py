"""Programs in processes of their own: two that meet over gloo, or one whose CPU is told to do bfloat16."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def started(program: str | Path, *arguments: object, **environment: str) -> subprocess.Popen[bytes]:
    """The program, a text or a file, running, with what the tests share on its path."""
    paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    everything = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **environment}
    way = ["-c", program] if isinstance(program, str) else [str(program)]
    return subprocess.Popen([sys.executable, *way, *map(str, arguments)], env=everything)


def in_two(program: str, *arguments: object, **environment: str) -> None:
    """Runs the program as two ranks, whose number is the last argument."""
    port = str(20000 + os.getpid() % 20000)
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment}
    workers = [started(program, *arguments, r, RANK=str(r), LOCAL_RANK=str(r), **place) for r in (0, 1)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]


def in_bf16(program: str, *arguments: object) -> None:
    """Some machines die of a CPU's bf16 unless told to use older instructions, and some even then: these skip."""
    code = started(program, *arguments, ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16").wait(timeout=200)
    if code < 0:
        pytest.skip(f"this CPU cannot compute in bf16 (signal {-code})")
    assert code == 0
