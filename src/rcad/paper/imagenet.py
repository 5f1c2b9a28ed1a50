"""T5: ImageNet, which only a trial on other data can stand for here."""

from __future__ import annotations

from rcad.paper.benchmarks import IMAGENET
from rcad.paper.claims import CONTROLS
from rcad.paper.published import T5
from rcad.paper.suite import Column, Suite, claims

COLUMNS = (
    Column("top-1", IMAGENET, untrained=("pretrained",)),
    Column("top-5", IMAGENET, metric="top5", evaluation="calibration", untrained=("pretrained",)),
)

SUITE = Suite(
    name="T5",
    title="ImageNet, a pretrained ResNet-50 finetuned",
    about="top-1 and top-5 accuracy of ERM and RCAD after finetuning on ImageNet",
    rows=("pretrained", "ERM", "RCAD", *CONTROLS),
    columns=COLUMNS,
    published=T5,
    claims=claims(COLUMNS, T5, [("RCAD", "ERM")], better=lambda column: f"has more {column} accuracy than"),
    notes=("The pretrained network is the paper's starting point and is not run; a trial starts from scratch.",),
)
