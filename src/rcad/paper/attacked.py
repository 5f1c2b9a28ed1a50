"""T6: accuracy under a small FGSM attack."""

from __future__ import annotations

from rcad.paper.benchmarks import CIFAR10, CIFAR100, CIFAR100_2K
from rcad.paper.claims import CONTROLS
from rcad.paper.published import T6
from rcad.paper.suite import Column, Suite, claims

METRIC = "accuracy_under_fgsm_0.05"
"""Of all examples, also those that were wrong before: the attack may put them right, and the paper counts them."""
CLEAN = tuple(Column(f"{one.name}, clean", one) for one in (CIFAR100_2K, CIFAR100, CIFAR10))
ATTACKED = tuple(Column(f"{one.name}, attacked", one, METRIC, "attacks") for one in (CIFAR100_2K, CIFAR100, CIFAR10))
COLUMNS = tuple(column for pair in zip(CLEAN, ATTACKED, strict=True) for column in pair)

SUITE = Suite(
    name="T6",
    title="An FGSM attack of size 0.05, ResNet-18",
    about="accuracy on clean and on attacked test images of models trained by ERM, FGSM, ADA, ME-ADA and RCAD",
    rows=("ERM", "FGSM", "ADA", "ME-ADA", "RCAD", *CONTROLS),
    columns=COLUMNS,
    published=T6,
    claims=claims(
        ATTACKED,
        T6,
        [("RCAD", rival) for rival in ("ERM", "FGSM", "ADA", "ME-ADA")],
        better=lambda column: "withstands the attack better than",
    ),
    notes=(
        "One weak attack: it says nothing about robustness. Stronger ones, and signs of masked gradients, are in the "
        "evaluation of a run.",
        "The paper calls 0.05 the attack's l1 norm; here every pixel moves by 0.05, which is what FGSM does.",
    ),
)
