"""`--seed 4`, `--seeds 3` (0, 1, 2) or `--seeds 3,5,7`."""

from __future__ import annotations

from collections.abc import Sequence

from rcad.errors import InputError, shown

MOST = 10_000


def parse_seeds(seed: int | None, seeds: str | None, settings: Sequence[str] | None = None) -> list[int]:
    """The seeds that were asked for; seed 0 where none was. A `--set seed=` beside them would do nothing."""
    for setting in settings or ():
        if setting.partition("=")[0].strip() == "seed":
            raise InputError(f"expected seeds from --seeds alone, but got --set {setting}; say e.g. --seeds 3,5")
    if seeds is None:
        return [0 if seed is None else seed]
    if seed is not None:
        raise InputError(f"expected --seed or --seeds, but got both ({seed} and {seeds!r}); leave one out")
    numbers = [_number(part, seeds) for part in seeds.strip().removesuffix(",").split(",")]
    if "," not in seeds:
        if not 1 <= numbers[0] <= MOST:
            raise InputError(f"expected --seeds to be 1 to {MOST} runs, but got {seeds!r}")
        return list(range(numbers[0]))
    if len(set(numbers)) < len(numbers):
        raise InputError(f"expected each of --seeds once, but got {seeds!r}; a run with the same seed is the same run")
    return numbers


def _number(text: str, whole: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise InputError(
            f"expected --seeds to be a number of runs (3) or a list of seeds (3,5,7), but got {shown(whole)}"
        )
    return int(digits)
