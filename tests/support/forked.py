"""The command in a copy of this process."""

import contextlib
import fcntl
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from contracts.house import Result
from rcad.cli.main import run


class Forked:
    """The command in a copy of this process, which has loaded everything already: it can be sent signals, and killed.

    With `largest_file` bytes of a file the disk is full. It prints to `told`, closed here; by default to large pipes.
    """

    def __init__(self, *words: object, largest_file: int | None = None, told: tuple[int, int] | None = None) -> None:
        self._said, self._pipes = {"out": b"", "err": b""}, dict[str, Any]()
        if told is None:
            (out, told_out), (err, told_err) = os.pipe(), os.pipe()
            self._pipes, told = {"out": open(out, "rb", 0), "err": open(err, "rb", 0)}, (told_out, told_err)  # noqa: SIM115
            for pipe in (out, err):
                os.set_blocking(pipe, False)
                if hasattr(fcntl, "F_SETPIPE_SZ"):
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
        arguments = (list(map(str, words)), told, largest_file)
        self._process: Any = multiprocessing.get_context("fork").Process(target=_run, args=arguments)
        self._process.start()
        self.pid: int = self._process.pid
        for stream in told:
            os.close(stream)

    def wait(self, seconds: float = 300) -> int | None:
        """The exit code, negative for a signal; None where it has not ended in time."""
        self._process.join(seconds)
        return self._process.exitcode  # type: ignore[no-any-return]

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def said(self, stream: str = "out") -> str:
        self._said[stream] += self._pipes[stream].read() or b""
        return self._said[stream].decode(errors="replace")

    def end(self) -> Result:
        code = self.wait()
        assert code is not None, "it did not end"
        return Result(code, self.said("out"), self.said("err"))


def interrupted(*words: object, when: Callable[[], bool], by: int = signal.SIGINT) -> Result:
    """How a command ends that is sent a signal once something has come about."""
    process = Forked(*words)
    until(when)
    os.kill(process.pid, by)
    return process.end()


def until(over: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not over():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _run(words: list[str], told: tuple[int, int], largest_file: int | None) -> None:
    code = 70
    try:
        os.setpgid(0, 0)
        for number, stream in enumerate(told, 1):
            os.dup2(stream, number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        code = run(words)
        for written in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                written.flush()
    finally:
        os._exit(code)
