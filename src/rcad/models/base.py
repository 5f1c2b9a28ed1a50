"""What every model of this package offers: features, a head, and nothing between them."""

from __future__ import annotations

from torch import Tensor, nn


class Model(nn.Module):
    """A network cut in two: `forward(x) = head(features(x))`.

    Subclasses keep the last linear layer under the name in `head_name`, so that weights trained with another
    number of outputs can be loaded without it.
    """

    head_name: str = "fc"
    num_features: int
    fc: nn.Linear

    def features(self, x: Tensor) -> Tensor:
        """Embed a batch.

        Args:
            x: images (B, C, H, W) in [0, 1], or features (B, D).

        Returns:
            (B, F) with F = `num_features`.
        """
        raise NotImplementedError

    def head(self, features: Tensor) -> Tensor:
        """Map (B, F) features to (B, num_outputs): logits, or mean and log-variance."""
        output: Tensor = self.fc(features)
        return output

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))
