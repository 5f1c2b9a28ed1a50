"""Which signal ended a run: the engine turns it into a record, the shell wants 128 + its number."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def last_signal() -> Iterator[Callable[[], int | None]]:
    """While open, remembers signals whoever handles them; gives a function that returns the last one's number.

    Python writes the number of every signal that has a handler to the wake-up descriptor; reading it there does not
    interfere with the engine's own handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield lambda: _last(reader)
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _last(reader: int) -> int | None:
    try:
        seen = os.read(reader, 4096)
    except BlockingIOError:
        return None
    ends = [number for number in seen if number in (signal.SIGINT, signal.SIGTERM)]
    return ends[-1] if ends else None
