"""skorch: nets whose training loss is a method's; `method`, `alpha` and `lam` can be searched by GridSearchCV."""

from rcad.errors import MissingExtraError

try:
    import skorch as skorch
except ModuleNotFoundError:
    raise MissingExtraError("skorch", "skorch") from None

from rcad.integrations.skorch.losses import GaussianLoss
from rcad.integrations.skorch.net import RCADNetClassifier, RCADNetMixin, RCADNetRegressor

__all__ = ["GaussianLoss", "RCADNetClassifier", "RCADNetMixin", "RCADNetRegressor"]
