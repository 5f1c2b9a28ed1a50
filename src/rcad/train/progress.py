"""What long work tells people while it goes. No torch here.

People see bars on a terminal, one line that changes in a notebook, and a line every few seconds elsewhere.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

from rcad.errors import is_terminal, visible
from rcad.runs.words import duration, size

Row = Mapping[str, float]


class Progress(Protocol):
    """Shows how far something is. Every call is cheap: none of them makes a GPU wait."""

    def overall(self, done: float, total: float, text: str) -> None:
        """So much of the whole work is done; the text says what is going on."""

    def detail(self, activity: str, done: int, total: int, unit: str = "") -> None:
        """A piece of work inside it, e.g. ("decoding images", 300, 60000); a new one takes the last one's place.

        It is over when all of it is done; its total is 0 where nobody knows. The unit "B" is for bytes.
        """

    def note(self, text: str) -> None:
        """One line that the user should see, e.g. how a run ended."""


class Silent:
    """A Progress that says nothing."""

    def note(self, *words: object, **options: object) -> None:
        pass

    overall = detail = note


SILENT = Silent()


@dataclass(frozen=True)
class Calls:
    """A Progress of three functions."""

    overall: Callable[[float, float, str], None]
    detail: Callable[..., None]
    note: Callable[[str], None]


def each_note_once(progress: Progress, *, but_numbers: bool = False, without: str | None = None) -> Progress:
    """The Progress, but a line that many runs say is shown once; `but_numbers`: one on a model, whatever the numbers of
    its method are, which may be measured on every split; `without`: none that ends with these words."""
    said: set[str] = set()

    def note(text: str) -> None:
        key = re.sub(r"=[^,)]+", "", text) if but_numbers and " parameters; " in text else text
        if key not in said and not (without and text.endswith(without)):
            said.add(key)
            progress.note(text)

    return Calls(progress.overall, progress.detail, note)


class Portion:
    """The Progress of one part of a larger whole, e.g. of one method in a comparison, whose name is said first.

    What is behind when this part begins, its own size and that of all parts are in any one unit.
    """

    def __init__(self, progress: Progress, before: float, size: float, total: float, name: str = "") -> None:
        self._progress, self._before, self._size, self._total, self._name = progress, before, size, total, name
        self.detail, self.note = progress.detail, progress.note

    def overall(self, done: float, total: float, text: str) -> None:
        share = done / total if total else 0.0
        words = ": ".join(part for part in (self._name, text) if part)
        self._progress.overall(self._before + share * self._size, self._total, words)


LINE_S, CELL_S, DRAW_S = 5.0, 0.5, 0.05
"""Seconds between two lines, two changes of a notebook's line, two drawings of a bar."""
_TIME = len(" 59m 59s elapsed ")
KERNEL = "JPY_PARENT_PID"
"""Set for a notebook's kernel and so for its `!rcad train`: what looks like a terminal there cannot move its cursor."""


def show_progress(
    *, quiet: bool = False, as_json: bool = False, answer_first: bool = False
) -> AbstractContextManager[Progress]:
    """The Progress that suits who looks: nothing for `quiet`, no lines beside JSON; `answer_first` as in `Lines`."""
    in_notebook = KERNEL in os.environ
    if quiet or (as_json and in_notebook):
        return nullcontext(SILENT)
    if is_terminal(sys.stderr):
        return Overwritten() if in_notebook else Bars()
    if as_json:
        return nullcontext(SILENT)
    display = _notebook()
    return nullcontext(Lines(answer_first=answer_first) if display is None else Cell(display))


def watched(progress: Progress | None) -> AbstractContextManager[Progress]:
    """The Progress that a caller from Python gave; else one where a person looks, and silence in a script's log."""
    if progress is not None:
        return nullcontext(progress)
    if (display := _notebook()) is not None:
        return nullcontext(Cell(display))
    return Bars() if is_terminal(sys.stderr) and find_spec("rich") is not None else nullcontext(SILENT)


def _notebook() -> Any:
    """IPython's `display` where this is a notebook's process."""
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    if all(kind.__name__ != "ZMQInteractiveShell" for kind in type(shell).__mro__):  # Colab's is a subclass
        return None
    return interactive.display.display  # type: ignore[union-attr]


class _Clock:
    """How long a piece of work has taken and will take; it starts when the piece is first heard of."""

    def __init__(self, done: float, activity: str = "") -> None:
        self._started, self._first, self.activity = time.monotonic(), done, activity

    def words(self, done: float, total: float) -> str:
        """2m 05s left, or what has passed where nobody can know."""
        passed, progress = time.monotonic() - self._started, done - self._first
        if progress > 0 and total > done:
            return f"{duration(passed * (total - done) / progress)} left"
        return f"{duration(passed)} elapsed"


def _counted(done: float, total: float, unit: str) -> str:
    text = size if unit == "B" else "{:,}".format
    return f"{text(int(done))} of {text(int(total))}" if total else text(int(done))


class Lines:
    """Plain lines, few enough that a log of 200 short epochs stays readable.

    They are the log, on stdout; with `answer_first` they go to stderr, so that stdout begins with the answer.
    """

    seconds = LINE_S

    def __init__(self, *, answer_first: bool = False) -> None:
        self._answer_first = answer_first  # not the stream itself, which tests and notebooks change
        self._whole: _Clock | None = None
        self._piece = _Clock(0.0)
        self._next = {"overall": 0.0, "detail": 0.0}

    def overall(self, done: float, total: float, text: str) -> None:
        self._whole = self._whole or _Clock(done)
        if self._is_due("overall") or done >= total:
            self._say(f"{text}  {self._whole.words(done, total)}")

    def detail(self, activity: str, done: int, total: int, unit: str = "") -> None:
        if activity != self._piece.activity:
            self._piece = _Clock(done, activity)
            self._next["detail"] = time.monotonic() + self.seconds  # what is done in a moment needs no line
        elif self._is_due("detail"):
            self._say(f"{activity} {_counted(done, total, unit)}  {self._piece.words(done, total)}")
        if 0 < total <= done:
            self._piece = _Clock(0.0)  # the next of this name is another one, with a time of its own

    def note(self, text: str) -> None:
        self._print(f"{visible(text)}\n")

    def _print(self, text: str) -> None:
        with suppress(BrokenPipeError):  # `| head` has seen enough; hours of training must not end with it
            print(text, end="", file=sys.stderr if self._answer_first else sys.stdout, flush=True)

    def _is_due(self, name: str) -> bool:
        now = time.monotonic()
        if due := now >= self._next[name]:
            self._next[name] = now + self.seconds
        return due

    def _say(self, text: str) -> None:
        self.note(text)


class Overwritten(Lines):
    """One line that goes back to its start, which is all that a notebook shows of a command's terminal; notes stay."""

    seconds = CELL_S

    def __init__(self) -> None:
        super().__init__()
        self._length = 0

    def __enter__(self) -> Overwritten:
        return self

    def __exit__(self, *error: object) -> None:
        self._say("")

    def note(self, text: str) -> None:
        self._say("")
        super().note(text)

    def _say(self, text: str) -> None:
        if text or self._length:
            self._print(f"\r{text:<{self._length}}" if text else f"\r{'':{self._length}}\r")
        self._length = len(text)


class Cell(Lines):
    """One line of a notebook that changes in place, by notes too: forty runs are not forty lines above the result."""

    seconds = CELL_S

    def __init__(self, display: Any) -> None:
        super().__init__()
        self._display = display
        self._handle: Any = None

    def note(self, text: str) -> None:
        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


class Bars:
    """Two bars on a terminal, for all of it and for what is being done; they go at the end, and notes stay above.

    What does not fit beside the first bar, the epoch and its numbers, stands below it.
    """

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console, RenderableType
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.table import Column
        from rich.text import Text

        class Time(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(task.fields["clock"].words(task.completed, task.total or 0.0))

        class WithLine(Progress):
            below = ""

            def get_renderables(self) -> Iterable[RenderableType]:
                yield from super().get_renderables()
                if self.below:
                    yield Text(self.below, no_wrap=True, overflow="ellipsis")

        self.console = console or Console(file=sys.stderr, highlight=False, emoji=False, markup=False)
        text = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._bar = 6 if self.console.width < 70 else 24
        self._bars = WithLine(
            BarColumn(bar_width=self._bar),
            Time(Column(no_wrap=True)),
            TextColumn("{task.description}", markup=False, table_column=text),
            console=self.console,
            transient=True,
            expand=True,
        )
        self._tasks: dict[str, Any] = {}
        self._drawn = float("-inf")

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def overall(self, done: float, total: float, text: str) -> None:
        below = ""
        if len(text) > self.console.width - self._bar - _TIME:
            text, _, below = text.partition("; " if "; " in text else ": ")
        self._bars.below = visible(below)
        self._draw("overall", "", done, total, text)

    def detail(self, activity: str, done: int, total: int, unit: str = "") -> None:
        if total and done >= total:
            if "detail" in self._tasks:
                self._bars.remove_task(self._tasks.pop("detail")[0])
        else:
            self._draw("detail", activity, done, total, f"{activity} {_counted(done, total, unit)}")

    def note(self, text: str) -> None:
        from rich.text import Text

        self.console.print(Text(visible(text)), soft_wrap=True)

    def _draw(self, bar: str, activity: str, done: float, total: float, text: str) -> None:
        task, clock = self._tasks.get(bar, (None, None))
        if clock is None or clock.activity != activity:
            clock = _Clock(done, activity)
            if task is None:
                task = self._bars.add_task(visible(text), total=None, clock=clock)
            self._tasks[bar] = task, clock
        elif time.monotonic() - self._drawn < DRAW_S and done < total:
            return
        self._drawn = time.monotonic()
        self._bars.update(task, description=visible(text), completed=done, total=total or None, clock=clock)
