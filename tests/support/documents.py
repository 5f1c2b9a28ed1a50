"""The code of README.md and docs/: its blocks, their marks, and how they run.

Marks are HTML comments, which no renderer shows:

    <!-- setup                  code that a page takes for granted; runs where it stands
    model = ...
    -->
    <!-- skip: why -->          the next block does not run
    <!-- run -->                the `rcad` lines of the next sh block run, in this process

A text block right after a block that ran is its output. "..." in it stands for anything on that line, or, alone, for
any lines.
"""

import ast
import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import multiprocessing
import os
import re
import shlex
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))}
_BLOCK = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|^<!-- (?P<mark>run|skip: [^\n]+) -->$"
    r"|^(?P<fence>```+)(?P<language>[\w+-]*)[^\n]*\n(?P<code>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
# What the package imports by itself, the first with an optimizer.
USED = ["torch._dynamo", "sklearn.datasets", "scipy.stats", "pandas", "jinja2", "matplotlib.figure", "safetensors"]
SHORTER = {
    "docs/start.md": [
        ("--seeds 5 --epochs 10", "--seeds 2 --epochs 2"),
        ("--method rcad --epochs 10\nrcad predict", "--method rcad --epochs 2\nrcad predict"),
        ("seeds=3, epochs=20", "seeds=2, epochs=2"),
        ("--seeds 3 --epochs 20 --budget 2", "--seeds 2 --epochs 1 --budget 2"),
    ],
    "own_loop": [("SEEDS, EPOCHS, LAM = 100, 8, 100, 0.5", "SEEDS, EPOCHS, LAM = 100, 3, 40, 0.5")],
    "captured_loop": [("EPOCHS, BATCH, ALPHA, LAM, CLIP, DECAY = 40,", "EPOCHS, BATCH, ALPHA, LAM, CLIP, DECAY = 25,")],
    "regression": [("SEEDS, EPOCHS, ALPHA, LAM = 5, 40,", "SEEDS, EPOCHS, ALPHA, LAM = 3, 20,")],
    "compose": [("EPOCHS, CLASSES = 20,", "EPOCHS, CLASSES = 8,")],
    "scikit_learn": [('max_iter=100), {"lam"', 'max_iter=20), {"lam"')],
    "skorch_grid": [('"max_epochs": 30', '"max_epochs": 12')],
    "lightning_trainer": [('0.5)", 100, 60', '0.5)", 100, 40')],
    "lightning_fabric": [("100, 60, 2", "100, 40, 2")],
    "accelerate_loop": [("100, 60, 0.5", "100, 40, 0.5")],
    "huggingface_text": [('"num_train_epochs": 15', '"num_train_epochs": 10')],
}
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]\d+)?%?|e[+-]\d+|%)(?![\w.]*\w)")


class Block(NamedTuple):
    """One block: `language` of the fence, "setup" for hidden code; where it starts; why it does not run, or ""; whether
    its commands run; what it must print, or None."""

    language: str
    code: str
    line: int
    skip: str = ""
    run: bool = False
    output: str | None = None

    @property
    def runs(self) -> bool:
        return not self.skip and (self.language in ("python", "setup") or self.run)


def blocks(text: str) -> list[Block]:
    result: list[Block] = []
    mark, end = "", 0
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        apart = text[end : match.start()].strip()
        if match["mark"]:
            mark = match["mark"]
        elif match["setup"] is not None:
            result.append(Block("setup", match["setup"], line))
        elif match["language"] == "text" and result and not apart and result[-1].runs:
            result[-1] = result[-1]._replace(output=match["code"])
        else:
            assert not mark or not apart, f"line {line}: expected the mark {mark!r} right before a block"
            skip = mark.removeprefix("skip: ") if mark != "run" else ""
            result.append(Block(match["language"], match["code"], line, skip, mark == "run"))
            mark = ""
        end = match.end()
    return result


def commands(code: str) -> list[list[str]]:
    """The `rcad` commands of an sh block, as words; a backslash joins lines, a comment ends one."""
    lines = [shlex.split(line, comments=True) for line in code.replace("\\\n", " ").splitlines()]
    return [words[1:] for words in lines if words[:1] == ["rcad"]]


def matches(expected: str, printed: str) -> bool:
    """Whether this was printed; numbers with a fraction, a percent sign or an exponent may be a little off."""
    lines = [line.rstrip() for line in expected.strip().splitlines()]
    patterns = ["(?:.*\n)*?" if line == "..." else ".*".join(map(_pattern, line.split("..."))) + "\n" for line in lines]
    match = re.fullmatch("".join(patterns), "".join(line.rstrip() + "\n" for line in printed.strip().splitlines()))
    return match is not None and all(map(_near, _NUMBER.findall(expected.replace("...", " ")), match.groups()))


def _pattern(text: str) -> str:
    """The text, with a group for each number that another processor may round another way."""
    return f"({_NUMBER.pattern})".join(map(re.escape, _NUMBER.split(text)))


def _near(expected: str, printed: str) -> bool:
    """Within 5%, or two units of the last place of the page's number."""
    digits, _, power = expected.rstrip("%").partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    number, other = (float(one.rstrip("%")) for one in (expected, printed))
    return abs(number - other) <= max(2.001 * unit, 0.05 * abs(number))


def run(page: str) -> None:
    """Run the blocks of a page one after the other, and hold their output against the page's."""
    names: dict[str, object] = {"__name__": "__main__", "run_commands": _run_commands}
    for block in blocks(shorter(page, PAGES[page].read_text(encoding="utf-8"))):
        printed = io.StringIO()
        code = f"run_commands({commands(block.code)!r})" if block.run else block.code
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + code if block.runs else "", page, "exec"), names)
        if block.output is not None and not matches(block.output, printed.getvalue()):
            place = f"{page}, line {block.line}"
            raise SystemExit(f"{place}: the page shows\n{block.output}but it printed\n{printed.getvalue()}")


def _run_commands(lines: list[list[str]]) -> None:
    for words in lines:
        assert importlib.import_module("rcad.cli.main").run(words) == 0, words


def page(name: str) -> None:
    import torch

    warnings.filterwarnings("error", module="rcad")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # The tracer is what can fail on our code; the inductor backend has its own tests and takes a compiler and a minute.
    torch.compile = functools.partial(torch.compile, backend="eager")
    with contextlib.suppress(ImportError):  # pictures have tests of their own too, and take half of a comparison's time
        importlib.import_module("matplotlib.figure").Figure.savefig = lambda self, file, **_: file.write(b"<svg></svg>")
    run(name)
    print("all blocks ran", file=sys.stderr)


def example(name: str) -> None:
    """An example, in a process of its own; one that needs timm finds it where `make` put it."""
    path = EXAMPLES / f"{name}.py"
    program = compile(shorter(name, path.read_text(encoding="utf-8")), str(path), "exec")
    exec(program, {"__name__": "__main__", "__file__": str(path)})


def shorter(name: str, text: str) -> str:
    """The text with fewer seeds and epochs than it stands with, where those are many and their numbers not shown."""
    for long, short in SHORTER.get(name, ()):
        assert long in text, f"{name} no longer says {long}"
        text = text.replace(long, short)
    return text


def imported(code: str) -> list[str]:
    """The modules of others that a program names in its import statements; ours it imports under its own warnings."""
    found = list(ast.walk(ast.parse(code)))
    names = {alias.name for node in found if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in found if isinstance(node, ast.ImportFrom) and node.module}
    return sorted(name for name in names if name.partition(".")[0] != "rcad")


def serve() -> None:
    """Programs from stdin, in copies of this process: imports are for all. The answer is the exit code.

    What is said on stderr, by the imports too, goes to `err` in the program's folder, what is printed to `out`.
    """
    import rcad.cli.main
    import rcad.train.run  # noqa: F401

    gc.set_threshold(10_000, 10, 10)
    for line in sys.stdin:
        given = json.loads(line)
        with open(Path(given["folder"], "err"), "w") as err:
            os.dup2(err.fileno(), 2)
        for name in (*USED, *given["imports"]):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.freeze()
        copy = multiprocessing.get_context("fork").Process(target=_run_program, kwargs=given)
        copy.start()
        copy.join()
        print(copy.exitcode, flush=True)


def _run_program(program: str, folder: str, port: str, imports: list[str]) -> None:
    with open(Path(folder, "out"), "w") as out:
        os.dup2(out.fileno(), 1)
    os.chdir(folder)
    os.environ |= {"MASTER_PORT": port, "RCAD_CACHE": str(Path(folder, "cache"))}
    exec(program, {"__name__": "__main__"})
    gc.collect()
    atexit._run_exitfuncs()  # what is said at the end counts too; taking apart all that was imported takes a second


if __name__ == "__main__":
    serve()
