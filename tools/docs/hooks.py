"""What MkDocs calls while it builds the site: pages made from code and records join those of docs/.

Nothing is written into the repository. Made pages stand beside the others under the path of their source: the card
methods/rcad.md is the page methods/rcad.html.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from rcad_docs import api, cards, commands, evidence, links, made, sources

ROOT = Path(__file__).parents[2]
PAGES: dict[str, str] = {}
"""Pages that are not files of docs/, by their address in the site."""
MEDIA: dict[str, str | Path] = {}
"""Pictures and records, by address: their text, or where they lie."""


def on_config(config: Any) -> None:
    PAGES.clear()
    MEDIA.clear()
    records = evidence.pages(ROOT)
    PAGES.update(sources.pages(ROOT))
    PAGES.update({**cards.pages(ROOT), **commands.pages(), **api.pages(ROOT), **records.pages})
    MEDIA.update(records.pictures)
    written = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    config.nav = links.expand(config.nav, [*written, *PAGES], lambda page: title(config, page))


def title(config: Any, page: str) -> str:
    """The first heading of a page."""
    text = PAGES.get(page) or (Path(config.docs_dir) / page).read_text(encoding="utf-8")
    return next((line[2:] for line in text.splitlines() if line.startswith("# ")), page)


def on_files(files: Files, config: Any) -> Files:
    for address, text in PAGES.items():
        files.append(File.generated(config, address, content=text))
    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    pages.update(PAGES)
    records = [str(path.relative_to(ROOT)) for path in (ROOT / "results").glob("*/*.json")]
    for path in (*links.media(ROOT, pages), *records):
        MEDIA.setdefault(path, ROOT / path)
    for address, content in MEDIA.items():
        if isinstance(content, Path):
            files.append(File.generated(config, address, abs_src_path=str(content)))
        else:
            files.append(File.generated(config, address, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    address = page.file.src_uri
    source = address if address in PAGES else f"docs/{address}"
    return made.fill(links.rewrite(markdown, source, ROOT), address, ROOT)
