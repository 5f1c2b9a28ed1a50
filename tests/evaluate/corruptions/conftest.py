"""Images to corrupt: pieces of two photographs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

Photos = Callable[[int, int], Tensor]


@pytest.fixture(scope="session")
def photos() -> Photos:
    """photos(side, count): random square pieces of scikit-learn's sample pictures, float32 in [0, 1]."""
    datasets = pytest.importorskip("sklearn.datasets")
    pytest.importorskip("PIL")
    pictures = [
        torch.from_numpy(datasets.load_sample_image(name).copy()).permute(2, 0, 1).float() / 255
        for name in ("china.jpg", "flower.jpg")
    ]

    def cut(side: int, count: int) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        pieces = []
        for index in range(count):
            picture = pictures[index % 2]
            length = int(torch.randint(200, 427, (1,), generator=generator))
            top = int(torch.randint(427 - length, (1,), generator=generator))
            left = int(torch.randint(640 - length, (1,), generator=generator))
            piece = picture[None, :, top : top + length, left : left + length]
            pieces.append(F.interpolate(piece, size=(side, side), mode="bilinear", antialias=True))
        return torch.cat(pieces).clamp(0, 1)

    return cut
