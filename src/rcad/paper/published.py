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
    for attacked, found in _ATTACKED.items()
    for name in [attacked.removesuffix(", attacked")]
    for column, row in ((f"{name}, clean", T1[name]), (attacked, found))
}
"""T1's models again, clean and attacked."""
P_VALUES: Mapping[tuple[str, str], Mapping[str, str]] = {
    (*one["pair"],): {**dict.fromkeys(T1, "< 1e-4"), **one["columns"]} for one in CONTENTS["p_values"]
}
UCI_NLL: dict[str, dict[str, tuple[float, float]]] = {
    name: {method: (*one,) for method, one in row.items()} for name, row in CONTENTS["T7"]["printed"].items()
}
MOONS: dict[tuple[int, float], dict[str, float]] = {
    (one["d"], one["sigma"]): one["accuracy"] for one in CONTENTS["T8"]["printed"]
}
