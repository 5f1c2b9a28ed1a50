"""Where the command starts and ends: every way out is one line and an exit code.

0 done; 1 unexpected, or a run diverged; 2 something the user can mend, or seeds left to another process; 130 and 143
interrupted (SIGINT, SIGTERM).
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import io
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from types import FrameType
from typing import TYPE_CHECKING, Any

from rcad.cli import SIGNALS, USUAL, end, interrupted, reason_said
from rcad.cli.screen import warn
from rcad.errors import InputError, MissingExtraError, one_line, shown
from rcad.loss.method_rows import OWN, SEARCHED
from rcad.train.place import follows
from rcad.train.stop import Interrupted, exit_code

if TYPE_CHECKING:
    import typer

log = logging.getLogger("rcad")

COMMANDS = {
    "train": "train:train",
    "predict": "finished:predict",
    "evaluate": "finished:evaluate",
    "suggest-alpha": "suggest:suggest_alpha",
    "tune": "study:tune",
    "compare": "study:compare",
    "demo": "demo:demo",
    "data": "data:app",
    "methods": "methods:app",
    "runs": "runs:app",
    "export": "finished:export",
    "push": "finished:push",
    "paper": "paper:app",
    "doctor": "doctor:doctor",
}
"""Where each command is, in the order of a newcomer's first hour; a module is imported when its command is wanted."""
TAKE_DATA = ("train", "compare", "tune", "suggest-alpha")
TRACEBACK, COMPLETION = "RCAD_TRACEBACK", "_RCAD_COMPLETE"
UNEXPECTED, USAGE, BROKEN_PIPE = 1, 2, 141
# What a path or a disk can be like, whatever the program does.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MENDABLE = (errno.ENAMETOOLONG, *FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.ELOOP)


def main() -> None:
    """The entry point of the script."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller, as in `rcad runs list >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a "±" must not end a command on a terminal without one
    with _signals_heard():
        try:
            code = run(sys.argv[1:])
        except KeyboardInterrupt as stop:  # it came while the end was being told
            code = _interrupted(stop, sys.argv[1:])
    sys.exit(code)


@contextlib.contextmanager
def _signals_heard() -> Iterator[None]:
    """A first signal raises `Interrupted`, which ends the command in one line; a second or late one ends it at once.

    So does the first during an import: packages catch what is raised inside theirs, or are left half-made by it.
    """
    _ending.clear()
    heard = [number for number in SIGNALS if signal.getsignal(number) in USUAL]
    before = {number: signal.signal(number, _interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_ending: list[bool] = []


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _ending:
        end(number)
    _ending.append(True)
    if any(inside.f_code.co_filename.startswith("<frozen importlib") for inside, _ in traceback.walk_stack(frame)):
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        if sys.stderr.isatty():  # a bar of progress hides the cursor
            sys.stderr.write("\x1b[?25h")
            sys.stderr.flush()
        end(number)
    raise Interrupted(number)


def _interrupted(stop: KeyboardInterrupt, arguments: Sequence[str]) -> int:
    _ending.append(True)
    code: int = getattr(stop, "exit_code", None) or exit_code(getattr(stop, "number", signal.SIGINT))
    _fail(str(stop) or interrupted(*arguments[:1]), code)
    reason_said()
    return code


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; at most one line goes to stderr."""
    if not any(isinstance(handler, _Warnings) for handler in log.handlers):
        log.addHandler(_Warnings())
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # Python flushes stdout once more when it ends, which must not complain again
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt as stop:
        return _interrupted(stop, arguments)
    except (InputError, MissingExtraError) as error:
        return _fail(str(error), USAGE)
    except Exception as error:
        return _unusual(error, arguments)


class _Warnings(logging.Handler):
    """Prints warnings of the engine as the command prints its own."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _invoke(arguments: Sequence[str]) -> int:
    try:
        import typer
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "typer", "cli") from None
    if COMPLETION in os.environ:  # a shell asks what could come next; Typer answers and exits
        make()(prog_name="rcad")
    # Of a command that is named no other is imported.
    command = _command(tuple(word for word in arguments[:1] if word in COMMANDS) or tuple(COMMANDS))
    try:
        # Not `app()`: that one handles Ctrl-C and closed pipes in its own way.
        with command.make_context("rcad", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


def make(names: Sequence[str] = tuple(COMMANDS)) -> typer.Typer:
    """The application with these commands."""
    import typer

    from rcad.cli.options import HELP, command, root

    app = typer.Typer(
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        help=HELP,
    )
    app.callback(invoke_without_command=True)(root)
    for name in names:
        home, _, attribute = COMMANDS[name].partition(":")
        function = getattr(import_module(f"rcad.cli.{home}"), attribute)
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=name)
        else:
            command(app, name)(function)
    return app


@functools.cache
def _command(names: tuple[str, ...]) -> Any:
    """The tree of commands, cached for processes that call `run` several times."""
    import typer

    from rcad.cli.options import plain_switches

    command = typer.main.get_command(make(names))
    plain_switches(command)
    return command


_NO_NUMBER = re.compile(r"Invalid value for '(?:-\w' / ')?(--[\w-]+)'.* valid (integer|number|float)\b")


def _refused(error: Any, arguments: Sequence[str]) -> str:
    """The parser's message, worded like all others."""
    message: str = error.format_message().rstrip(". ")
    if match := _NO_NUMBER.search(message):
        name, kind = match[1], "a whole number" if match[2] == "integer" else "a number"
        values = [b for a, b in pairwise(arguments) if a == name]
        values += [word.partition("=")[2] for word in arguments if word.startswith(f"{name}=")]
        return f"expected {name} to be {kind}, but got {', '.join(map(shown, values))}"
    if match := re.match(r"Missing (?:option|argument) '(?:-\w' / ')?(.*?)'", message):
        return f"expected {match[1]}, but it is missing"
    if match := re.match(r"Got unexpected extra argument\S* \((.*)\)", message):
        hint = f"; did you mean --data {match[1]}?" if arguments[0] in TAKE_DATA else ""
        return f"expected options, but got {match[1]!r}{hint}"
    if match := re.match(r"No such option:? '?(-[\w-]+)", message):
        name = match[1].lstrip("-")
        if name in SEARCHED and arguments[0] in ("train", "tune", "compare"):
            return f'expected an option, but got {match[1]}, which is a number of the method: e.g. "rcad({name}=0.5)"'
        near = difflib.get_close_matches(match[1], error.possibilities or (), n=1, cutoff=0.75)
        return f"expected an option, but got {match[1]}" + (f"; did you mean {near[0]}?" if near else "")
    if match := re.match(r"No such command '(.*?)'", message):
        near = difflib.get_close_matches(match[1], error.ctx.command.commands, n=1)
        return f"expected a command, but got {match[1]!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    return message


def _unusual(error: Exception, arguments: Sequence[str] = ()) -> int:
    # The parser's exceptions live in `click` or inside Typer, by version; both kinds have this method.
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        message = _refused(error, arguments)
        hint = f"{'' if message.endswith('?') else ';'} see: {context.command_path} --help" if context else ""
        return _fail(message + hint, USAGE)
    if isinstance(error, OSError) and error.filename is not None and error.errno in MENDABLE:
        words = f"expected {error.filename} to be usable, but got: {error.strerror}; name another, or fix it"
        return _fail(words, USAGE)
    if isinstance(error, OSError) and error.errno in FULL:  # what writes does not always know to which file
        words = f"expected room for what is written, but got: {error.strerror}; free some, and run it again"
        return _fail(words, USAGE)
    kind = f"{type(error).__name__}{_in_own_method(error)}"
    return _fail(f"unexpected {kind}: {error}; run it again with {TRACEBACK}=1 to see where", UNEXPECTED)


def _in_own_method(error: Exception) -> str:
    """File and line in the code of a user's own method that raised the error; else an empty text."""
    modules = {name.partition(":")[0] for name in OWN}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__") in modules:
            return f" in {os.path.relpath(frame.f_code.co_filename)}, line {line}"
    return ""


def _fail(message: str, code: int) -> int:
    if os.environ.get(TRACEBACK) not in (None, "", "0"):
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        if not follows():
            print(one_line(f"rcad: {message}"), file=sys.stderr, flush=True)
    return code
