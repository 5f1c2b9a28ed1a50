"""The fifteen corruptions of Hendrycks & Dietterich (2019) at five severities, generated on the device."""

from rcad.data.corrupted import CORRUPTIONS, SEVERITIES
from rcad.evaluate.corruptions.catalogue import corrupt, corrupt_numbered
from rcad.evaluate.corruptions.evaluation import CorruptionScores, Scores, evaluate_corruptions, evaluate_published

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "CorruptionScores",
    "Scores",
    "corrupt",
    "corrupt_numbered",
    "evaluate_corruptions",
    "evaluate_published",
]
