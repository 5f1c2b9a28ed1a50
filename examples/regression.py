"""RCAD on regression: scikit-learn's diabetes data, a Gaussian likelihood, test NLL and RMSE against ERM.
The entropy is capped at that of the training targets: without a cap the variance could grow for ever."""

import torch
from sklearn.datasets import load_diabetes
from torch import nn

import rcad
from rcad import methods

SEEDS, EPOCHS, ALPHA, LAM = 5, 40, 0.3, 0.3


def split(seed):
    """80% to train on, standardised inputs; the target stays in its own units, 25 to 346."""
    data, target = (torch.tensor(a).float() for a in load_diabetes(return_X_y=True))
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
    x, y = data[order], target[order]
    cut = int(0.8 * len(y))
    x = (x - x[:cut].mean(0)) / x[:cut].std(0)
    return x[:cut], y[:cut], x[cut:], y[cut:]


class Net(nn.Module):
    """One hidden layer; gives the mean and the log-variance of y, in y's own units."""

    def __init__(self, inputs, y):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 50), nn.ReLU(), nn.Linear(50, 2))
        self.center, self.scale = y.mean(), y.std()

    def forward(self, x):
        mean, log_variance = self.layers(x).unbind(1)
        return torch.stack([self.center + self.scale * mean, log_variance + 2 * self.scale.log()], 1)


def train(criterion, x, y, seed):
    torch.manual_seed(seed)
    model = Net(x.shape[1], y)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            criterion.backward(model, x[index], y[index])
            optimizer.step()
    return model


@torch.no_grad()
def test(model, likelihood, x, y):
    output = model(x)
    return torch.stack([likelihood.nll(output, y).mean(), (output[:, 0] - y).square().mean().sqrt()])


def main():
    torch.set_num_threads(1)  # for nets this small more threads only wait for each other
    scores = {}
    for seed in range(SEEDS):
        x, y, x_test, y_test = split(seed)
        likelihood = rcad.Gaussian.fit(y)  # cap = log var(y_train)
        random = rcad.compose(methods.gaussian(likelihood.cap), methods.rcad_random(ALPHA, LAM))
        # units="input": alpha counts standard deviations of the inputs, not pixels.
        criteria = {
            "ERM": rcad.Criterion(likelihood, units="input"),
            "RCAD": rcad.RCAD(ALPHA, LAM, likelihood=likelihood, units="input"),
            "random direction": random.criterion(units="input"),
        }
        for name, criterion in criteria.items():
            model = train(criterion, x, y, seed)
            scores.setdefault(name, []).append(test(model, likelihood, x_test, y_test))

    print(f"diabetes, {SEEDS} splits, alpha {ALPHA}, lam {LAM}; cap of the last split {likelihood.cap:.2f}")
    print("                    test NLL        RMSE  (mean ± sd)")
    table = {name: torch.stack(rows) for name, rows in scores.items()}
    for name, rows in table.items():
        (nll, rmse), (nll_sd, rmse_sd) = rows.mean(0), rows.std(0)
        print(f"{name:16} {nll:6.3f} ± {nll_sd:.3f}   {rmse:5.1f} ± {rmse_sd:.1f}")
    for rival in ("ERM", "random direction"):
        # Splits are paired; their test sets overlap, so the standard error is a little too small.
        gain = (table[rival] - table["RCAD"])[:, 0]
        print(f"NLL, {rival} minus RCAD: {gain.mean():+.3f} ± {gain.std() / SEEDS**0.5:.3f} (standard error)")


if __name__ == "__main__":
    main()
