"""Numbers as the paper prints them, to stand beside ours. Never a target. By column, then row, of each table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

RUNS = 10
"""Independent runs behind a mean of T1 to T4 and T6."""
IMAGENET_RUNS = 7


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
_Row = tuple[tuple[float, float], ...]


def _table(methods: str, cells: Mapping[str, _Row], n: int) -> Table:
    names = methods.split(", ")
    return {
        column: {name: Printed(mean, half, n) for name, (mean, half) in zip(names, row, strict=True)}
        for column, row in cells.items()
    }


T1 = _table(
    "ERM, FGSM, ADA, ME-ADA, RCAD",
    {
        "CIFAR-100-2k": ((28.5, 0.12), (27.1, 0.08), (28.7, 0.12), (29.4, 0.11), (30.4, 0.09)),
        "CIFAR-100-10k": ((60.4, 0.09), (57.6, 0.09), (60.0, 0.10), (60.4, 0.08), (61.9, 0.06)),
        "Tiny ImageNet": ((66.4, 0.07), (62.4, 0.07), (66.5, 0.08), (66.9, 0.10), (67.3, 0.07)),
        "CIFAR-10": ((95.2, 0.04), (93.1, 0.04), (95.2, 0.03), (95.6, 0.05), (95.7, 0.04)),
        "CIFAR-100": ((76.4, 0.05), (73.2, 0.05), (76.5, 0.05), (77.1, 0.07), (77.3, 0.05)),
        "SVHN": ((97.5, 0.02), (95.4, 0.02), (97.5, 0.02), (97.4, 0.04), (97.6, 0.02)),
    },
    RUNS,
)
"""Adversarial rivals, ResNet-18: test accuracy in percent."""

T2 = _table(
    "ME-ADA + LS, RCAD + LS",
    {
        "CIFAR-100-2k": ((30.5, 0.13), (32.2, 0.11)),
        "CIFAR-100-10k": ((61.15, 0.07), (63.1, 0.08)),
        "Tiny ImageNet": ((67.1, 0.08), (67.9, 0.07)),
        "CIFAR-10": ((95.65, 0.04), (95.7, 0.03)),
        "CIFAR-100": ((77.8, 0.06), (79.1, 0.06)),
        "SVHN": ((97.42, 0.04), (97.6, 0.02)),
    },
    RUNS,
)
"""With label smoothing: test accuracy in percent."""

T3 = _table(
    "ERM, ME-ADA, RCAD",
    {
        "CIFAR-100-2k": ((30.2, 0.10), (31.8, 0.07), (32.3, 0.08)),
        "CIFAR-100-10k": ((62.5, 0.07), (62.6, 0.08), (62.9, 0.05)),
        "CIFAR-100": ((81.2, 0.07), (81.0, 0.07), (81.4, 0.06)),
    },
    RUNS,
)
"""Wide ResNet 28-10: test accuracy in percent."""

T4 = _table(
    "ERM, LS, FGSM, ME-ADA, RCAD",
    {
        "n=500": ((11.9, 0.06), (13.5, 0.08), (13.2, 0.06), (13.1, 0.06), (14.8, 0.08)),
        "n=1,000": ((18.9, 0.07), (19.7, 0.07), (18.4, 0.08), (18.6, 0.08), (21.3, 0.05)),
        "n=2,000": ((28.5, 0.05), (29.2, 0.07), (27.1, 0.07), (29.4, 0.05), (30.4, 0.05)),
        "n=5,000": ((52.2, 0.07), (52.7, 0.06), (50.9, 0.07), (51.4, 0.06), (53.6, 0.05)),
        "n=10,000": ((60.4, 0.07), (61.5, 0.06), (57.6, 0.06), (60.4, 0.07), (61.9, 0.06)),
        "n=50,000": ((76.4, 0.07), (77.4, 0.08), (73.2, 0.08), (77.1, 0.07), (77.7, 0.06)),
    },
    RUNS,
)
"""Subsets of CIFAR-100: test accuracy in percent. RCAD at 50,000 is 77.3 in T1 and 77.7 here, as printed."""

T5 = _table(
    "pretrained, ERM, RCAD",
    {"top-1": ((69.81, 0.07), (77.45, 0.05), (77.76, 0.06)), "top-5": ((89.24, 0.06), (93.21, 0.04), (93.29, 0.05))},
    IMAGENET_RUNS,
)
"""ImageNet, a pretrained ResNet-50, finetuned: accuracy in percent."""

T6 = _table(
    "ERM, FGSM, ADA, ME-ADA, RCAD",
    {
        "CIFAR-100-2k, clean": ((28.5, 0.12), (27.1, 0.08), (28.7, 0.12), (29.4, 0.11), (30.4, 0.09)),
        "CIFAR-100-2k, attacked": ((24.7, 0.10), (27.2, 0.08), (27.0, 0.08), (27.6, 0.11), (28.1, 0.10)),
        "CIFAR-100, clean": ((76.4, 0.05), (73.2, 0.05), (76.5, 0.05), (77.1, 0.07), (77.3, 0.05)),
        "CIFAR-100, attacked": ((67.4, 0.07), (73.1, 0.04), (72.7, 0.05), (74.8, 0.03), (74.5, 0.04)),
        "CIFAR-10, clean": ((95.2, 0.04), (93.1, 0.04), (95.2, 0.03), (95.6, 0.05), (95.7, 0.04)),
        "CIFAR-10, attacked": ((88.3, 0.03), (92.9, 0.04), (88.1, 0.04), (93.1, 0.04), (93.0, 0.03)),
    },
    RUNS,
)
"""Accuracy in percent on clean test images and under an FGSM attack of size 0.05."""

_SMALL = dict.fromkeys((name for name in T1 if name != "CIFAR-10"), "< 1e-4")
P_VALUES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("RCAD", "ME-ADA"): {**_SMALL, "CIFAR-10": "0.009"},
    ("RCAD + LS", "ME-ADA + LS"): {**_SMALL, "CIFAR-10": "0.0478"},
}
"""Section 4.2, on the best rival, for T1 and T2."""

UCI_NLL: dict[str, dict[str, tuple[float, float]]] = {
    "boston": {"erm": (2.85, 0.06), "me_ada": (3.01, 0.04), "rcad": (2.60, 0.05)},
    "concrete": {"erm": (3.25, 0.07), "me_ada": (3.14, 0.03), "rcad": (3.12, 0.04)},
    "energy": {"erm": (1.85, 0.03), "me_ada": (1.99, 0.06), "rcad": (1.75, 0.07)},
    "wine": {"erm": (0.97, 0.04), "me_ada": (1.11, 0.05), "rcad": (1.09, 0.05)},
    "yacht": {"erm": (1.66, 0.04), "me_ada": (1.78, 0.04), "rcad": (1.54, 0.05)},
}
"""T7: test negative log-likelihood, lower is better."""

MOONS: dict[tuple[int, float], dict[str, float]] = {
    (625, 0.10): {"erm": 80.4, "fgsm": 78.8, "me_ada": 90.9, "rcad": 94.9},
    (625, 0.75): {"erm": 77.8, "fgsm": 77.9, "me_ada": 84.4, "rcad": 89.6},
    (1000, 0.10): {"erm": 74.3, "fgsm": 72.0, "me_ada": 83.5, "rcad": 87.1},
}
"""T8: test accuracy in percent by (d, sigma), from 20,000 examples."""
