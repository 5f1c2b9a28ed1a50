"""RCAD and its rivals in timm: a task for its training script, a criterion for scripts of one's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, Value, is_number
from rcad.integrations.resolve import MethodLike, as_method
from rcad.integrations.step import Step
from rcad.loss.criterion import RCAD, Criterion
from rcad.loss.likelihoods import Bernoulli, Categorical
from rcad.loss.model_calls import logits_of
from rcad.loss.perturbations import Alpha, Channels
from rcad.models.timm_model import import_timm

timm = import_timm()

from timm.data import resolve_data_config  # noqa: E402
from timm.loss import BinaryCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy  # noqa: E402
from timm.utils import unwrap_model  # noqa: E402

try:
    from timm.task import ClassificationTask
except ModuleNotFoundError:
    raise InputError(f"expected timm 1.0.27 or newer, for its timm.task, but got {timm.__version__}") from None

__all__ = ["RCADTask", "likelihood_of", "normalisation", "rcad_for"]


class RCADTask(ClassificationTask):  # type: ignore[misc]
    """timm's ClassificationTask with a method's loss, which sees the input and not only the output.

    What works with a task works with this one: Mixup's soft targets, EMA, autocast and NativeScaler, DDP, compile,
    channels_last. Besides "loss" and "output" the result holds the parts of the loss, "rcad/nll" and so on. In eval
    mode the loss is the plain one.

    Args:
        model: the network; where it has several heads, its first output counts.
        criterion: the script's cross-entropy, whose label smoothing is kept, or its --bce-loss; default none.
        method: text such as "rcad(alpha=0.5, lam=0.02)", a Method, or a Criterion, which brings its own settings.
        mean, std: by which the loader normalised the images; default those of the model's `pretrained_cfg`, as in
            timm's loader. alpha is a distance in pixels of [0, 1] all the same.
        classes: for methods that mix integer labels; default the model's.
        generator: the source of augmentations and random directions; default torch's global one.

    Example:
        >>> task = RCADTask(model, train_loss_fn, "rcad(alpha=0.5, lam=0.02)")  # doctest: +SKIP
        >>> task(input, target)["loss"].backward()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: nn.Module | None = None,
        method: MethodLike = "rcad",
        *,
        mean: Channels | None = None,
        std: Channels | None = None,
        classes: int | None = None,
        generator: torch.Generator | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
        verbose: bool = True,
    ) -> None:
        super().__init__(model, criterion or nn.CrossEntropyLoss(), device=device, dtype=dtype, verbose=verbose)
        options: dict[str, Any] = {"mean": mean, "std": std}
        if not isinstance(method, Criterion):
            method, options["likelihood"] = as_method(method), likelihood_of(self.criterion)
            plain = Categorical(ignore_index=getattr(self.criterion, "ignore_index", Categorical.ignore_index))
            if method.likelihood is not None and options["likelihood"] != plain:
                raise InputError(
                    f"expected the label smoothing from the criterion or from the method {method.name!r}, but got both"
                )
            if (mean is None) != (std is None):
                raise InputError("expected both mean and std, or neither, but got only one of them")
            if std is None:
                options |= normalisation(model)
        elif criterion is not None:
            raise InputError("expected a Criterion to be given by itself, but got timm's criterion too; leave it out")
        classes = getattr(model, "num_classes", None) if classes is None else classes
        self.step = Step(method, classes=classes, generator=generator, **options)
        self.batches = 0

    def forward(self, input: Tensor, target: Tensor) -> dict[str, Tensor | None]:
        """The method's loss; after `task.eval()` the plain one, of one pass."""
        if not self.training:
            output = logits_of(self.trainable_module(input), self.step.resolved.criterion.loss.output)
            return {"loss": self.step.resolved.likelihood.nll(output, target).mean(), "output": output}
        losses = self.step.losses(self.trainable_module, input, target, number=self.batches)
        self.batches += 1
        return {"loss": losses.total, "output": losses.output, **self.step.parts(losses, "rcad")}

    def get_task_state(self, module: nn.Module | None = None, ema: bool = False) -> dict[str, Any]:
        """How many batches were seen, for terms that rest at some of them, and what the step needs to go on."""
        return {"batches": self.batches, **self.step.state_dict()}

    def load_task_state(
        self,
        state: dict[str, Any] | None,
        strict: bool = True,
        module: nn.Module | None = None,
        ema: bool = False,
    ) -> None:
        state = state or {}
        self.batches = int(state.get("batches", self.batches))
        self.step.load_state_dict(state)


def rcad_for(model: nn.Module, alpha: Alpha = "auto", lam: Alpha = "auto", **options: Any) -> RCAD:
    """RCAD for images that were normalised as timm's loader does for this model; alpha stays a distance in pixels.

    Args:
        alpha, lam: see `RCAD`.
        options: of `RCAD`; mean and std where the loader was given others than the model's.

    Example:
        >>> criterion = rcad_for(model)  # doctest: +SKIP
        >>> loss = criterion(model, input, target)  # in place of loss_fn(model(input), target)  # doctest: +SKIP
    """
    if not all(is_number(value) or value == "auto" for value in (alpha, lam)) or "method" in options:
        raise InputError(
            "expected rcad_for(model) or rcad_for(model, alpha=0.5, lam=0.02), but got a method or no numbers; the "
            "text of a method goes to RCADTask(model, method=...)"
        )
    return RCAD(alpha, lam, **(normalisation(model) | options))


def normalisation(model: nn.Module) -> dict[str, Channels]:
    """The mean and the deviation by which timm's loader normalises images for a model of timm's."""
    inside = unwrap_model(model)
    if not getattr(inside, "pretrained_cfg", None):
        raise InputError(
            f"expected a model of timm's, which knows its mean and std, but got {type(inside).__name__}; "
            "pass mean= and std=, or mean=(0,) and std=(1,) for pixels in [0, 1]"
        )
    config = resolve_data_config(model=inside)
    return {"mean": tuple(config["mean"]), "std": tuple(config["std"])}


@dataclass(frozen=True, repr=False)
class OneVersusRest(Value):
    """A yes or no for each class, as --bce-loss reads logits (B, K): `rcad.Bernoulli` on labels that timm would make.

    Args:
        smoothing: eps of labels: a class gets eps / K, the label 1 - eps + eps / K; soft targets stay as they are.
        threshold: targets above it become 1, the others 0; None leaves them.
        total: the sum over the classes in place of their mean (--bce-sum), of the loss and of the entropy alike.
    """

    inner: Bernoulli
    smoothing: float
    threshold: float | None
    total: bool

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        return self._counted(self.inner.nll(output, self._yes(output, target)), output)

    def entropy(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        return self._counted(self.inner.entropy(output, valid), output)

    def uniform_nll(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        return self._counted(self.inner.uniform_nll(output, valid), output)

    def plain(self) -> OneVersusRest:
        return replace(self, inner=self.inner.plain(), smoothing=0.0)

    def check_shapes(self, output: Tensor, target: Tensor) -> None:
        Categorical().check_shapes(output, target)

    def check_values(self, output: Tensor, target: Tensor) -> None:
        (self.inner if target.is_floating_point() else Categorical()).check_values(output, target)

    def _yes(self, output: Tensor, target: Tensor) -> Tensor:
        if not target.is_floating_point():
            target = nn.functional.one_hot(target, output.shape[1]).to(output.dtype)
            target = (1 - self.smoothing) * target + self.smoothing / output.shape[1]
        return target if self.threshold is None else target.gt(self.threshold).to(target.dtype)

    def _counted(self, values: Tensor, output: Tensor) -> Tensor:
        return values * output.shape[1] if self.total else values


def likelihood_of(loss: nn.Module) -> Categorical | OneVersusRest:
    """The likelihood behind a loss of timm's training script."""
    if isinstance(loss, BinaryCrossEntropy) and loss.weight is None and (loss.sum_classes or loss.reduction == "mean"):
        positive = loss.pos_weight
        if positive is None or positive.numel() == 1:
            inner = Bernoulli(positive_weight=1.0 if positive is None else float(positive))
            return OneVersusRest(inner, loss.smoothing, loss.target_threshold, loss.sum_classes)
    if isinstance(loss, LabelSmoothingCrossEntropy | SoftTargetCrossEntropy):
        return Categorical(smoothing=getattr(loss, "smoothing", 0.0))
    if isinstance(loss, nn.CrossEntropyLoss) and loss.weight is None and loss.reduction == "mean":
        return Categorical(smoothing=loss.label_smoothing, ignore_index=loss.ignore_index)
    name = type(loss).__name__
    if isinstance(loss, nn.CrossEntropyLoss | BinaryCrossEntropy):
        several = getattr(loss, "pos_weight", None) is not None and loss.reduction == "mean"
        setting = "a pos_weight per class" if several else f"reduction={loss.reduction!r}"
        name += f" with {setting if loss.weight is None else 'class weights'}"
    raise InputError(
        "expected the criterion to be a mean cross-entropy (CrossEntropyLoss without class weights, "
        f"LabelSmoothingCrossEntropy, SoftTargetCrossEntropy or BinaryCrossEntropy), but got {name}; "
        "use one of these, or pass a Criterion as the method"
    )
