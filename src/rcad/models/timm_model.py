"""Any network of the timm library, behind the interface of this package."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError
from rcad.models.layers import Model, layer_zero


class TimmModel(Model):
    """A timm network with `Normalize` before it.

    Args:
        name: timm's name, e.g. "convnext_tiny".
        num_outputs: size of the output.
        in_shape: (C, H, W) of the images.
        dropout: timm's drop_rate, before the head; none keeps timm's own.
        mean, std: per channel, in [0, 1] pixels; none takes those that timm gives for the network.
        pretrained: with the weights that timm fetches for the name, a new head where they have other outputs.

    Shape:
        (B, C, H, W) in [0, 1] -> (B, num_outputs).
    """

    def __init__(
        self,
        name: str,
        *,
        num_outputs: int,
        in_shape: tuple[int, int, int],
        dropout: float | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        timm = import_timm()
        if not timm.is_model(name):
            near = difflib.get_close_matches(name, timm.list_models(), n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() names them"
            raise InputError(f"expected the name of a timm model, but got {name!r}; {hint}")
        options: dict[str, Any] = {} if dropout is None else {"drop_rate": dropout}
        cfg = timm.get_pretrained_cfg(name)
        if cfg is not None and cfg.fixed_input_size:
            # Transformers with learned positions must know the size of the images when they are built.
            options["img_size"] = in_shape[1:]
        try:
            self.net: Any = timm.create_model(
                name, pretrained=pretrained, num_classes=num_outputs, in_chans=in_shape[0], **options
            )
        except Exception as error:  # whatever stands between here and the weights
            if not pretrained:
                raise
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"expected timm to fetch the weights of {name}, but got: {reason}; download them where there is a "
                "network, and name the file: model.weights=FILE"
            ) from None
        own = self.net.default_cfg if in_shape[0] == 3 else {}
        self.normalize = layer_zero(
            in_shape[0],
            own.get("mean") if mean is None else mean,
            own.get("std") if std is None else std,
        )
        classifier = self.net.get_classifier()
        names = [n for n, module in self.net.named_modules() if module is classifier]
        if not names or not isinstance(classifier, nn.Linear):
            raise InputError(f"expected a timm model with one linear head, but got {name!r}; take another one")
        self.head_name = f"net.{names[0]}"
        self.num_features = classifier.in_features

    def features(self, x: Tensor) -> Tensor:
        features: Tensor = self.net.forward_head(self.net.forward_features(self.normalize(x)), pre_logits=True)
        return features

    def head(self, features: Tensor) -> Tensor:
        output: Tensor = self.net.get_classifier()(features)
        return output


def import_timm() -> Any:
    """The library, or one line that says what is missing or does not fit."""
    try:
        import timm
    except ModuleNotFoundError:
        raise MissingExtraError("timm", "timm") from None
    except Exception as error:  # a torchvision that does not fit torch fails with whatever it meets first
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        wanted = f"a torchvision that fits torch {torch.__version__}" if "torchvision" in reason else "timm to import"
        raise InputError(f"expected {wanted}, but importing timm gave {reason}; see: rcad doctor") from None
    return timm
