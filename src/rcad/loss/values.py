"""Values that print as one would write them: only what differs from the defaults."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any


class Value:
    """Mixin for frozen dataclasses (declared with repr=False): a short, exact `repr`."""

    def __repr__(self) -> str:
        shown = [f for f in fields(self) if _differs(f, getattr(self, f.name))]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"


def _differs(field: Any, value: Any) -> bool:
    return field.default is MISSING or value != field.default
