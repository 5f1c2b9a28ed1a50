"""rcad: Reducing Confidence along Adversarial Directions, and every regulariser it was compared with.

>>> loss = rcad.rcad_loss(model, x, y, alpha=0.5, lam=0.02)  # doctest: +SKIP
>>> loss.backward()  # doctest: +SKIP
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer than all the rest of this file, and a signal meanwhile would be unheard
if TYPE_CHECKING:
    # isort: off
    from rcad.errors import InputError as InputError, MissingExtraError as MissingExtraError
    from rcad.loss import methods as methods
    from rcad.loss.augmentations import Cutmix as Cutmix, Cutout as Cutout, Flip as Flip, Mixup as Mixup
    from rcad.loss.augmentations import PadCrop as PadCrop, augment as augment
    from rcad.loss.criterion import RCAD as RCAD, Criterion as Criterion, rcad_loss as rcad_loss
    from rcad.loss.growth import FeatureAscent as FeatureAscent
    from rcad.loss.likelihoods import Bernoulli as Bernoulli, Categorical as Categorical, Gaussian as Gaussian
    from rcad.loss.likelihoods import Likelihood as Likelihood
    from rcad.loss.methods import METHODS as METHODS, Method as Method, compose as compose, method as method
    from rcad.loss.model_calls import frozen_batch_stats as frozen_batch_stats
    from rcad.loss.objective import Objective as Objective
    from rcad.loss.perturbations import GradientStep as GradientStep, Perturbation as Perturbation
    from rcad.loss.perturbations import ProjectedAscent as ProjectedAscent, RandomStep as RandomStep
    from rcad.loss.suggest_alpha import suggest_alpha as suggest_alpha
    from rcad.loss.terms import Losses as Losses, Term as Term, negative_entropy as negative_entropy, nll as nll
    from rcad.loss.terms import uniform_cross_entropy as uniform_cross_entropy
    from rcad.predict.predictor import load as load
    from rcad.study.compare import compare as compare
    from rcad.study.evaluations import evaluate_run as evaluate_run
    from rcad.study.tune import tune as tune
    from rcad.train.own_loop import capture as capture

__version__ = "0.1.0"

# The names are imported when they are first used, so that `rcad --help` need not wait for torch.
_HOMES = {
    "loss.suggest_alpha": ("suggest_alpha",),
    "loss.augmentations": ("Cutmix", "Cutout", "Flip", "Mixup", "PadCrop", "augment"),
    "loss.criterion": ("RCAD", "Criterion", "rcad_loss"),
    "errors": ("InputError", "MissingExtraError"),
    "loss.growth": ("FeatureAscent",),
    "loss.likelihoods": ("Bernoulli", "Categorical", "Gaussian", "Likelihood"),
    "loss.methods": ("METHODS", "Method", "compose", "method"),
    "loss.objective": ("Objective",),
    "loss.model_calls": ("frozen_batch_stats",),
    "loss.perturbations": ("GradientStep", "Perturbation", "ProjectedAscent", "RandomStep"),
    "predict.predictor": ("load",),
    "study.compare": ("compare",),
    "study.tune": ("tune",),
    "study.evaluations": ("evaluate_run",),
    "train.own_loop": ("capture",),
    "loss.terms": ("Losses", "Term", "negative_entropy", "nll", "uniform_cross_entropy"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME), "methods"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "methods":
        return import_module("rcad.loss.methods")
    if name not in _HOME:
        raise AttributeError(f"module 'rcad' has no attribute {name!r}")
    value = getattr(import_module(f"rcad.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
