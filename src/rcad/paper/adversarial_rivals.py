"""T1: RCAD against ERM and the methods that train on adversarial examples."""

from __future__ import annotations

from rcad.paper.benchmarks import SIX, SUBSETS_DRAWN
from rcad.paper.claims import CONTROLS
from rcad.paper.published import T1
from rcad.paper.suite import Suite, claims, columns_of

COLUMNS = columns_of(SIX)

SUITE = Suite(
    name="T1",
    title="Adversarial rivals, ResNet-18",
    about="test accuracy of RCAD, FGSM training, ADA and ME-ADA on six image sets",
    rows=("ERM", "FGSM", "ADA", "ME-ADA", "RCAD", *CONTROLS),
    columns=COLUMNS,
    published=T1,
    claims=claims(COLUMNS, T1, [("RCAD", rival) for rival in ("ERM", "FGSM", "ADA", "ME-ADA")]),
    notes=(
        SUBSETS_DRAWN,
        "SVHN: the released program trains on the extra images as well, 604,388 in all; here on the 73,257 training "
        "images, with that program's learning rate, which drops at epochs 80 and 120.",
    ),
)
