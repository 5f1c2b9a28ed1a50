"""Programs of the pages and of the examples, in processes of their own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from documents import ROOT, imported

Program = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def server() -> Iterator[subprocess.Popen[str]]:
    """Runs programs in copies of itself: they use bfloat16 (which some CPUs only pretend to have) and groups."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONWARNINGS": "default", "HF_HUB_OFFLINE": "1"}
    for name in ("RCAD_DATA", "FORCE_COLOR", "COLUMNS"):
        environment.pop(name, None)
    command, pipe = [sys.executable, str(ROOT / "tests" / "support" / "documents.py")], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, bufsize=1) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def program(server: subprocess.Popen[str], tmp_path: Path) -> Program:
    """Runs a text in a folder of its own: the exit code, what it printed and what it said on stderr.

    `like` is code whose imports are those of the program, and need not be done twice.
    """

    def call(text: str, like: str = "") -> tuple[int, str, str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        given = {"program": text, "imports": imported(like), "folder": str(tmp_path), "port": port}
        server.stdin.write(json.dumps(given) + "\n")
        code = int(server.stdout.readline())
        return code, (tmp_path / "out").read_text(encoding="utf-8"), (tmp_path / "err").read_text(encoding="utf-8")

    return call
