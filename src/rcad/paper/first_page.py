"""F1: images a growing distance up the loss, and how unsure an ERM model is there; bars of RCAD and its rivals."""

from __future__ import annotations

from rcad.paper.benchmarks import CIFAR100_2K
from rcad.paper.claims import CONTROLS
from rcad.paper.published import T4
from rcad.paper.suite import Suite, claims, columns_of

ALPHAS = (0.0, 0.05, 0.5, 1.0, 2.0, 5.0)
"""Distances at which images are shown."""
COLUMNS = columns_of((CIFAR100_2K,))
PUBLISHED = {CIFAR100_2K.name: {"DA" if row == "ERM" else row: one for row, one in T4["n=2,000"].items()}}

SUITE = Suite(
    name="F1",
    title="Perturbed images at growing alpha; RCAD and its rivals",
    about="images up the loss of an ERM model with their entropy, and bars of DA, LS, FGSM, ME-ADA and RCAD",
    rows=("DA", "LS", "FGSM", "ME-ADA", "RCAD", *CONTROLS),
    columns=COLUMNS,
    published=PUBLISHED,
    claims=claims(
        COLUMNS,
        PUBLISHED,
        [("RCAD", rival) for rival in ("DA", "LS", "FGSM", "ME-ADA")],
        control=("RCAD", "DA", CONTROLS[0]),
    ),
    notes=(
        "The figure does not say which data set its bars show; 2,000 images of CIFAR-100 are taken, and the published "
        "numbers are T4's for them. DA is ERM on augmented images.",
    ),
)
