"""`rcad.loss.methods` by its public name: `from rcad.methods import mixup, rcad`. The same module, not a copy."""

import sys

from rcad.loss import methods
from rcad.loss.methods import *  # noqa: F403  # for type checkers

sys.modules[__name__] = methods
