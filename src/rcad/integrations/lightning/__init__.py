"""RCAD and its rivals in Lightning: a mixin and a callback for the Trainer, a criterion for Fabric."""

from rcad.errors import MissingExtraError

try:
    import lightning as lightning
except ModuleNotFoundError:
    raise MissingExtraError("lightning", "lightning") from None

from rcad.integrations.lightning.callback import RCADCallback
from rcad.integrations.lightning.fabric import FabricCriterion
from rcad.integrations.lightning.mixin import RCADMixin

__all__ = ["FabricCriterion", "RCADCallback", "RCADMixin"]
