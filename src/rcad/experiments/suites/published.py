"""Numbers as the paper prints them (mean, half width of its 95% interval), to stand beside ours. Never a target."""

from __future__ import annotations

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
