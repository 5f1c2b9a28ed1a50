"""The documentation site builds without a warning, every link in it leads somewhere, and it needs no other host."""

import importlib
import multiprocessing
import os
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from filelock import FileLock

pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

from browser import BROWSER, Tree, pictured, seen
from rcad import METHODS
from rcad import __all__ as PUBLIC
from rcad_docs import evidence

ROOT = Path(__file__).parents[2]
MACHINE_PATH = re.compile(r"/(?:tmp|root|home|Users)/")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; workers of one run share it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = base / "site", base / "site.built"
    with FileLock(base / "site.lock"):
        if not done.exists():
            _build(folder)
            done.touch()
    return folder


def _build(folder: Path) -> None:
    before, said = _sources(), folder.with_name("site.err")
    kinds = {name.rpartition("-")[2]: name for name in evidence.figures(ROOT)}
    process = multiprocessing.get_context("fork").Process(target=_mkdocs, args=(folder, said, set(kinds.values())))
    process.start()
    process.join()
    assert process.exitcode == 0, said.read_text(encoding="utf-8")
    assert "WARNING" not in said.read_text(encoding="utf-8")
    assert before == _sources(), "the build wrote into the repository"


def _mkdocs(folder: Path, said: Path, drawn: set[str]) -> None:
    """`mkdocs build` in a copy of this process, which has the report; of each kind of picture one is drawn."""
    with said.open("w") as file:
        os.dup2(file.fileno(), 2)
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    os.chdir(ROOT)
    # A proxy that nobody answers: a build that reads from the network fails.
    os.environ |= dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    draw, blank = evidence.drawing, '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 300"></svg>'
    evidence.drawing = lambda root, name: draw(root, name) if name in drawn else blank
    build = importlib.import_module("mkdocs.__main__").cli
    build(["build", "--strict", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(folder)])


def _sources() -> set[Path]:
    return {path for folder in ("docs", "methods", "tools") for path in (ROOT / folder).rglob("*.[!p]*")}


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Tree]:
    return {path: Tree(path.read_text(encoding="utf-8"), ours=False) for path in sorted(site.rglob("*.html"))}


def test_every_link_leads_to_a_file_and_a_place_and_nothing_is_loaded_from_another_host(
    site: Path, pages: dict[Path, Tree]
) -> None:
    count = 0
    for path, page in pages.items():
        for tag, link in page.links:
            parts, where = urlsplit(link), f"{path.relative_to(site)} -> {link}"
            assert tag == "a" or not parts.netloc, where
            if parts.scheme or parts.netloc or path.name == "404.html":  # its links start at the root of a server
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            assert target.is_file(), where
            if place and target in pages and not place.startswith("__"):
                assert place in pages[target].ids, where
    assert count > 1000
    for path in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path.name


def test_pages_are_filled_and_say_nothing_of_this_machine(site: Path, pages: dict[Path, Tree]) -> None:
    for path, page in pages.items():
        text = path.read_text(encoding="utf-8")
        for words in ("<!-- made:", str(ROOT), f"{Path.home()}/"):
            assert words not in text, path.relative_to(site)
        found = MACHINE_PATH.search(" ".join(page.words))
        assert found is None, f"{path.relative_to(site)}: {found}"


def test_every_public_name_command_and_method_has_its_place(site: Path, pages: dict[Path, Tree]) -> None:
    core = pages[site / "api" / "rcad.html"].ids
    homes = {one.rsplit(".", 1)[-1] for one in core}
    assert set(PUBLIC) - {"methods", "METHODS"} <= homes
    assert {f"rcad.methods.{name}" for name in METHODS} <= {*pages[site / "api" / "recipes.html"].ids}
    assert all((site / "methods" / f"{name}.html").is_file() for name in METHODS)
    from contracts.house import commands

    expected = {"-".join(("rcad", *words)) for words, _ in commands()}
    assert expected <= {*pages[site / "cli.html"].ids}
    options = {option for _, one in commands() for p in one.params for option in p.opts if option.startswith("--")}
    text = "".join(pages[site / "cli.html"].words)
    assert all(option in text for option in options)


@pytest.mark.skipif(BROWSER is None, reason="no browser here")
@pytest.mark.parametrize("page", ["index.html", "evidence/index.html"])
def test_a_browser_opens_it_from_the_disk_without_a_complaint(page: str, site: Path, tmp_path: Path) -> None:
    assert "md-container" in seen(site / page, tmp_path)
    assert pictured(site / page, tmp_path, 390).stat().st_size > 20_000


@pytest.mark.skipif(BROWSER is None, reason="no browser here")
@pytest.mark.parametrize(
    ("start", "words", "page"),
    [("methods/rcad.html", "predict_interval", "stacks/sklearn.html"), ("index.html", "nats", "glossary.html")],
)
def test_search_from_the_disk_finds_the_page(start: str, words: str, page: str, site: Path, tmp_path: Path) -> None:
    text = seen(site / start, tmp_path, f"?q={words}")
    assert re.search(rf'<a href="[^"]*{page}\?[^"]*" class="md-search-result__link"', text)
