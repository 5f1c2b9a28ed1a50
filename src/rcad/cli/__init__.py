"""The `rcad` command. Nothing heavy is imported until a command needs it."""

import atexit
import os
import signal
import sys


def end(number: int, frame: object = None) -> None:
    """Handles a signal before the command has begun, and a second one: ends at once, with one line at most."""
    if _silent:
        try:  # noqa: SIM105  # what `contextlib` needs takes as long as Python's own start
            os.write(2, f"rcad: {interrupted(*sys.argv[1:2])}\n".encode())
        except OSError:
            pass
    os._exit(128 + (signal.SIGINT if number == signal.SIGINT else signal.SIGTERM))


def interrupted(command: str = "") -> str:
    """The line of a command that a signal ended at once."""
    goes_on = command in ("train", "tune", "compare", "evaluate", "paper")
    return "interrupted; what is finished is kept; run the same command to continue" if goes_on else "interrupted"


_silent = [True]
reason_said = _silent.clear
"""To be called when the command has said why it ends."""
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
USUAL = (signal.SIG_DFL, signal.default_int_handler, end)
"""What a signal does where nobody has said otherwise: under nohup, a closed terminal is ignored."""


def _hear(handler: object) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) in USUAL:
            signal.signal(number, handler)  # type: ignore[arg-type]


# Only where this process is the command, not a worker that it started, and as early as can be: importing the rest takes
# a while. At the very end, when Python would let a signal kill it whatever its exit code is, none is heard any more.
if (
    os.path.basename(getattr(sys, "argv", [""])[0]) in ("rcad", "rcad.exe", "-m")
    and "multiprocessing.spawn" not in sys.modules
):
    _hear(end)
    atexit.register(_hear, signal.SIG_IGN)
