"""How the making of a table is shown: a bar on a terminal, elsewhere a line on stderr now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rcad.cli.screen import is_terminal
from rcad.runs.words import duration

if TYPE_CHECKING:
    from rcad.paper.grid import Standing

Say = Callable[[str, int, int], None]
_LINE_S, _DRAW_S = 5.0, 0.1


@contextlib.contextmanager
def study_progress(name: str) -> Iterator[Say]:
    """For one piece of work after the other; a new one gets a line."""
    if is_terminal(sys.stderr):
        with _bar(name) as draw:
            yield lambda what, done, total: draw(what, done, total)
        return
    started, last = time.monotonic(), ""

    def line(what: str, done: int, total: int) -> None:
        nonlocal last
        if what != last:
            last = what
            _print(f"[{time.monotonic() - started:5.0f} s] {name}: {what}")

    yield line


@contextlib.contextmanager
def grid_progress(name: str) -> Iterator[tuple[Callable[[Standing], None], Say]]:
    """For a grid of runs, with the time that is left for all of them, and for what follows."""
    drawn = float("-inf")

    def text(standing: Standing) -> str:
        return f"{standing.done} of {standing.total} runs, {duration(standing.left)} left"

    if is_terminal(sys.stderr):
        with _bar(name) as draw:

            def show(standing: Standing) -> None:
                nonlocal drawn
                if time.monotonic() - drawn >= _DRAW_S or standing.text:
                    drawn = time.monotonic()
                    draw(text(standing), standing.share, 1.0)

            yield show, lambda what, done, total: draw(what, done, total)
        return
    started, last = time.monotonic(), ""

    def tell(standing: Standing) -> None:
        nonlocal drawn
        if time.monotonic() - drawn >= _LINE_S or standing.done == standing.total:
            drawn = time.monotonic()
            _print(f"[{drawn - started:5.0f} s] {name}: {text(standing)}")

    def say(what: str, done: int, total: int) -> None:
        nonlocal last
        if what != last:
            last = what
            _print(f"[{time.monotonic() - started:5.0f} s] {name}: {what}")

    yield tell, say


def _print(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Callable[[str, float, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda what, done, total: bar.update(task, description=f"{name}: {what}", completed=done, total=total)
