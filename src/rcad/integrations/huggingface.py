"""Hugging Face: a Trainer whose training loss is a method's, for texts (at their embeddings) and images (at pixels).

Evaluation, prediction, checkpoints, logging and the optimizer are the Trainer's own.
"""

from __future__ import annotations

import inspect
import json
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError

try:
    import accelerate  # noqa: F401
    import transformers
    from transformers import Trainer
except ModuleNotFoundError:
    raise MissingExtraError("transformers with accelerate", "hf") from None

from rcad.integrations import embeddings
from rcad.integrations.accelerate import check_compiled, check_strategy
from rcad.integrations.resolve import MethodLike, Resolved, measures_alpha, reread, resolve
from rcad.loss.criterion import Criterion
from rcad.loss.likelihoods import Bernoulli, Categorical, Likelihood
from rcad.loss.model_calls import evaluating, logits_of, preserved_rng
from rcad.loss.perturbations import Channels

__all__ = ["RCADTrainer", "RCADTrainerMixin"]

MEASURED = "rcad_alpha.json"
EMBEDDED = "inputs_embeds"
MULTI_LABEL = "multi_label_classification"
SINGLE_LABEL = "single_label_classification"
CLASS_WEIGHTS = "for class weights pass method=rcad.RCAD(..., likelihood=rcad.Categorical(weight=...))"


class Watch(transformers.TrainerCallback):  # type: ignore[misc]
    """Checks before every optimizer step that the loss was reached, since a training_step may override the mixin's."""

    def __init__(self, trainer: RCADTrainerMixin) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self._trainer._check_reached("training_step")
        self._trainer._reached = False


def normalisation(processor: Any) -> tuple[Channels | None, Channels | None]:
    """The mean and std of an image processor; None where there is no processor or it does not normalise."""
    processor = getattr(processor, "image_processor", processor)
    if not getattr(processor, "do_normalize", False):
        return None, None
    mean, std = getattr(processor, "image_mean", None), getattr(processor, "image_std", None)
    return (None, None) if mean is None or std is None else (tuple(mean), tuple(std))


Base: Any = Trainer if TYPE_CHECKING else object  # a mixin, whose superclass is some Trainer


class RCADTrainerMixin(Base):  # type: ignore[misc]
    """A method's loss for any Trainer: `class MyTrainer(RCADTrainerMixin, Trainer)`. `RCADTrainer` is the plain one.

    Args:
        method: text such as "rcad(alpha=2.0, lam=0.1)", a Method, or a Criterion. For texts alpha is an L2 distance
            between whole sequences of embeddings; for images in pixels. With `embedding_alpha` RCAD by default.
        embedding_alpha: the distance of the method's step at embeddings, in units of the mean norm of an embedding (as
            `neftune_noise_alpha` is one number for all models), or "auto", which measures it on the table
            (`rcad.suggest_alpha`); None leaves the method's own alpha, where that is a number.
        mean, std: by which `pixel_values` were normalised; default: what the processing_class says.
        input_key: the input to perturb; default: the embeddings of `input_ids`, else the only floating-point input.
        mask_key: the mask of its real positions; default "attention_mask".
        generator: of augmentations and random steps; default torch's global one, which the checkpoints hold.
    """

    # The loss is divided here, by items over the whole accumulated batch; the Trainer must not do it again.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        *args: Any,
        method: MethodLike | None = None,
        embedding_alpha: embeddings.EmbeddingAlpha | None = None,
        mean: Channels | None = None,
        std: Channels | None = None,
        input_key: str | None = None,
        mask_key: str | None = None,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> None:
        check_behind(type(self), RCADTrainerMixin)
        if method is None and embedding_alpha is None:
            raise InputError('expected method="rcad(alpha=..., lam=...)" or embedding_alpha=, but got neither')
        method = "rcad" if method is None else method
        super().__init__(*args, **kwargs)
        self._multi_label = problem_type(self.model) == MULTI_LABEL
        if mean is None and std is None and not isinstance(method, Criterion):
            mean, std = normalisation(self.processing_class)
        left_open = embedding_alpha is None and input_key is None and measures_alpha(method)
        if left_open and embeddings.has_tokens(self.model):
            embedding_alpha = "auto"
        options: dict[str, Any] = {"mean": mean, "std": std, "input_key": input_key, "mask_key": mask_key}
        if self._multi_label and not isinstance(method, Criterion):
            options["likelihood"] = Bernoulli()
        if embedding_alpha is not None:
            options["parameters"] = {"alpha": embeddings.embedding_distance(self.model, embedding_alpha)}
        self.resolved = resolve(method, **options)
        check_trainer(self, self.resolved)
        self._generator = generator
        self._predicts_next, self._packs = embeddings.predicts_next(self.model), embeddings.Packs()
        # Hugging Face's token models have logits (B, T, K) for labels (B, T).
        tokens = reread(self.resolved.criterion, lambda labels: replace(labels, class_dim=-1), self._packs.wrapped)
        self._criteria = self.resolved.criterion, tokens
        self._stepping = self._reached = self._embeddings_checked = False
        self._parts: dict[str, tuple[Tensor | float, int]] = {}
        self._missing: tuple[str, ...] = ()
        self.add_callback(Watch(self))

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """The Trainer's own step; inside it `compute_loss` may run the gradients itself, in fewer passes."""
        self._stepping, self._reached = True, False
        try:
            loss: Tensor = super().training_step(*args, **kwargs)
        finally:
            self._stepping = False
        self._check_reached("compute_loss" if self._overridden() else "training_step")
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
        check_labels(self.model, inputs.get("labels"), self.resolved.likelihood)
        x, target, options = self._prepared(inputs)
        labels, criterion = inputs["labels"], self.resolved.criterion
        if self._predicts_next:
            shifted = x.pop("shift_labels", None)  # some collators bring it along
            target = labels = embeddings.next_tokens(labels) if shifted is None else shifted
        items: Any = labels.numel()  # as the Trainer counts: an example with three yes/no labels is three
        if labels.ndim >= 2 and not labels.is_floating_point():
            counts = (labels != embeddings.IGNORED).flatten(1).sum(1)
            items = counts.sum()
            # The criterion averages an example's tokens, or pixels; weighed by their number, each counts the same.
            if len(labels) > 1:
                options["weight"] = counts * (len(labels) / items.clamp(min=1))
            if labels.ndim == 2:
                criterion = self._criteria[1]
                self._packs.find(x.get("position_ids"))
        options |= {"step": self.state.global_step, "generator": self._generator}
        share = self._share(items, num_items_in_batch)
        try:
            if self._stepping and not return_outputs and not self._overridden():
                scaled = getattr(self.accelerator.scaler, "scale", lambda outputs: outputs)
                shared = SimpleNamespace(scale=lambda outputs: scaled(outputs * share))
                losses = criterion.backward(model, x, target, scaler=shared, **options)
                # The gradients are there; the Trainer's own backward ends in this leaf.
                loss = (losses.total * share).requires_grad_()
            else:
                losses = criterion.losses(model, x, target, **options)
                loss = losses.total * share
        except RuntimeError as error:
            if "requires_grad flags of leaf" not in str(error):
                raise
            raise InputError(
                f"expected an input that may have a gradient, but {type(self.model).__name__} sets requires_grad on it "
                "while it trains its feature encoder; call model.freeze_feature_encoder() first"
            ) from None
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

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The Trainer's own; a measured alpha is saved in a file beside the weights."""
        super().save_model(output_dir, _internal_call)
        states = [criterion.state_dict() for criterion in self._criteria]
        if self.args.should_save and any(state["alpha"] is not None for state in states):
            (Path(output_dir or self.args.output_dir) / MEASURED).write_text(json.dumps(states) + "\n")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        measured = Path(resume_from_checkpoint) / MEASURED
        if measured.is_file():
            for criterion, state in zip(self._criteria, json.loads(measured.read_text()), strict=True):
                criterion.load_state_dict(state)
        self._load_rest(resume_from_checkpoint, self.model if model is None else model)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        self._load_rest(str(self.state.best_model_checkpoint), self.model)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Keeps the missing names for `_load_rest`; the Trainer only logs them."""
        self._missing = tuple(load_result.missing_keys)
        if not self._missing:
            super()._issue_warnings_after_load(load_result)

    def _load_rest(self, folder: str, model: nn.Module) -> None:
        """Loads what is missing as `from_pretrained` does, and warns of what is missing still.

        transformers 5.22 writes some models, such as ViT, under older names, which only `from_pretrained` turns back.
        """
        names, self._missing = self._missing, ()
        if names and isinstance(model, transformers.PreTrainedModel) and not getattr(model, "is_quantized", False):
            with preserved_rng(torch.device("cpu")):
                loaded, info = type(model).from_pretrained(folder, dtype="auto", output_loading_info=True)
            names = tuple(info["missing_keys"])
            found = {key: value for key, value in loaded.state_dict().items() if key not in names}
            model.load_state_dict(found, strict=False)
        if names:
            more = f" and {len(names) - 1} more are" if names[1:] else " is"
            warnings.warn(
                f"expected {folder} to hold every parameter of {type(model).__name__}, but {names[0]}{more} missing: "
                "what is missing keeps its present value, so training does not go on where it stopped",
                stacklevel=2,
            )

    def _check_reached(self, name: str) -> None:
        """Raises if the method's loss was not reached, for which the subclass's function `name` is blamed."""
        if not self._reached:
            raise InputError(
                f"expected {type(self).__name__}.{name} to call super().{name}, where the method's loss is, but it did "
                f"not; call it and add to what it returns, or leave yours out; {CLASS_WEIGHTS}"
            )

    def _overridden(self) -> bool:
        """Whether a subclass overrides compute_loss: it may scale the loss, which must then keep its graph."""
        return type(self).compute_loss is not RCADTrainerMixin.compute_loss

    def _prepared(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], Tensor, dict[str, Any]]:
        """The inputs with tokens embedded and images augmented, the labels, and further options of the criterion."""
        if not isinstance(inputs.get("labels"), Tensor):
            raise InputError(f"expected a tensor under 'labels' to train on, but got the keys {', '.join(inputs)}")
        x = {key: value for key, value in inputs.items() if key != "labels"}
        if isinstance(pixels := x.get("pixel_values"), Tensor) and not pixels.is_floating_point():
            raise InputError(
                f"expected floating-point pixel_values, but got {pixels.dtype}; divide them by 255, or let the "
                "processor rescale them"
            )
        key = self.resolved.criterion.loss.input_key
        if "input_ids" in x and EMBEDDED not in x and key in (None, EMBEDDED):
            if not self._embeddings_checked:
                check_embeddings(self.model, x)
                self._embeddings_checked = True
            x[EMBEDDED] = self.model.get_input_embeddings()(x.pop("input_ids"))
        if not self.resolved.augment:
            return x, inputs["labels"], {}
        key = key or ("pixel_values" if "pixel_values" in x else EMBEDDED)
        classes = getattr(getattr(self.model, "config", None), "num_labels", None)
        batch = self.resolved.batch(x[key], inputs["labels"], classes=classes, generator=self._generator)
        views = {name: {**x, key: value} if name == "raw" else value for name, value in batch.views.items()}
        return {**x, key: batch.x}, batch.target, views

    def _share(self, items: Any, num_items: Tensor | int | None) -> Any:
        """The factor from the mean over this batch to its share of the mean over all items of the optimizer step."""
        if num_items is None:
            return 1 / getattr(self, "current_gradient_accumulation_steps", 1)
        return items * (self.accelerator.num_processes if self.args.average_tokens_across_devices else 1) / num_items

    def _plain_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool, num_items: Tensor | int | None
    ) -> Any:
        """The model's own loss, or the likelihood's NLL where the model has no loss for it."""
        labels, likelihood = inputs.get("labels"), self.resolved.likelihood
        check_labels(self.model, labels, likelihood)
        has_own_loss = isinstance(likelihood, Bernoulli if self._multi_label else Categorical)
        soft = isinstance(likelihood, Categorical) and isinstance(labels, Tensor) and labels.is_floating_point()
        if labels is None or (has_own_loss and not soft):
            return super().compute_loss(model, inputs, return_outputs, num_items)
        outputs = model(**{key: value for key, value in inputs.items() if key != "labels"})
        likelihood = likelihood.plain() if isinstance(likelihood, Categorical | Bernoulli) else likelihood
        loss = likelihood.nll(logits_of(outputs), labels).mean()
        return (loss, {"loss": loss, "logits": logits_of(outputs)}) if return_outputs else loss


class RCADTrainer(RCADTrainerMixin, Trainer):  # type: ignore[misc]
    """transformers.Trainer with a method's loss. See `RCADTrainerMixin`.

    Example:
        >>> trainer = RCADTrainer(model, args, train_dataset=data, method="rcad(alpha=2.0, lam=0.1)")  # doctest: +SKIP
    """


def check_behind(kind: type, mixin: type) -> None:
    """Raises if a base class after the mixin has a compute_loss, which would be used in evaluation alone."""
    behind = kind.__mro__[kind.__mro__.index(mixin) + 1 :]
    owner: Any = next((base for base in behind if "compute_loss" in vars(base)), transformers.Trainer)
    if owner.compute_loss is not transformers.Trainer.compute_loss:
        raise InputError(
            f"expected the method to be the loss, but got {owner.__name__}.compute_loss as well, which would count in "
            f"evaluation only; leave that out; {CLASS_WEIGHTS}"
        )


def check_trainer(trainer: Any, resolved: Resolved) -> None:
    """Raises for settings of the Trainer under which another loss would be trained."""
    args, model = trainer.args, trainer.model
    if not hasattr(transformers.Trainer, "loss_is_scaled_for_ga"):
        raise InputError(
            "expected transformers 5.19 or newer, whose Trainer leaves accumulation to compute_loss, "
            f"but got {transformers.__version__}; upgrade it"
        )
    check_strategy(trainer.accelerator)
    if getattr(args, "label_smoothing_factor", 0):
        eps = args.label_smoothing_factor
        raise InputError(
            f"expected the method to smooth labels, but got label_smoothing_factor={eps:g}; "
            f'set it to 0 and use method="label_smoothing(eps={eps:g}) + {resolved.name}"'
        )
    if trainer.compute_loss_func is not None:
        raise InputError("expected the method to be the loss, but got compute_loss_func as well; leave that out")
    if args.n_gpu > 1:
        raise InputError(
            f"expected one GPU per process, but got {args.n_gpu}; start with torchrun or accelerate launch"
        )
    optimizer = getattr(args.optim, "value", args.optim)
    if "lomo" in str(optimizer):
        raise InputError(f"expected an optimizer that steps after the backward, but got {optimizer}; choose another")
    if list(trainer.label_names) != ["labels"]:
        raise InputError(f"expected labels under 'labels' alone, but got {', '.join(trainer.label_names)}")
    name, parameters = type(model).__name__, inspect.signature(model.forward).parameters
    if "input_ids" in parameters and "inputs_embeds" not in parameters:
        raise InputError(f"expected a model that takes inputs_embeds, which are to move, but {name}.forward does not")
    if not isinstance(resolved.likelihood, Categorical):
        return
    if problem_type(model) == "regression":
        raise InputError(
            'expected a Gaussian likelihood for problem_type="regression", but got Categorical; give the model two '
            'outputs per target (num_labels=2: a mean and a log-variance) and use method="gaussian + rcad(...)"'
        )
    if problem_type(model) == MULTI_LABEL:
        raise InputError(
            f'expected a Bernoulli likelihood for problem_type="{MULTI_LABEL}", but got Categorical; '
            "pass likelihood=rcad.Bernoulli() to the Criterion"
        )
    if getattr(getattr(model, "config", None), "num_labels", 2) == 1:
        raise InputError(
            f"expected at least 2 labels, but {name} has num_labels=1; for regression use num_labels=2 (a mean and a "
            'log-variance) and method="gaussian + rcad(...)", for yes or no "bernoulli + rcad(...)"'
        )


def problem_type(model: nn.Module) -> str | None:
    """The model's config.problem_type: what transformers takes the labels for."""
    return getattr(getattr(model, "config", None), "problem_type", None)


def check_labels(model: nn.Module, labels: Any, likelihood: Likelihood) -> None:
    """Raises for floating-point labels without a problem_type: transformers would take them for yes/no labels."""
    has_type = hasattr(getattr(model, "config", None), "problem_type")
    floating = isinstance(labels, Tensor) and labels.is_floating_point()
    if has_type and floating and isinstance(likelihood, Categorical) and problem_type(model) != SINGLE_LABEL:
        raise InputError(
            f"expected integer labels, or a config.problem_type that says what {labels.dtype} labels are, but got "
            f'{problem_type(model)}; set it to "{MULTI_LABEL}" for yes/no labels, to "{SINGLE_LABEL}" for '
            'probabilities of the classes, or use method="gaussian + rcad(...)" for regression targets'
        )


@torch.no_grad()
def check_embeddings(model: nn.Module, inputs: dict[str, Any]) -> None:
    """Raises if tokens and their embeddings get different logits, as in models that look for padding in the ids."""
    embedded = {key: value for key, value in inputs.items() if key != "input_ids"}
    with evaluating(model):
        # The whole model first: a sharded one must be entered there before its table may be used alone.
        expected = logits_of(model(**inputs)).float()
        embedded[EMBEDDED] = model.get_input_embeddings()(inputs["input_ids"])  # type: ignore[operator]
        logits = logits_of(model(**embedded)).float()
    gap = (expected - logits).abs().max().item()
    if gap > 1e-2 * expected.abs().max().item() + 1e-3:
        raise InputError(
            f"expected {type(model).__name__} to give equal logits for input_ids and for their inputs_embeds, but they "
            f"differ by {gap:.3g}: it reads padding or positions from the ids; use batches without padding, or pad on "
            "the left and pass position_ids"
        )
