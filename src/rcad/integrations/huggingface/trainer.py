"""A Trainer whose training loss is a method's. Texts move at their embeddings, images at their pixels.

Evaluation, prediction, checkpoints, logging and the optimizer are the Trainer's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from rcad.errors import InputError
from rcad.integrations.accelerate import check_compiled
from rcad.integrations.huggingface.checks import (
    MULTI_LABEL,
    Watch,
    check_behind,
    check_embeddings,
    check_labels,
    check_pixels,
    check_trainer,
    encoder_named,
    normalisation,
    not_reached,
    per_token,
    problem_type,
)
from rcad.integrations.resolve import MethodLike, resolve
from rcad.loss.criterion import Criterion, Scaler
from rcad.loss.likelihoods import Bernoulli, Categorical
from rcad.loss.model_calls import logits_of
from rcad.loss.perturbations import Channels

EMBEDDED = "inputs_embeds"
IGNORED = -100

Base: Any = Trainer if TYPE_CHECKING else object  # a mixin, whose superclass is some Trainer


class RCADTrainerMixin(Base):  # type: ignore[misc]
    """A method's loss for any Trainer: `class MyTrainer(RCADTrainerMixin, Trainer)`. `RCADTrainer` is the plain one.

    Args:
        method: text such as "rcad(alpha=2.0, lam=0.1)", a Method, or a Criterion. For texts alpha is an L2 distance
            between whole sequences of embeddings; for images in pixels.
        mean, std: by which `pixel_values` were normalised; default: what the processing_class says.
        input_key: the input to perturb; default: the embeddings of `input_ids`, else the only floating-point input.
        mask_key: the mask of its real positions; default "attention_mask".
        generator: the source of randomness of augmentations and random steps; default torch's global one, whose state
            the Trainer's checkpoints hold.
    """

    # The loss is divided here, by items over the whole accumulated batch; the Trainer must not do it again.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        *args: Any,
        method: MethodLike,
        mean: Channels | None = None,
        std: Channels | None = None,
        input_key: str | None = None,
        mask_key: str | None = None,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> None:
        check_behind(type(self), RCADTrainerMixin)
        super().__init__(*args, **kwargs)
        self._multi_label = problem_type(self.model) == MULTI_LABEL
        if std is None and not isinstance(method, Criterion):
            mean, std = normalisation(self.processing_class)
        self.resolved = resolve(
            method,
            likelihood=Bernoulli() if self._multi_label and not isinstance(method, Criterion) else None,
            mean=mean,
            std=std,
            input_key=input_key,
            mask_key=mask_key,
        )
        check_trainer(self, self.resolved)
        self._generator = generator
        self._token_criterion = per_token(self.resolved.criterion)
        self._stepping = self._reached = self._embeddings_checked = False
        self._parts: dict[str, tuple[Tensor | float, int]] = {}
        self.add_callback(Watch(self._check_reached))

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """The Trainer's own step; inside it `compute_loss` may run the gradients itself, in fewer passes."""
        self._stepping, self._reached = True, False
        try:
            loss: Tensor = super().training_step(*args, **kwargs)
        finally:
            self._stepping = False
        if not self._reached:
            raise not_reached(type(self), "compute_loss" if self._overridden() else "training_step")
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The method's loss while training, this batch's share of the accumulated one; the plain loss otherwise."""
        if not (model.training and torch.is_grad_enabled()):
            return self._plain_loss(model, inputs, return_outputs, num_items_in_batch)
        self._reached = True
        check_compiled(model)
        check_labels(self.model, inputs.get(self.label_names[0]), self.resolved.likelihood)
        x, target, options = self._prepared(inputs)
        labels, criterion = inputs[self.label_names[0]], self.resolved.criterion
        items: Any = labels.numel()  # as the Trainer counts: an example with three yes/no labels is three
        if labels.ndim == 2 and not labels.is_floating_point():
            counts = (labels != IGNORED).sum(1)
            items = counts.sum()
            # The criterion averages an example's tokens; weighed by their number, each token counts the same.
            criterion, options["weight"] = self._token_criterion, counts * (len(labels) / items.clamp(min=1))
        options |= {"step": self.state.global_step, "generator": self._generator}
        share = self._share(items, num_items_in_batch)
        with encoder_named(self.model):
            if self._stepping and not return_outputs and not self._overridden():
                losses = criterion.backward(model, x, target, scaler=_Shared(share, self.accelerator.scaler), **options)
                # The gradients are there; the Trainer's own backward ends in this leaf.
                loss = (losses.total * share).requires_grad_()
            else:
                losses = criterion.losses(model, x, target, **options)
                loss = losses.total * share
        for name, value in self.resolved.readable(losses.parts).items():
            total, count = self._parts.get(name, (0.0, 0))
            self._parts[name] = (total + value, count + 1)
        return (loss, {"loss": loss, "logits": losses.output}) if return_outputs else loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds the mean of each part of the loss since the last time: "train_nll", "train_entropy"."""
        if "loss" in logs:
            logs |= {f"train_{name}": float(total) / count for name, (total, count) in self._parts.items()}
            self._parts.clear()
        super().log(logs, *args, **kwargs)

    def _check_reached(self) -> None:
        """Once before each step of the optimizer, over all batches that were accumulated for it."""
        if not self._reached:
            raise not_reached(type(self), "training_step")
        self._reached = False

    def _overridden(self) -> bool:
        """Whether a subclass has a compute_loss of its own, which may scale what it gets: the graph must stay."""
        return type(self).compute_loss is not RCADTrainerMixin.compute_loss

    def _prepared(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], Tensor, dict[str, Any]]:
        """The inputs with tokens embedded and images augmented, the labels, and what the criterion needs besides."""
        label = self.label_names[0]
        if not isinstance(inputs.get(label), Tensor):
            raise InputError(f"expected a tensor under {label!r} to train on, but got the keys {', '.join(inputs)}")
        x = {key: value for key, value in inputs.items() if key != label}
        check_pixels(x.get("pixel_values"))
        key = self.resolved.criterion.loss.input_key
        if "input_ids" in x and EMBEDDED not in x and key in (None, EMBEDDED):
            ids = x.pop("input_ids")
            x[EMBEDDED] = self.model.get_input_embeddings()(ids)
            if not self._embeddings_checked:
                check_embeddings(self.model, {**x, "input_ids": ids})
                self._embeddings_checked = True
        if not self.resolved.augment:
            return x, inputs[label], {}
        key = key or ("pixel_values" if "pixel_values" in x else EMBEDDED)
        classes = getattr(getattr(self.model, "config", None), "num_labels", None)
        batch = self.resolved.batch(x[key], inputs[label], classes=classes, generator=self._generator)
        views = {name: {**x, key: value} if name == "raw" else value for name, value in batch.views.items()}
        return {**x, key: batch.x}, batch.target, views

    def _share(self, items: Any, num_items: Tensor | int | None) -> Any:
        """What turns the mean over this batch into its part of the mean over all items of the optimizer's step."""
        if num_items is None:
            return 1 / getattr(self, "current_gradient_accumulation_steps", 1)
        return items * (self.accelerator.num_processes if self.args.average_tokens_across_devices else 1) / num_items

    def _plain_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool, num_items: Tensor | int | None
    ) -> Any:
        """The model's own loss; where it has none for this likelihood, the likelihood's."""
        label, likelihood = self.label_names[0], self.resolved.likelihood
        labels = inputs.get(label)
        check_labels(self.model, labels, likelihood)
        known = isinstance(likelihood, Bernoulli) if self._multi_label else isinstance(likelihood, Categorical)
        soft = isinstance(likelihood, Categorical) and isinstance(labels, Tensor) and labels.is_floating_point()
        if labels is None or (known and not soft):
            return super().compute_loss(model, inputs, return_outputs, num_items)
        outputs = model(**{key: value for key, value in inputs.items() if key != label})
        likelihood = likelihood.plain() if isinstance(likelihood, Categorical | Bernoulli) else likelihood
        loss = likelihood.nll(logits_of(outputs), labels).mean()
        return (loss, {"loss": loss, "logits": logits_of(outputs)}) if return_outputs else loss


class RCADTrainer(RCADTrainerMixin, Trainer):  # type: ignore[misc]
    """transformers.Trainer with a method's loss. See `RCADTrainerMixin`.

    Example:
        >>> trainer = RCADTrainer(model, args, train_dataset=data, method="rcad(alpha=2.0, lam=0.1)")  # doctest: +SKIP
    """


class _Shared:
    """A loss scaler that takes a share first, then does what the accelerator's scaler does."""

    def __init__(self, share: Any, scaler: Scaler | None) -> None:
        self.share, self.scaler = share, scaler

    def scale(self, outputs: Tensor) -> Tensor:
        outputs = outputs * self.share
        return outputs if self.scaler is None else self.scaler.scale(outputs)
