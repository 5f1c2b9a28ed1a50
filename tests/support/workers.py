"""Programs, as texts, in processes of their own: where they can, copies of the test's, which has all imported."""

import functools
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
OLDER = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
SECONDS = 240
FORK = multiprocessing.get_context("fork")
RUN = subprocess.run


def started(program: str, *arguments: object, copied: bool, **environment: str) -> Callable[[], int | None]:
    """Starts the program; what is returned waits for its end and gives its exit code, below 0 for a signal."""
    words = ["-c", program, *map(str, arguments)]
    if copied and not torch.cuda.is_available():  # whose threads, for autograd, no copy has
        process = FORK.Process(target=_run, args=(words, environment))
        process.start()
        return lambda: process.join(SECONDS) or process.exitcode
    paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    everything = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **environment}
    fresh = subprocess.Popen([sys.executable, *words], env=everything)
    return lambda: fresh.wait(SECONDS)


def copied(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """`subprocess.run`; a Python program, which must not fail, runs in a copy of this process."""
    if command[0] != sys.executable:
        return RUN(command, **options)
    with tempfile.TemporaryFile("w+") as out:
        process = FORK.Process(target=_run, args=(command[1:], options.get("env", {}), out.fileno()))
        process.start()
        process.join()
        assert process.exitcode == 0
        out.seek(0)
        return subprocess.CompletedProcess(command, 0, out.read(), "")


def _run(words: list[str], environment: dict[str, str], out: int = 1) -> None:
    os.environ.update(environment)
    os.dup2(out, 1)
    with open(1, "w", closefd=False) as sys.stdout:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<program>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")


def in_ranks(size: int, program: str, *arguments: object, **environment: str) -> None:
    """Runs the program as so many ranks, whose number is the last argument."""
    port = str(20000 + os.getpid() % 20000)
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment}
    ranks = range(size)
    ends = [started(program, *arguments, r, copied=True, RANK=str(r), LOCAL_RANK=str(r), **place) for r in ranks]
    assert [end() for end in ends] == [0] * size


in_two = functools.partial(in_ranks, 2)


def in_bf16(program: str, *arguments: object) -> None:
    """Some machines die of a CPU's bf16 unless told to use older instructions, and some even then: these skip."""
    code = started(program, *arguments, copied=OLDER.items() <= os.environ.items(), **OLDER)()
    if code is not None and code < 0:
        pytest.skip(f"this CPU cannot compute in bf16 (signal {-code})")
    assert code == 0
