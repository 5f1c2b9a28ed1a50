"""rcad: Reducing Confidence along Adversarial Directions, and every regulariser it was compared with.

>>> loss = rcad.rcad_loss(model, x, y, alpha=0.5, lam=0.02)  # doctest: +SKIP
>>> loss.backward()  # doctest: +SKIP
"""

from rcad import methods
from rcad.augment import Cutmix, Cutout, Flip, Mixup, PadCrop, augment
from rcad.composition import METHODS, Method, compose, method
from rcad.criterion import RCAD, Criterion, rcad_loss
from rcad.errors import InputError, MissingExtraError
from rcad.growth import FeatureAscent
from rcad.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from rcad.objective import Objective
from rcad.passes import frozen_batch_stats
from rcad.perturbations import GradientStep, Perturbation, ProjectedAscent, RandomStep
from rcad.terms import Losses, Term, negative_entropy, nll, uniform_cross_entropy

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "RCAD",
    "Bernoulli",
    "Categorical",
    "Criterion",
    "Cutmix",
    "Cutout",
    "FeatureAscent",
    "Flip",
    "Gaussian",
    "GradientStep",
    "InputError",
    "Likelihood",
    "Losses",
    "Method",
    "MissingExtraError",
    "Mixup",
    "Objective",
    "PadCrop",
    "Perturbation",
    "ProjectedAscent",
    "RandomStep",
    "Term",
    "augment",
    "compose",
    "frozen_batch_stats",
    "method",
    "methods",
    "negative_entropy",
    "nll",
    "rcad_loss",
    "uniform_cross_entropy",
]
