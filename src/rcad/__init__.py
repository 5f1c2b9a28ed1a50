"""rcad: Reducing Confidence along Adversarial Directions, and every regulariser it was compared with.

>>> loss = rcad.rcad_loss(model, x, y, alpha=0.5, lam=0.02)  # doctest: +SKIP
>>> loss.backward()  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rcad import methods as methods
    from rcad.alpha import suggest_alpha as suggest_alpha
    from rcad.augmentations import Cutmix as Cutmix
    from rcad.augmentations import Cutout as Cutout
    from rcad.augmentations import Flip as Flip
    from rcad.augmentations import Mixup as Mixup
    from rcad.augmentations import PadCrop as PadCrop
    from rcad.augmentations import augment as augment
    from rcad.criterion import RCAD as RCAD
    from rcad.criterion import Criterion as Criterion
    from rcad.criterion import rcad_loss as rcad_loss
    from rcad.errors import InputError as InputError
    from rcad.errors import MissingExtraError as MissingExtraError
    from rcad.growth import FeatureAscent as FeatureAscent
    from rcad.likelihoods import Bernoulli as Bernoulli
    from rcad.likelihoods import Categorical as Categorical
    from rcad.likelihoods import Gaussian as Gaussian
    from rcad.likelihoods import Likelihood as Likelihood
    from rcad.methods import METHODS as METHODS
    from rcad.methods import Method as Method
    from rcad.methods import compose as compose
    from rcad.methods import method as method
    from rcad.objective import Objective as Objective
    from rcad.passes import frozen_batch_stats as frozen_batch_stats
    from rcad.perturbations import GradientStep as GradientStep
    from rcad.perturbations import Perturbation as Perturbation
    from rcad.perturbations import ProjectedAscent as ProjectedAscent
    from rcad.perturbations import RandomStep as RandomStep
    from rcad.terms import Losses as Losses
    from rcad.terms import Term as Term
    from rcad.terms import negative_entropy as negative_entropy
    from rcad.terms import nll as nll
    from rcad.terms import uniform_cross_entropy as uniform_cross_entropy

__version__ = "0.1.0"

# The names are imported when they are first used, so that `rcad --help` need not wait for torch.
_HOMES = {
    "alpha": ("suggest_alpha",),
    "augmentations": ("Cutmix", "Cutout", "Flip", "Mixup", "PadCrop", "augment"),
    "criterion": ("RCAD", "Criterion", "rcad_loss"),
    "errors": ("InputError", "MissingExtraError"),
    "growth": ("FeatureAscent",),
    "likelihoods": ("Bernoulli", "Categorical", "Gaussian", "Likelihood"),
    "methods": ("METHODS", "Method", "compose", "method"),
    "objective": ("Objective",),
    "passes": ("frozen_batch_stats",),
    "perturbations": ("GradientStep", "Perturbation", "ProjectedAscent", "RandomStep"),
    "terms": ("Losses", "Term", "negative_entropy", "nll", "uniform_cross_entropy"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME), "methods"]


def __getattr__(name: str) -> Any:
    if name == "methods":
        return import_module("rcad.methods")
    if name not in _HOME:
        raise AttributeError(f"module 'rcad' has no attribute {name!r}")
    value = getattr(import_module(f"rcad.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
