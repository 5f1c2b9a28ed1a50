"""RCAD as a scikit-learn estimator: a table with text and gaps, a grid of methods, probabilities and intervals.
The rest of scikit-learn works around it as usual: cross-validation, search, calibration, pickling."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_diabetes, load_wine
from sklearn.model_selection import GridSearchCV, cross_validate, train_test_split

from rcad.integrations.sklearn import RCADClassifier, RCADRegressor


def table_with_gaps():
    """The wine data as people have tables: one column as text, some values missing."""
    data = load_wine(as_frame=True)
    x = data.data.copy()
    x["colour_intensity"] = pd.cut(x.pop("color_intensity"), 4, labels=["pale", "light", "deep", "dark"]).astype(object)
    draw = np.random.default_rng(0)
    x.loc[draw.random(len(x)) < 0.1, "alcohol"] = np.nan
    x.loc[draw.random(len(x)) < 0.1, "colour_intensity"] = None
    return x, data.target_names[data.target]


def classification():
    x, y = table_with_gaps()
    model = RCADClassifier(random_state=0).fit(x, y)
    print(f"alpha, measured on the standardised table: {model.alpha_:.2f}; method: {model.method_}")
    new = x.head(1).assign(colour_intensity="violet")  # a category that training has not seen
    p = dict(zip(model.classes_.tolist(), model.predict_proba(new)[0].round(3).tolist(), strict=True))
    print("probabilities of a new row:", p)

    # Any rival by its name; the controls tell whether the adversarial direction is what helps.
    for method in ("erm", "rcad_random", "rcad"):
        scores = cross_validate(
            RCADClassifier(method, random_state=0), x, y, cv=5, scoring=("accuracy", "neg_log_loss")
        )
        accuracy, nll = 100 * scores["test_accuracy"].mean(), -scores["test_neg_log_loss"].mean()
        print(f"{method:12} accuracy {accuracy:5.1f}%, NLL {nll:.3f} (5 folds)")

    search = GridSearchCV(
        RCADClassifier(random_state=0, max_iter=100), {"lam": [0.02, 0.1, 0.5]}, scoring="neg_log_loss"
    )
    print("lam chosen by cross-validation:", search.fit(x, y).best_params_["lam"])

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wine.safetensors"
        model.save(path)  # tensors and JSON: nothing in it is ever executed
        same = np.array_equal(RCADClassifier.load(path).predict_proba(x), model.predict_proba(x))
    print("saved without pickle, and the same after loading:", same)


def regression():
    x, y = load_diabetes(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
    model = RCADRegressor(random_state=0).fit(x_train, y_train)
    mean, deviation = model.predict(x_test, return_std=True)
    low, high = model.predict_interval(x_test, coverage=0.9).T
    inside = 100 * ((low < y_test) & (y_test < high)).mean()
    print(f"diabetes: R² {model.score(x_test, y_test):.2f}; first row {mean[0]:.0f} ± {deviation[0]:.0f}")
    print(f"90% intervals hold {inside:.0f}% of {len(y_test)} test targets (one split)")


def main():
    torch.set_num_threads(1)  # for nets this small more threads only wait for each other
    classification()
    regression()


if __name__ == "__main__":
    main()
