"""The constants: complete, per size, and the published ones where they are not marked as ours."""

from __future__ import annotations

import pytest
import torch

from rcad.data.corrupted import CORRUPTIONS, SEVERITIES
from rcad.evaluate.corruptions.severities import constant, scale_of


@pytest.mark.parametrize(
    ("shape", "scale"),
    [((8, 8), "small"), ((32, 32), "small"), ((47, 200), "small"), ((48, 48), "medium"), ((64, 64), "medium"),
     ((127, 300), "medium"), ((128, 128), "large"), ((224, 224), "large")],
)  # fmt: skip
def test_the_shorter_side_chooses(shape, scale):
    assert scale_of(torch.empty(1, 3, *shape)) == scale


@pytest.mark.parametrize("scale", ["small", "medium", "large"])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_severity_has_its_own_constant(name, scale):
    assert len({constant(name, severity, scale) for severity in SEVERITIES}) == 5


def test_spot_checks_against_the_published_programs():
    assert [constant("gaussian_noise", s, "small") for s in SEVERITIES] == [0.04, 0.06, 0.08, 0.09, 0.10]
    assert [constant("shot_noise", s, "large") for s in SEVERITIES] == [60, 25, 12, 5, 3]
    assert [constant("jpeg_compression", s, "medium") for s in SEVERITIES] == [65, 58, 50, 40, 25]
    assert constant("fog", 3, "small") == (0.75, 2.5)
    assert constant("snow", 5, "small") == (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)
