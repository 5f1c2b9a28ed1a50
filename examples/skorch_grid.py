"""RCAD in skorch: alpha and lam searched by scikit-learn's GridSearchCV on 100 of its digits.
The controls get the same search: a step in a random direction, and no step at all."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from torch import nn

from rcad.integrations.skorch import RCADNetClassifier

LABELS = 100


class MLP(nn.Module):
    """Ends in logits: RCADNetClassifier's criterion is CrossEntropyLoss."""

    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x):
        return self.layers(x)


def net(method):
    settings = {"max_epochs": 30, "batch_size": 25, "lr": 4e-3, "optimizer": torch.optim.Adam}
    return RCADNetClassifier(MLP, method=method, train_split=None, verbose=0, **settings)


def search(method, grid, x, y):
    torch.manual_seed(0)
    scored = GridSearchCV(net(method), grid, scoring="neg_log_loss", cv=3)
    return scored.fit(x, y)


def main():
    torch.set_num_threads(1)  # for nets this small more threads only wait for each other
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    x_train, x_test, y_train, y_test = train_test_split(x, y, train_size=LABELS, stratify=y, random_state=0)
    grids = {
        "erm": {},
        "rcad": {"alpha": [0.7, 2.0], "lam": [0.1, 0.5]},
        "rcad_random": {"alpha": [0.7, 2.0], "lam": [0.1, 0.5]},
        "confidence_penalty": {"lam": [0.1, 0.5]},
    }
    for method, grid in grids.items():
        found = search(method, grid, x_train, y_train)
        accuracy = 100 * np.mean(found.predict(x_test) == y_test)
        nll = log_loss(y_test, found.predict_proba(x_test))
        print(f"{method}: best {found.best_params_}, test accuracy {accuracy:.1f}%, NLL {nll:.3f}")
    parts = found.best_estimator_.history[-1, "batches", -1, ("train_nll", "train_entropy")]
    print("parts of the last loss:", [round(part, 3) for part in parts])
    print(f"{LABELS} labels, one split, one seed: an example, not evidence.")


if __name__ == "__main__":
    main()
