"""One bar for one piece of work: a download, a read."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rcad.cli.screen import is_terminal
from rcad.runs.words import size

Progress = Callable[[int, int], None]
_EVERY_S = 0.1


@contextlib.contextmanager
def meter(what: str, *, in_bytes: bool = False) -> Iterator[Progress]:
    """A bar on stderr while the context is open, if that is a terminal; gives what `progress=` wants.

    Nothing is printed elsewhere: what was done is said at the end, by the command.
    """
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[text]}", markup=False),
        TimeRemainingColumn(compact=True),
    )
    shown: Callable[[int], str] = size if in_bytes else "{:,}".format
    drawn = float("-inf")
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=None, text="")

        def progress(done: int, total: int) -> None:
            nonlocal drawn
            if time.monotonic() - drawn >= _EVERY_S or done == total:
                drawn = time.monotonic()
                text = f"{shown(done)} / {shown(total)}" if total else shown(done)
                bar.update(task, completed=done, total=total or None, text=text)

        yield progress
