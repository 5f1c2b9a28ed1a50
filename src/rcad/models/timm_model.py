"""Any network of the timm library, behind the interface of this package."""

from __future__ import annotations

import difflib
import importlib
import logging
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError
from rcad.models.layers import Model, Normalize

log = logging.getLogger("rcad")

FILES = ("model.safetensors", "pytorch_model.bin")  # what timm's weights are called on the Hugging Face Hub


class TimmModel(Model):
    """A timm network with `Normalize` before it, which has the statistics that timm gives for the network.

    Args:
        name: timm's name, e.g. "convnext_tiny".
        dropout: timm's drop_rate, before the head; none keeps timm's own.
        pretrained: with the weights that timm fetches for the name, a new head where they have other outputs.
    """

    def __init__(
        self,
        name: str,
        *,
        num_outputs: int,
        in_shape: tuple[int, int, int],
        dropout: float | None = None,
        pretrained: bool = False,
    ) -> None:
        channels = in_shape[0]
        super().__init__(channels)
        timm, self.title = import_timm(), f"timm:{name}"
        if not timm.is_model_pretrained(name) and (pretrained or "." in name or not timm.is_model(name)):
            near = difflib.get_close_matches(name, timm.list_pretrained() if pretrained else timm.list_models(), n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() names them"
            which = " with pretrained weights" if pretrained else ""
            raise InputError(f"expected the name of a timm model{which}, but got {name!r}; {hint}")
        options: dict[str, Any] = {} if dropout is None else {"drop_rate": dropout}
        cfg = timm.get_pretrained_cfg(name) or timm.models.PretrainedCfg()
        if cfg.fixed_input_size:
            # Transformers with learned positions must know the size of the images when they are built.
            options["img_size"] = in_shape[1:]
        if pretrained and cfg.hf_hub_id:
            _check_reachable(name, cfg.hf_hub_id)
        # Images of other channels than three: timm sums the first layer's weights over the colours.
        own = [rgb if channels == 3 else (sum(rgb) / len(rgb),) * channels for rgb in (cfg.mean, cfg.std)]
        self.normalize = Normalize(*own)
        try:
            self.net: Any = timm.create_model(
                name, pretrained=pretrained, num_classes=num_outputs, in_chans=channels, **options
            )
            self.net.eval()(torch.zeros(1, *in_shape))
        except Exception as error:  # whatever it says of images that it cannot take
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise InputError(
                f"expected timm to build {name} for images of {'x'.join(map(str, in_shape))}, but got: {reason}; "
                f"--size {cfg.input_size[-1]} resizes them"
            ) from None
        if pretrained and 2 * max(in_shape[1:]) <= cfg.input_size[-1]:
            _warn_of_size(name, max(in_shape[1:]), cfg.input_size[-1])
        self.net.train()
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


def _check_reachable(name: str, repository: str) -> None:
    """One request where the Hub's cache has no weights: without a network its library would try for a minute."""
    hub = importlib.import_module("huggingface_hub")
    if any(isinstance(hub.try_to_load_from_cache(repository, file), str) for file in FILES):
        return
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, FILES[0]))
    except hub.errors.EntryNotFoundError:  # the Hub answers, and timm knows other names
        return
    except Exception as error:  # whatever stands between here and the Hub
        raise InputError(
            f"expected the weights of {name}, but the Hugging Face Hub was not reached ({type(error).__name__}); where "
            f"there is a network, download {FILES[0]} of {repository}, then pass it here: --weights FILE"
        ) from None


@cache
def _warn_of_size(name: str, side: int, own: int) -> None:
    log.warning(
        "%s was trained on images of %d pixels a side, but these have %d; --size %d resizes them", name, own, side, own
    )


def import_timm() -> Any:
    """Import timm; raises in one line what is missing or does not fit."""
    try:
        import timm
    except ModuleNotFoundError:
        raise MissingExtraError("timm", "timm") from None
    except Exception as error:  # a torchvision that does not fit torch fails with whatever it meets first
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        fit = f"a torchvision that fits torch {torch.__version__}" if "torchvision" in reason else "timm to import"
        raise InputError(f"expected {fit}, but importing timm gave {reason}; see: rcad doctor") from None
    return timm
