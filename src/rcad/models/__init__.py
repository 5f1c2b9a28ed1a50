"""Networks: pixels in [0, 1] go in, Normalize is layer zero, `features()` and `head()` come apart."""

from rcad.models.build import MODELS, build, load_weights
from rcad.models.layers import Model, Normalize

__all__ = ["MODELS", "Model", "Normalize", "build", "load_weights"]
