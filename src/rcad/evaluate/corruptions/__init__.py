"""The fifteen corruptions of Hendrycks & Dietterich (2019) at five severities, generated on the device."""

from rcad.data.corrupted import CORRUPTIONS as CORRUPTIONS
from rcad.data.corrupted import SEVERITIES as SEVERITIES
from rcad.evaluate.corruptions.generated import corrupt as corrupt
from rcad.evaluate.corruptions.generated import corrupt_numbered as corrupt_numbered
from rcad.evaluate.corruptions.scores import CorruptionScores as CorruptionScores
from rcad.evaluate.corruptions.scores import Scores as Scores
from rcad.evaluate.corruptions.scores import evaluate_corruptions as evaluate_corruptions
from rcad.evaluate.corruptions.scores import evaluate_published as evaluate_published
from rcad.evaluate.corruptions.scores import mce as mce
from rcad.evaluate.corruptions.scores import mean_error as mean_error
from rcad.evaluate.corruptions.scores import relative_mce as relative_mce
from rcad.evaluate.corruptions.scores import severity_curve as severity_curve
