"""Each kind of damage on each kind of file is healed, or named with the command that heals it."""

from __future__ import annotations

import json
from pathlib import Path

from attack.damage import RECORD, matrix


def test_every_damage_is_healed_or_named_as_the_page_says(tmp_path: Path) -> None:
    found = matrix(tmp_path)
    assert {one["how"] for row in found.values() for one in row["damages"].values()} == {"healed", "named"}
    assert found == json.loads(RECORD.read_text(encoding="utf-8")), "python tests/attack/damage.py writes it anew"
