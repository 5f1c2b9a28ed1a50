"""Every block of code in README.md and docs/ runs as it stands, and prints what the page shows."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from docs.conftest import Program
from documents import PAGES, ROOT, Block, blocks, commands, run
from rcad.cli.main import make

CODE = {page: blocks(path.read_text(encoding="utf-8")) for page, path in PAGES.items()}
RUNNING = [page for page, found in CODE.items() if any(block.runs for block in found)]
FENCED = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
# A page and the package it needs that is not in `dev`; it may lie apart, in a folder of its own under sys.prefix.
APART = {"docs/stacks/timm.md": "timm"}


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING)
def test_a_page_runs_from_top_to_bottom(page: str, program: Program) -> None:
    package = APART.get(page, "torch")
    if find_spec(package) is None and not (Path(sys.prefix) / package).is_dir():
        pytest.skip(f"{package} is not installed")
    code = "\n".join(block.code for block in CODE[page] if block.runs and block.language != "sh")
    code, _, said = program(f"import documents; documents.page({page!r})", like=code)
    assert code == 0, said[-3000:]
    assert said.endswith("all blocks ran\n")


def test_few_blocks_are_skipped_no_python_hides_under_another_name_and_code_fits_a_small_screen() -> None:
    """94 characters are what a block of the site shows at 1280 pixels; the rest would have to be scrolled to."""
    every = [(page, block) for page, found in CODE.items() for block in found]
    assert not {block.language for _, block in every} & {"py", "python3", "pycon"}  # which would not run
    skipped = [(page, block.skip) for page, block in every if block.skip]
    assert len(skipped) <= 6, skipped
    assert all(len(why) > 10 for _, why in skipped)
    shown = [
        (page, block.code) for page, block in every if page.startswith("docs/") and block.language in ("python", "sh")
    ]
    assert [(page, line) for page, code in shown for line in code.splitlines() if len(line) > 94] == []


@pytest.mark.parametrize("page", [*PAGES, *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("methods/*.md"))])
def test_a_link_leads_to_a_file_of_the_repository(page: str) -> None:
    """Also where no site is built, as on a code host."""
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#\s]+)", FENCED.sub("", path.read_text(encoding="utf-8"))):
        assert target.startswith("https://") or (path.parent / target).exists(), f"{page} links to {target}"


def _commands() -> list[tuple[str, int, list[str]]]:
    every = [(page, block) for page, found in CODE.items() for block in found if block.language == "sh"]
    return [(page, block.line, words) for page, block in every for words in commands(block.code)]


@pytest.mark.parametrize(
    ("page", "line", "words"), _commands(), ids=lambda value: str(value) if isinstance(value, str) else ""
)
def test_a_command_has_only_options_that_exist(page: str, line: int, words: list[str]) -> None:
    command, name, rest = typer.main.get_command(make()), "rcad", list(words)
    while getattr(command, "commands", None) and rest:
        assert rest[0] in command.commands, f"{page}, line {line}: rcad {' '.join(words)}"
        name, rest = rest[0], rest[1:]
        command = command.commands[name]
    command.make_context(name, rest)


def test_blocks_are_read_with_their_marks() -> None:
    words = 'rcad runs list --runs "a b" \\\n     --json  # a comment\nmake test\n'
    parts = [
        "<!-- setup\nx = 1\n-->",
        "```python\nprint(x)\n```",
        "```text\n1\n```",
        "<!-- skip: it needs a device -->\n```python\nfail()\n```",
        f"<!-- run -->\n```sh\n{words}```",
    ]
    assert blocks("\n\n".join(parts)) == [
        Block("setup", "x = 1\n", 1),
        Block("python", "print(x)\n", 5, output="1\n"),
        Block("python", "fail()\n", 14, skip="it needs a device"),
        Block("sh", words, 19, run=True),
    ]
    assert commands(words) == [["runs", "list", "--runs", "a b", "--json"]]


def test_a_page_with_another_output_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setitem(PAGES, "page", page)
    page.write_text("```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    run("page")
    page.write_text(page.read_text().replace("x = 2", "x = 3"), encoding="utf-8")
    with pytest.raises(SystemExit, match="page, line 5"):
        run("page")
