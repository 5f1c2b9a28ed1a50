"""The fifteen corruptions of Hendrycks & Dietterich (2019) at five severities, generated on the device."""

from rcad.data.corrupted import CORRUPTIONS, SEVERITIES
from rcad.evaluate.corruptions.generated import corrupt, corrupt_numbered
from rcad.evaluate.corruptions.scores import (
    CorruptionScores,
    Scores,
    evaluate_corruptions,
    evaluate_published,
    mce,
    mean_error,
    relative_mce,
    severity_curve,
)

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "CorruptionScores",
    "Scores",
    "corrupt",
    "corrupt_numbered",
    "evaluate_corruptions",
    "evaluate_published",
    "mce",
    "mean_error",
    "relative_mce",
    "severity_curve",
]
