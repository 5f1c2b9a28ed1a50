"""The reference of the command line, from the application itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from rcad.cli.main import make
from rcad_docs import table

INTRO = """# Command line

Every command of `rcad`, with its options, their defaults and examples; `rcad COMMAND --help` says the same. A test runs
each example. Exit codes: 0 done; 1 unexpected, or a run diverged; 2 something you can mend, told in one line; 130 and
143 interrupted, with everything finished kept. `RCAD_TRACEBACK=1` shows where an error came from.

"""


def pages() -> dict[str, str]:
    """The one page."""
    commands = list(_walk(typer.main.get_command(make()), ("rcad",)))
    rows = [
        [f"[`{' '.join(words)}`](#{'-'.join(words)})", _escaped(_parts(command)[0])] for words, command in commands[1:]
    ]
    chapters = [_chapter(words, command) for words, command in commands]
    return {"cli.md": "\n\n".join([INTRO.rstrip(), table(["command", "what it does"], rows), *chapters]) + "\n"}


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(child, (*words, name))


def _parts(command: Any) -> tuple[str, str, list[str]]:
    """The first sentence of the help, the rest of it, and the examples."""
    text, _, examples = (command.help or "").replace("\b", "").partition("Examples:")
    first, *more = [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]
    return first, "\n\n".join(more), [line.strip() for line in examples.splitlines() if line.strip()]


def _chapter(words: tuple[str, ...], command: Any) -> str:
    first, more, examples = _parts(command)
    name = " ".join(words)
    level = "##" if len(words) < 3 else "###"
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = [name, *(_argument(p) for p in arguments)]
    if getattr(command, "commands", None):
        usage.append("COMMAND")
    usage += ["[OPTIONS]"] if options else []
    parts = [f"{level} {name} {{: #{'-'.join(words)} }}", _escaped(first), f"```text\n{' '.join(usage)}\n```"]
    parts += [_escaped(more)] if more else []
    if arguments:
        rows = [[f"`{_argument(p)}`", _escaped(p.help or "")] for p in arguments]
        parts.append(table(["argument", "what"], rows))
    if options:
        parts.append(table(["option", "default", "what"], [_option(p) for p in options]))
    return "\n\n".join([*parts, "```sh\n" + "\n".join(examples) + "\n```"])


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> list[str]:
    names = ", ".join(option.opts)
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    default = "required" if option.required else "" if option.default in (None, False) else f"`{option.default}`"
    about = _escaped(option.help or "") + (f" From the environment: `{option.envvar}`." if option.envvar else "")
    repeated = " May be repeated." if option.multiple and "repeat" not in about else ""
    return [f"`{names}{value}`", default, about + repeated]


def _escaped(text: str) -> str:
    return re.sub(r"([*\[\]|])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")
