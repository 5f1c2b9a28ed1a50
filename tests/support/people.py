"""Tables for the tests of the scikit-learn estimators: well-known ones, and one as people have them."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, load_wine, make_multilabel_classification

ROWS = 60
WINE, DIABETES = (load(return_X_y=True) for load in (load_wine, load_diabetes))
LABELS = make_multilabel_classification(200, 8, n_classes=3, random_state=0)  # three yes/no labels for each row
REALS = DIABETES[0], np.stack([DIABETES[1], 1000 - 3 * DIABETES[1], DIABETES[0][:, 2]], 1)  # three numbers for each row


def people(seed: int = 0) -> tuple[Any, Any]:
    """A table with every kind of column; the label depends on the colour, the age and whether the income is known."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": draw.normal(40, 12, ROWS),
            "income": draw.normal(3e4, 8e3, ROWS),
            "colour": draw.choice(["red", "green", "blue"], ROWS),
            "size": pd.Categorical(draw.choice([1, 2, 3], ROWS)),
            "member": draw.random(ROWS) < 0.5,
            "note": pd.array(draw.choice(["a", "b"], ROWS), dtype="string"),
            "count": pd.array(draw.integers(0, 9, ROWS), dtype="Int64"),
        }
    )
    frame.loc[::7, "income"] = np.nan
    frame.loc[3::9, "note"] = pd.NA
    frame.loc[5::11, "count"] = pd.NA
    y = np.where((frame["colour"] == "red") ^ (frame["age"] > 45), "yes", "no")
    return frame, y
