"""Numbers as the paper prints them (paper.toml), to stand beside ours. Never a target. By column, then row."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Printed(NamedTuple):
    """A printed number.

    Attributes:
        half: half the width of its 95% interval; None where none is printed.
        n: runs behind it; None where the paper does not say.
    """

    mean: float
    half: float | None = None
    n: int | None = None


Table = Mapping[str, Mapping[str, Printed]]
CONTENTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
"""All that the file holds."""


def _table(name: str) -> dict[str, dict[str, Printed]]:
    methods, runs, columns = (CONTENTS[name]["printed"][key] for key in ("methods", "runs", "columns"))
    return {
        column: {method: Printed(mean, half, runs) for method, (mean, half) in zip(methods, row, strict=True)}
        for column, row in columns.items()
    }


T1, T2, T3, T4, T5, _ATTACKED = map(_table, ("T1", "T2", "T3", "T4", "T5", "T6"))
T6 = {
    column: row
    for attacked, rows in _ATTACKED.items()
    for name in [attacked.removesuffix(", attacked")]
    for column, row in ((f"{name}, clean", T1[name]), (attacked, rows))
}
"""T1's models again, clean and attacked."""
T7: Table = {
    column: {method: Printed(*pair) for method, pair in row.items()}
    for column, row in CONTENTS["T7"]["printed"].items()
}
T8: dict[tuple[int, float], dict[str, Printed]] = {
    (cell["d"], cell["sigma"]): {method: Printed(mean) for method, mean in cell["accuracy"].items()}
    for cell in CONTENTS["T8"]["printed"]
}
"""By dimensions and noise, then row."""
P_VALUES: Mapping[tuple[str, str], Mapping[str, str]] = {
    (*entry["pair"],): {**dict.fromkeys(T1, "< 1e-4"), **entry["columns"]} for entry in CONTENTS["p_values"]
}
