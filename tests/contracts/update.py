"""Write the tables anew from the present code: `python tests/contracts/update.py [NAME ...]`.

For a change of a contract that is meant; what git shows of it is what there is to review.
"""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
os.environ.setdefault("OMP_NUM_THREADS", "1")
pytest_options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
sys.path[:1] = [str(ROOT / folder) for folder in pytest_options["pythonpath"]]
NAMES = ("names", "commands", "config_ids", "invocations", "kept_runs", "studies")

if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        importlib.import_module(f"contracts.test_{name}").update()
        print(f"tests/contracts/tables/{name}.json")
