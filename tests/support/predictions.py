"""Predictions on which metrics like to go wrong: ties, one class, perfect, constant and hopeless predictors."""

import torch
from torch import Tensor


def random_logits(count: int = 300, classes: int = 7, *, seed: int = 0, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=generator)
    logits = scale * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    return logits + 2 * torch.nn.functional.one_hot(y, classes), y


def calibrated(count: int, classes: int = 4, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Labels drawn from the very probabilities that are stated."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


def cases() -> dict[str, tuple[Tensor, Tensor]]:
    logits, y = random_logits()
    certain = 60.0 * torch.nn.functional.one_hot(y, 7).double()
    return {
        "random": (logits, y),
        "float32": (logits.float(), y),
        "two classes": random_logits(201, 2, seed=1),
        "many classes": random_logits(150, 40, seed=2),
        "tied rows": (logits[torch.arange(300) // 10], y),
        "tied logits": (logits.round(), y),
        "one class": (logits, torch.full_like(y, 3)),
        "perfect": (certain, y),
        "hopeless": (certain.roll(1, dims=1), y),
        "constant": (torch.zeros_like(logits), y),
        "constant, leaning": (torch.tensor([1.0, 0, 0, 0, 0.5, 0, -2]).double().expand(300, 7), y),
        "one example": (logits[:1], y[:1]),
    }
