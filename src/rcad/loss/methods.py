"""Every method of the paper, its controls and its named recipes. Units and defaults: see `methods/<name>.md`."""

from __future__ import annotations

from typing import Literal

from rcad.loss.augmentations import Cutmix, Cutout, Flip, Mixup, PadCrop
from rcad.loss.growth import FeatureAscent
from rcad.loss.likelihoods import Bernoulli, Categorical, Gaussian
from rcad.loss.method import METHODS, Method, compose, method, recipe
from rcad.loss.method_rows import AUTO
from rcad.loss.perturbations import Alpha, GradientStep, Norm, RandomStep
from rcad.loss.terms import MeasureName, Term, weight_for

__all__ = [
    "METHODS",
    "Method",
    "ada",
    "adversarial_training",
    "adversarial_two_views",
    "bernoulli",
    "compose",
    "confidence_penalty",
    "cutmix",
    "cutout",
    "data_augmentation",
    "erm",
    "gaussian",
    "label_smoothing",
    "ls_on_adv",
    "me_ada",
    "method",
    "mixup",
    "rcad",
    "rcad_random",
    "rcad_released",
    "rcad_text",
    "two_views",
]

Bounds = tuple[float, float] | None
Convention = Literal["all", "others"]
Direction = Literal["plain", "training"]

TWO_VIEWS = (Term("nll", weight=0.5), Term("nll_raw", weight=0.5, view="raw"))


@recipe
def erm() -> Method:
    """Empirical risk minimisation: the mean negative log-likelihood."""
    return Method()


@recipe
def two_views() -> Method:
    """The released program's clean loss: half on the augmented batch, half on the same images un-augmented."""
    return Method(clean=TWO_VIEWS)


@recipe
def label_smoothing(eps: float = 0.2, convention: Convention = "all") -> Method:
    """Targets mixed with the uniform distribution: eps/K on all classes, or the paper's eps/(K-1) on the others."""
    return Method(likelihood=Categorical(smoothing=eps, convention=convention))


@recipe
def gaussian(cap: float | tuple[float, ...] | None = 0.0) -> Method:
    """Regression: the model gives a mean and a log-variance."""
    return Method(likelihood=Gaussian(cap=cap))


@recipe
def bernoulli(smoothing: float = 0.0) -> Method:
    """Yes/no labels: one logit each."""
    return Method(likelihood=Bernoulli(smoothing=smoothing))


@recipe
def confidence_penalty(lam: float = 0.1) -> Method:
    """-lam * entropy at the clean point: RCAD with alpha = 0, the control that tells whether moving helps."""
    return Method(extra=(_entropy("confidence_penalty", lam),))


@recipe
def rcad(
    alpha: Alpha = AUTO,
    lam: Alpha = AUTO,
    norm: Norm = "l2",
    steps: int = 1,
    measure: MeasureName = "negative_entropy",
    every: int = 1,
    bounds: Bounds = None,
    direction: Direction = "plain",
) -> Method:
    """-lam * entropy at x', a distance alpha away from log p(y|x). One view, direction from the training batch.

    alpha="auto" is measured on the data; lam="auto" is 0.1, and for regression targets 0.3 where those are known.
    """
    where = GradientStep(alpha, norm, bounds, steps=steps, loss=direction)
    return Method(extra=(_entropy("rcad", lam, where, measure, every),))


@recipe
def rcad_text(alpha: float = 0.5, lam: float = 0.02, direction: Direction = "plain") -> Method:
    """The formula of the paper's text: alpha times the raw gradient, whose length vanishes with the loss."""
    return Method(extra=(_entropy("rcad", lam, GradientStep(alpha, "raw", loss=direction)),))


@recipe
def rcad_released(alpha: float = 0.5, lam: float = 0.02, jitter: float = 0.0) -> Method:
    """What the authors' program does: two views, direction from the un-augmented images and the unsmoothed loss."""
    where = GradientStep(alpha, "l2", jitter=jitter, loss="plain")
    return Method(clean=TWO_VIEWS, extra=(_entropy("rcad", lam, where, view="raw"),))


@recipe
def rcad_random(
    alpha: Alpha = AUTO, lam: Alpha = AUTO, norm: Literal["l2", "linf"] = "l2", bounds: Bounds = None
) -> Method:
    """RCAD with a random direction of the same length: the control that tells whether the direction helps."""
    return Method(extra=(_entropy("rcad_random", lam, RandomStep(alpha, norm, bounds)),))


@recipe
def adversarial_training(alpha: float = 0.05, norm: Norm = "linf", bounds: Bounds = (0.0, 1.0)) -> Method:
    """The negative log-likelihood at the fast-gradient-sign example only."""
    return Method(clean=(Term("nll", where=GradientStep(alpha, norm, bounds)),))


@recipe
def adversarial_two_views(alpha: float = 0.05, norm: Norm = "linf", bounds: Bounds = (0.0, 1.0)) -> Method:
    """Adversarial training beside `two_views`: half on the perturbed batch, half on its images, perturbed as well."""
    where = GradientStep(alpha, norm, bounds)
    return Method(clean=(Term("nll", weight=0.5, where=where), Term("nll_raw", weight=0.5, where=where, view="raw")))


@recipe
def ls_on_adv(alpha: float = 0.02, eps: float = 0.2, norm: Norm = "l2", convention: Convention = "all") -> Method:
    """The clean loss plus the label-smoothed loss at x'."""
    smoothed = Categorical(smoothing=eps, convention=convention)
    return Method(extra=(Term("ls_on_adv", "nll", 1.0, GradientStep(alpha, norm), likelihood=smoothed),))


@recipe
def ada(
    gamma: float = 1.0,
    steps: int = 15,
    step_size: float = 20.0 / 128 / 4,
    epochs: int = 10,
    rounds: int = 2,
    levels: int | None = 255,
) -> Method:
    """Grows the training set by ascent on the loss, held back by the distance in the embedding."""
    return Method(growth=FeatureAscent(0.0, gamma, steps, step_size, epochs, rounds, levels))


@recipe
def me_ada(
    eta: float = 1.0,
    gamma: float = 1.0,
    steps: int = 15,
    step_size: float = 20.0 / 128 / 4,
    epochs: int = 10,
    rounds: int = 2,
    levels: int | None = 255,
) -> Method:
    """ADA with eta * entropy in the ascent."""
    return Method(growth=FeatureAscent(eta, gamma, steps, step_size, epochs, rounds, levels))


@recipe
def data_augmentation(padding: int = 4, flip: float = 0.5) -> Method:
    """Pad, random crop, horizontal flip with that probability (0 for digits, whose mirror image is another thing)."""
    return Method(augment=(PadCrop(padding), Flip(flip)))


@recipe
def cutout(length: int = 16) -> Method:
    """A black square in each image."""
    return Method(augment=(Cutout(length),))


@recipe
def mixup(alpha: float = 1.0) -> Method:
    """Pairs of images and of targets, blended."""
    return Method(augment=(Mixup(alpha),))


@recipe
def cutmix(alpha: float = 1.0, p: float = 1.0) -> Method:
    """A box of another image in each image, targets in proportion."""
    return Method(augment=(Cutmix(alpha, p),))


def _entropy(
    name: str,
    lam: Alpha,
    where: GradientStep | RandomStep | None = None,
    measure: MeasureName = "negative_entropy",
    every: int = 1,
    view: Literal["batch", "raw"] = "batch",
) -> Term:
    return Term(name, measure, weight_for(lam), where, every, view)
