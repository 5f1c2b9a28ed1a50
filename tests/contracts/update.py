"""Writes the tables anew: `python tests/contracts/update.py [NAME ...]`, "names" for the table of commands too."""

import os
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    os.environ["RCAD_UPDATE_CONTRACTS"] = "1"
    names = sys.argv[1:] or ("names", "config_ids", "invocations", "kept_runs", "studies")
    sys.exit(pytest.main(["-q", *(str(Path(__file__).with_name(f"test_{name}.py")) for name in names)]))
