"""`python tests/support/run_examples.py OUT NAME ...`: examples one after the other in one process, which imports once.

What each prints goes to OUT/NAME.txt; a complaint on stderr is the whole process's.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        print(f"{name}: ", end="", flush=True)
        with (folder / f"{name}.txt").open("w", encoding="utf-8") as printed, contextlib.redirect_stdout(printed):
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        print("ran", flush=True)
