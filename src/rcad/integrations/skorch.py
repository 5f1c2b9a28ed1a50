"""skorch: nets whose training loss is a method's; `method`, `alpha` and `lam` can be searched by GridSearchCV.

Validation, scores, callbacks and prediction stay skorch's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError, whole
from rcad.integrations.resolve import MethodLike, as_method, reread, resolve
from rcad.loss.criterion import Criterion
from rcad.loss.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, full_precision
from rcad.loss.model_calls import logits_of, undisturbed
from rcad.loss.perturbations import Channels

try:
    from skorch import NeuralNet, NeuralNetBinaryClassifier, NeuralNetClassifier, NeuralNetRegressor
    from skorch.dataset import unpack_data
    from skorch.utils import to_tensor
except ModuleNotFoundError:
    raise MissingExtraError("skorch", "skorch") from None

__all__ = ["GaussianLoss", "RCADNetClassifier", "RCADNetMixin", "RCADNetRegressor"]

INSTEAD = {
    "weight": "pass method=rcad.RCAD(..., likelihood=rcad.Categorical(weight=...))",
    "pos_weight": "pass method=rcad.RCAD(..., likelihood=rcad.Bernoulli(positive_weight=...))",
    "label_smoothing": "put label_smoothing(eps=...) into the method",
}


class GaussianLoss(nn.Module):
    """A criterion for regression: the module gives the means, then the log-variances. See `rcad.Gaussian`."""

    def __init__(self, cap: float | tuple[float, ...] | None = 0.0) -> None:
        super().__init__()
        self.likelihood = Gaussian(cap=cap)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return self.likelihood.nll(output, target).mean()


@dataclass(frozen=True, repr=False)
class FromProbabilities(Categorical):
    """Classes from a module that ends in a softmax, as skorch's default criterion expects it."""

    def check_values(self, output: Tensor, target: Tensor) -> None:
        super().check_values(output, target)
        sums = output.detach().sum(1)
        if bool((output < 0).any()) or bool(((sums - 1).abs() > 1e-3).any()):
            raise InputError(
                "expected probabilities from the module, since the criterion is NLLLoss, but they do not sum to 1; "
                "end it in a softmax, or use criterion=torch.nn.CrossEntropyLoss"
            )

    def _log_p(self, output: Tensor) -> Tensor:
        p = full_precision(output)
        return super()._log_p(torch.log(p + torch.finfo(p.dtype).eps))  # as skorch takes the logarithm


def likelihood_of(criterion: nn.Module) -> Likelihood | None:
    """The likelihood for the output of a net with this criterion; None for an unknown criterion."""
    criterion = getattr(criterion, "_orig_mod", criterion)
    for name in ("weight", "pos_weight", "label_smoothing", "reduction"):
        value = getattr(criterion, name, None)
        # reduction="none" belongs to skorch's own way with sample weights.
        if isinstance(value, Tensor) or value not in (None, 0.0, "mean", "none"):
            setting = f"a {name}" if isinstance(value, Tensor) else f"{name}={value}"
            hint = f"; {INSTEAD[name]}" if name in INSTEAD else ""
            raise InputError(
                f"expected a plain {type(criterion).__name__}, whose place the method takes in training, "
                f"but got {setting}{hint}"
            )
    if isinstance(criterion, GaussianLoss):
        return criterion.likelihood
    if isinstance(criterion, nn.MSELoss):
        raise InputError(
            "expected a criterion for a mean and a log-variance, but got MSELoss, under which nothing is ever unsure; "
            "use RCADNetRegressor with a module that has two outputs per target"
        )
    if isinstance(criterion, nn.BCEWithLogitsLoss):
        return Bernoulli()
    if isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss):
        return Categorical(ignore_index=criterion.ignore_index)
    return None


OWN = (NeuralNet, NeuralNetClassifier, NeuralNetBinaryClassifier, NeuralNetRegressor)

# What to do instead. Of the first two nothing is used in training, wherever they are; of the others not what lies
# behind the mixin, and of the last that matters only where gradients are accumulated.
OVERRIDES = {
    "get_loss": "accumulate with accumulate=, weigh classes with method=rcad.RCAD(..., "
    "likelihood=rcad.Categorical(weight=...)), and add gradients of penalties in a callback's on_grad_computed",
    "infer": "do it in the module's forward",
    "train_step_single": "override it in a subclass of the net with the mixin, and call super()",
    "train_step": "leave that or accumulate= out",
}


def check_net(net: Any, mixin: type) -> None:
    """Raises for overrides and settings that training would ignore."""
    whole("accumulate", net.accumulate, minimum=1)
    if net.accumulate > 1 and isinstance(net.optimizer_, torch.optim.LBFGS):
        raise InputError("expected an optimizer without a closure for accumulate, but got LBFGS; use larger batches")
    order = type(net).__mro__
    behind = order[order.index(mixin) + 1 :]
    for name, instead in OVERRIDES.items():
        classes = order if name in ("get_loss", "infer") else behind
        owner = next((kind for kind in classes if name in vars(kind) and kind not in OWN), None)
        if owner is not None and (name != "train_step" or net.accumulate > 1):
            raise InputError(
                f"expected skorch's own {name}, whose place the method takes in training, but got "
                f"{owner.__name__}.{name}; {instead}"
            )


KEPT = "rcad_state"
"""A buffer of the net's criterion: alpha as measured (-1: not yet), on how many batches, calls, optimizer steps."""


def _fill_missing_buffer(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """For a file that lacks it: one of a net without a method, or of an earlier version."""
    state.setdefault(prefix + KEPT, module.get_buffer(KEPT))


Base: Any = NeuralNet if TYPE_CHECKING else object  # a mixin, whose superclass is some net


class RCADNetMixin(Base):  # type: ignore[misc]
    """A method's loss for any skorch net: `class MyNet(RCADNetMixin, NeuralNetClassifier)`.

    Args:
        method: text such as "rcad" or "mixup + rcad(alpha=1.0, lam=0.1)", a Method, or a Criterion.
        alpha, lam: fill in the method's parameters of that name, so that a grid can search them; None leaves them.
        mean, std: by which images were normalised, so that alpha stays in pixels.
        input_key: for X as a dict: the entry to perturb; default: the only floating-point one. An entry
            "sample_weight" weighs the examples.
        accumulate: how many batches go into one step of the optimizer; their gradients are averaged. Batches left over
            by an epoch wait for the next one's, those left over by a fit are dropped.

    The net's criterion says what the module's output means: logits with CrossEntropyLoss, probabilities with NLLLoss
    (skorch's default), yes/no logits with BCEWithLogitsLoss, mean and log-variance with GaussianLoss.
    """

    def __init__(
        self,
        *args: Any,
        method: MethodLike = "rcad",
        alpha: float | None = None,
        lam: float | None = None,
        mean: Channels | None = None,
        std: Channels | None = None,
        input_key: str | None = None,
        accumulate: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.method, self.alpha, self.lam = method, alpha, lam
        self.mean, self.std, self.input_key = mean, std, input_key
        self.accumulate = accumulate

    def initialize(self) -> Any:
        super().initialize()
        self.rcad_steps_ = self.rcad_waiting_ = 0
        self.rcad_parts_: dict[str, None] = {}  # columns of the history, in order
        self.__dict__.pop("rcad_", None)  # alpha is measured anew
        self._resolve_method()
        return self

    def save_params(self, *args: Any, **kwargs: Any) -> None:
        """skorch's own; the criterion's file, `f_criterion`, holds the alpha that was measured and the steps too."""
        self._keep()
        super().save_params(*args, **kwargs)

    def load_params(self, *args: Any, **kwargs: Any) -> None:
        """skorch's own; with `f_criterion` an alpha that was measured is not measured again."""
        before = self._keep()
        super().load_params(*args, **kwargs)
        state = self._buffer()
        if state is not None and not torch.equal(state, before):
            alpha, *counts = state.tolist()
            batches, calls, self.rcad_steps_ = map(int, counts)
            measured = {"alpha": None if alpha < 0 else alpha, "batches": batches, "step": calls}
            self.rcad_.criterion.load_state_dict(measured)

    def _keep(self) -> Tensor:
        """Writes the present state into the criterion's buffer and returns it."""
        if "rcad_" not in vars(self):
            return torch.empty(0)
        measured = self.rcad_.criterion.state_dict()
        alpha = -1.0 if measured["alpha"] is None else measured["alpha"]
        state = torch.tensor([alpha, measured["batches"], measured["step"], self.rcad_steps_], dtype=torch.float64)
        buffer = self._buffer()
        return state if buffer is None else buffer.copy_(state).clone()

    def _buffer(self) -> Tensor | None:
        """The criterion's buffer, made where it is missing; None where the criterion is no module."""
        criterion = getattr(self.criterion_, "_orig_mod", self.criterion_)
        if not isinstance(criterion, nn.Module):
            return None
        if KEPT not in dict(criterion.named_buffers(recurse=False)):
            criterion.register_buffer(KEPT, torch.tensor([-1.0, 0.0, 0.0, 0.0], dtype=torch.float64))
            criterion.register_load_state_dict_pre_hook(_fill_missing_buffer)  # type: ignore[no-untyped-call]
        return criterion.get_buffer(KEPT)

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Parameters may have been set since the last fit; an alpha that was measured stays."""
        self._resolve_method()
        self.rcad_waiting_ = 0
        super().on_train_begin(*args, **kwargs)

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """The loss of one batch, with its gradients added; an optimizer with a closure may call it several times."""
        self._set_training(True)
        inputs, target = unpack_data(batch)
        x, target = to_tensor(inputs, device=self.device), to_tensor(target, device=self.device)
        options: dict[str, Any] = {"step": self.rcad_steps_, "accumulate": self.accumulate}
        if isinstance(x, Mapping):
            x = self._merge_x_and_fit_params(x, fit_params)
            options["weight"] = x.get("sample_weight")
        elif fit_params:
            raise InputError(f"expected X to be a dict with {', '.join(fit_params)} in it, but got them beside X")
        classes = getattr(self, "classes_", None)
        mixed = self.rcad_.batch(x, target, classes=None if classes is None else len(classes))
        losses = self.rcad_.criterion.backward(self.module_, mixed.x, mixed.target, **options, **mixed.views)
        output = losses.output
        if output is None:  # a method without a clean pass; scores want one
            with torch.no_grad(), undisturbed(self.module_, losses.total.device):
                output = logits_of(self.infer(inputs, **fit_params), self.rcad_.criterion.loss.output)
        return {"loss": losses.total, "y_pred": output, "parts": losses.parts}

    def train_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """skorch's own; afterwards the history holds the parts of the loss: "train_nll", "train_entropy"."""
        whole_step = super().train_step if self.accumulate == 1 else self._accumulated_step
        step: dict[str, Any] = whole_step(batch, **fit_params)
        if "parts" not in step:  # a train_step_single that overrides the mixin's and does not call it
            raise InputError(
                f"expected {type(self).__name__}.train_step_single to return what super().train_step_single returned, "
                "where the method's loss is, but it did not; call it and add to its dict"
            )
        self.rcad_steps_ += self.rcad_waiting_ == 0
        for name, value in self.rcad_.readable(step["parts"]).items():
            self.history.record_batch(f"train_{name}", value.item())
            self.rcad_parts_[f"train_{name}"] = None
        return step

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        """The parts of the loss in the epoch's row, as skorch averages the loss; NaN where a term rested throughout."""
        super().on_epoch_end(*args, **kwargs)
        for name in self.rcad_parts_:
            rows = [row for row in self.history[-1, "batches"] if name in row]
            sizes = [row["train_batch_size"] for row in rows]
            self.history.record(name, np.average([row[name] for row in rows], weights=sizes) if rows else np.nan)

    def _accumulated_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """A batch's gradients; with the last of several, callbacks (such as clipping) see the sum, and then a step."""
        if self.rcad_waiting_ == 0:
            self._zero_grad_optimizer()
        step = self.train_step_single(batch, **fit_params)
        self.rcad_waiting_ = (self.rcad_waiting_ + 1) % self.accumulate
        if self.rcad_waiting_ == 0:
            parameters = list(self.get_all_learnable_params())
            self.notify("on_grad_computed", named_parameters=parameters, batch=batch, training=True)
            self._step_optimizer(None)
        return step

    def _resolve_method(self) -> None:
        check_net(self, RCADNetMixin)
        likelihood, before = None, getattr(self, "rcad_", None)
        if not isinstance(self.method, Criterion):
            likelihood = likelihood_of(self.criterion_)
            if likelihood is None and as_method(self.method).likelihood is None:
                raise InputError(
                    "expected a criterion that says what the output means, such as CrossEntropyLoss, but got "
                    f"{type(self.criterion_).__name__}; pass method=rcad.RCAD(..., likelihood=...)"
                )
        options: dict[str, Any] = {"mean": self.mean, "std": self.std, "input_key": self.input_key}
        parameters = {"alpha": self.alpha, "lam": self.lam}
        self.rcad_ = resolve(self.method, likelihood=likelihood, parameters=parameters, **options)
        now = self.rcad_.criterion
        if isinstance(getattr(self.criterion_, "_orig_mod", self.criterion_), nn.NLLLoss):
            now = reread(now, lambda logits: FromProbabilities(**vars(logits)))
            self.rcad_ = replace(self.rcad_, criterion=now)
        if before is not None and before.criterion is not now and before.criterion.asked == now.asked:
            now.load_state_dict(before.criterion.state_dict())
        self._buffer()


class RCADNetClassifier(RCADNetMixin, NeuralNetClassifier):  # type: ignore[misc]
    """A skorch classifier with a method's loss, for modules that end in logits. See `RCADNetMixin`.

    Example:
        >>> net = RCADNetClassifier(Module, method="rcad", alpha=0.5, lam=0.1)  # doctest: +SKIP
        >>> GridSearchCV(net, {"alpha": [0.3, 1.0, 3.0], "lam": [0.1, 0.5]}).fit(X, y)  # doctest: +SKIP
    """

    def __init__(self, module: Any, *args: Any, criterion: Any = nn.CrossEntropyLoss, **kwargs: Any) -> None:
        super().__init__(module, *args, criterion=criterion, **kwargs)


class RCADNetRegressor(RCADNetMixin, NeuralNetRegressor):  # type: ignore[misc]
    """A skorch regressor with a method's loss; the module has two outputs per target, means first, then log-variances.

    Standardise the targets, or pass `criterion__cap` = log var(y): the entropy is capped there. See `RCADNetMixin`.
    """

    def __init__(self, module: Any, *args: Any, criterion: Any = GaussianLoss, **kwargs: Any) -> None:
        super().__init__(module, *args, criterion=criterion, **kwargs)

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """The means, (N,) or (N, D)."""
        return self._halves(X)[0]

    def predict_std(self, X: Any) -> np.ndarray[Any, Any]:
        """The predicted standard deviations, in the same shape."""
        return np.exp(0.5 * self._halves(X)[1])

    def _halves(self, X: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        mean, log_variance = np.split(self.predict_proba(X), 2, axis=1)
        return (mean[:, 0], log_variance[:, 0]) if mean.shape[1] == 1 else (mean, log_variance)
