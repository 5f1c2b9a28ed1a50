"""How work is asked to end, between two steps and with everything saved: by a signal, or because its time is up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupted(KeyboardInterrupt):
    """A signal that came where nothing waits for one."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(text)
        self.number = number


class NotBegun(Interrupted):
    """A signal that came before the first step of a run: there is nothing to save."""


class Stop:
    """Whether work should end at the next good moment: a signal came, or so many minutes are over."""

    def __init__(self, minutes: float | None = None) -> None:
        self.signal: int | None = None  # the number of the one that asked
        self.at_once = False  # whether a signal raises `NotBegun`: while nothing is under way that should be saved
        self.short = False  # whether something was not begun because it could not have ended in time
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._asked = False

    @property
    def out_of_time(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def lets_begin(self, seconds: float) -> bool:
        """Whether what takes so long can end before the time is up; where not, it is noted that time was short."""
        late = self._deadline is not None and time.monotonic() + seconds > self._deadline
        self.short |= late
        return not late

    def ask(self) -> None:
        """Ask without a signal."""
        self._asked = True

    def before_work(self) -> None:
        """Raises `NotBegun` where a signal has come: for long work of which nothing is kept, such as reading data."""
        if self.signal is not None:
            raise NotBegun(self.signal)

    def is_set(self) -> bool:
        return self._asked or self.signal is not None or self.out_of_time


@contextmanager
def stopping(minutes: float | None = None) -> Iterator[Stop]:
    """A Stop that Ctrl-C, SIGTERM and SIGHUP ask; a second signal is an `Interrupted` at once."""
    stop = Stop(minutes)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: object) -> None:
        if stop.signal is not None:
            raise Interrupted(
                number, "stopped at once: the last checkpoints are kept; the same command goes on from there"
            )
        stop.signal = number
        if stop.at_once:
            raise NotBegun(number)

    # Under nohup a closed terminal is ignored, and stays so.
    signals = [number for number in SIGNALS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    with kept_handlers(signals):
        for number in signals:
            signal.signal(number, ask)
        yield stop


@contextmanager
def kept_handlers(signals: Iterable[int] = SIGNALS) -> Iterator[None]:
    """Whatever handlers are set inside, afterwards they are those from before."""
    before = {number: signal.getsignal(number) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(ValueError):  # only the main thread may set them
                signal.signal(number, handler)


def exit_code(number: int) -> int:
    """What the shell expects of a command that a signal ended: 130 or 143; a closed terminal counts as SIGTERM."""
    return 128 + (signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
