"""A page: its tags and texts; and as a browser sees it, where there is one."""

import json
import re
import shutil
import subprocess
from collections import defaultdict
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Tree(HTMLParser):
    """Tags with their attributes, text by tag, what a reader sees, ids, links. Our own tags close as they open."""

    def __init__(self, page: str, *, ours: bool = True) -> None:
        super().__init__()
        self.ours, self.text = ours, defaultdict[str, list[str]](list)
        self.open, self.words, self.ids = list[str](), list[str](), list[str]()
        self.tags, self.links = list[tuple[str, dict[str, str | None]]](), list[tuple[str, str]]()
        self.feed(page)
        self.close()
        assert self.open == [] or not ours

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self.ids += filter(None, [found.get("id")])
        self.links += [(tag, found[name] or "") for name in ("href", "src", "xlink:href") if name in found]

    def handle_endtag(self, tag: str) -> None:
        if self.ours:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text[self.open[-1]].append(data)
        if self.cdata_elem is None:  # script, style
            self.words.append(data)

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def seen(page: Path, folder: Path, query: str = "") -> str:
    """The document after its script has run; what the browser complained about fails the test."""
    return _opened(page, folder, "--dump-dom", query=query)


def probed(text: str, script: str, folder: Path) -> Any:
    """What a script finds in a page; the page's policy, which lets no other script in, gives way to it."""
    path = folder / "page.html"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    probe = f"<script>{script}; document.title = JSON.stringify(told);</script></body>"
    path.write_text(text.replace("</body>", probe), encoding="utf-8")
    (title,) = re.findall("<title>(.*?)</title>", seen(path, folder)[:5000])
    return json.loads(unescape(title))


def pictured(page: Path, folder: Path, width: int) -> Path:
    picture = folder / f"{page.stem}-{width}.png"
    _opened(page, folder, f"--window-size={width},2000", f"--screenshot={picture}")
    return picture


def _opened(page: Path, folder: Path, *words: str, query: str = "") -> str:
    assert BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    # Scripts that wait for each other have so many milliseconds of the browser's own time.
    flags += [f"--user-data-dir={folder / 'profile'}", *(["--virtual-time-budget=8000"] if query else [])]
    command = [BROWSER, *flags, *words, f"{page.resolve().as_uri()}{query}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout
