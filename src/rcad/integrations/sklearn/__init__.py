"""scikit-learn estimators that train a small network with RCAD or any of its rivals: fit, predict, pickle as usual."""

from rcad.errors import MissingExtraError

try:
    import pandas  # noqa: F401
    import safetensors  # noqa: F401
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "scikit-learn", "sklearn") from None

from rcad.integrations.sklearn.classifier import RCADClassifier
from rcad.integrations.sklearn.regressor import RCADRegressor

__all__ = ["RCADClassifier", "RCADRegressor"]
