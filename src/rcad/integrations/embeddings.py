"""Texts at their embeddings: how far is far there, what a language model predicts, and sequences packed into a row."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rcad.errors import InputError, finite
from rcad.loss.model_calls import Model
from rcad.loss.perturbations import Perturbation
from rcad.loss.suggest_alpha import suggest_alpha

IGNORED = -100
EmbeddingAlpha = float | Literal["auto"]


@torch.no_grad()
def embedding_distance(model: nn.Module, alpha: EmbeddingAlpha) -> float:
    """alpha as an L2 distance between sequences of embeddings, as the model's table gives them.

    A number is in units of their mean norm. "auto" is `suggest_alpha` of the table with each token a class of its own,
    half the median distance from a token to its nearest other one.
    """
    table: Any = model.get_input_embeddings()  # type: ignore[operator]
    tokens = torch.arange(len(table.weight), device=table.weight.device)
    rows = table(tokens).float()
    if alpha == "auto":
        return suggest_alpha(rows, tokens, generator=torch.Generator(rows.device).manual_seed(0))
    finite("embedding_alpha", alpha, minimum=0.0)
    norms = rows.norm(dim=1)
    if not bool(norms.any()):
        raise InputError("expected embeddings with a length, but the table holds zeros; load or initialise it first")
    return alpha * float(norms[norms > 0].mean())  # without rows of padding


def has_tokens(model: Any) -> bool:
    """Whether the inputs of a model are tokens, which a table embeds."""
    table: Any = None
    with suppress(NotImplementedError):  # a model of sounds has no table
        table = getattr(model, "get_input_embeddings", lambda: None)()
    return isinstance(getattr(table, "weight", None), Tensor) and table.weight.ndim == 2


def predicts_next(model: Any) -> bool:
    """Whether a model predicts the next token at each position; raises for an encoder with a decoder."""
    if not getattr(model, "can_generate", lambda: False)():
        return False
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise InputError(
            f"expected a model that classifies, regresses or predicts the next token, but got {type(model).__name__}, "
            "which has an encoder and a decoder"
        )
    return True


def next_tokens(labels: Tensor) -> Tensor:
    """Labels shifted by one position to the left; the last position has none."""
    return nn.functional.pad(labels, (0, 1), value=IGNORED)[:, 1:]


class Packs:
    """Finds the sequences that were packed one after the other into the rows of a batch, by its `position_ids`.

    To the perturbations that were `wrapped` each is an example, which moves by the whole alpha.
    """

    def __init__(self) -> None:
        self.places: tuple[Tensor, Tensor] | None = None

    def find(self, positions: Any) -> None:
        """By (B, T) positions, which go on by one inside a sequence; None: a row is a sequence."""
        self.places = None
        if not isinstance(positions, Tensor) or positions.ndim != 2:
            return
        begins = torch.diff(positions, dim=1, prepend=positions[:, :1] - 1) != 1
        if not bool(begins.any()):
            return
        begins[:, 0] = True
        flat = begins.flatten()
        sequence, index = flat.cumsum(0) - 1, torch.arange(len(flat), device=flat.device)
        self.places = sequence, index - index[flat][sequence]

    def apart(self, x: Tensor) -> Tensor:
        """(B, T, ...) -> one row for each sequence, filled up with zeros."""
        assert self.places is not None
        sequence, place = self.places
        rows = x.new_zeros(int(sequence[-1]) + 1, int(place.max()) + 1, *x.shape[2:])
        return rows.index_put(self.places, x.flatten(0, 1))

    def together(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """One row for each sequence -> (B, T, ...)."""
        assert self.places is not None
        return rows[self.places].view(shape)

    def wrapped(self, where: Perturbation) -> Perturbation:
        return _Packed(where, self)


class _Packed:
    """A perturbation that sees every packed sequence as a row."""

    def __init__(self, where: Perturbation, packs: Packs) -> None:
        self.where, self.packs = where, packs
        self.norm, self.direction_loss = getattr(where, "norm", None), where.direction_loss

    def __call__(self, model: Model, x: Tensor, *rest: Any, mask: Tensor | None = None, **options: Any) -> Tensor:
        packs = self.packs
        if packs.places is None:
            return self.where(model, x, *rest, mask=mask, **options)
        mask = torch.ones(x.shape[:2], device=x.device) if mask is None else mask
        if options.get("gradient") is not None:
            options["gradient"] = packs.apart(options["gradient"])

        def packed_again(rows: Tensor) -> Any:
            return model(packs.together(rows, x.shape))

        moved = self.where(packed_again, packs.apart(x), *rest, mask=packs.apart(mask), **options)
        return packs.together(moved, x.shape)
