"""A page as a browser sees it, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def seen(page: Path, folder: Path) -> str:
    """The document after its script has run; what the browser complained about fails the test."""
    assert BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command = [BROWSER, *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout
