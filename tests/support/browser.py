"""A page as a browser sees it, where there is one."""

import shutil
import subprocess
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def seen(page: Path, folder: Path, query: str = "") -> str:
    """The document after its script has run; what the browser complained about fails the test."""
    return _opened(page, folder, "--dump-dom", query=query)


def pictured(page: Path, folder: Path, width: int) -> Path:
    """A screenshot at this width."""
    picture = folder / f"{page.stem}-{width}.png"
    _opened(page, folder, f"--window-size={width},2000", f"--screenshot={picture}")
    return picture


def _opened(page: Path, folder: Path, *words: str, query: str = "") -> str:
    assert BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    # Scripts that wait for each other have so many milliseconds of the browser's own time.
    flags += ["--virtual-time-budget=8000"] if query else []
    address = f"{page.resolve().as_uri()}{query}"
    command = [BROWSER, *flags, f"--user-data-dir={folder / 'profile'}", *words, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout
