"""The estimators train as a plain loop over the core does, and go on: what may change, what stays, what is refused."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import rcad
from equal import moved, plain_loop
from one_line import fails_in_one_line, refusals
from people import DIABETES, LABELS, REALS, WINE
from rcad import InputError, methods
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor, network
from rcad.integrations.sklearn.network import CoreStep, Network
from rcad.integrations.sklearn.tables import _table
from rcad.models.layers import MLP
from rcad.train.task import derived

CLASSES = [0, 1, 2]
EPOCHS, BATCH = 4, 50
SHORT = {"max_iter": EPOCHS, "batch_size": BATCH, "random_state": 0, "hidden_layer_sizes": (20, 10)}


def data(estimator):
    return DIABETES if isinstance(estimator, RCADRegressor) else WINE


def core_loop(estimator, criterion, weight=None, mix=(), given=None):
    """What a user would write: the core's criterion, torch's AdamW, one batch after the other."""
    x, y = given or data(estimator)
    features = torch.from_numpy(estimator.columns_.transform(_table(list(x.T), len(x)), x.dtype))
    target = torch.from_numpy((y - y.mean(0)) / y.std(0) if y.dtype == float else y)
    target = target.double() if y.ndim == 2 else target
    shares = None if weight is None else torch.from_numpy(weight / weight.mean())
    classes = None if y.dtype == float or y.ndim == 2 else 3
    outputs = 2 * target[0].numel() if y.dtype == float else 3
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived(estimator.seed_, "weights"))
        net = MLP(num_outputs=outputs, in_shape=(x.shape[1],), hidden=(20, 10)).double()

    def batches():
        for epoch in range(EPOCHS):
            seeds = (derived(estimator.seed_, kind, epoch) for kind in ("noise", "batches"))
            noise, order = (torch.Generator().manual_seed(seed) for seed in seeds)
            for index in torch.randperm(len(y), generator=order).split(BATCH):
                mixed = rcad.augment(mix, features[index], target[index], classes=classes, generator=noise)
                yield *mixed, {"generator": noise, "weight": None if shares is None else shares[index]}

    return plain_loop(net, criterion, batches(), torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01))


REAL = methods.gaussian()
CASES = {
    "rcad": (RCADClassifier("rcad", alpha=1.0, lam=0.3), methods.rcad(1.0, 0.3)),
    "random": (RCADClassifier("rcad_random(alpha=1.0, lam=0.3)"), methods.rcad_random(1.0, 0.3)),
    "erm": (RCADClassifier("erm"), methods.erm()),
    "smoothing": (RCADClassifier("label_smoothing(eps=0.1)"), methods.label_smoothing(0.1)),
    "every": (RCADClassifier(methods.rcad(1.0, 0.3, every=3)), methods.rcad(1.0, 0.3, every=3)),
    "linf": (RCADClassifier("adversarial_training", alpha=0.1), methods.adversarial_training(0.1, bounds=None)),
    "released": (RCADClassifier("rcad_released", alpha=1.0, lam=0.3), methods.rcad_released(1.0, 0.3)),
    "regression": (RCADRegressor(), rcad.compose(REAL, methods.rcad(0.3, 0.3))),
    "several labels": (RCADClassifier(alpha=1.0, lam=0.3), rcad.compose(methods.bernoulli(), methods.rcad(1.0, 0.3))),
    "several reals": (RCADRegressor(), rcad.compose(REAL, methods.rcad(0.3, 0.3))),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_to_a_plain_loop_over_the_core(name):
    """Up to rounding: the lean step sums in another order. Adam divides by small numbers, hence 1e-9 and not 1e-15."""
    estimator, method = CASES[name]
    given = {"several labels": LABELS, "several reals": REALS}.get(name, data(estimator))
    estimator.set_params(**SHORT).fit(*given)
    net = core_loop(estimator, method.criterion(units="input"), given=given)
    assert moved(estimator.module_, net) < 1e-9
    begun = MLP(num_outputs=net.fc.out_features, in_shape=(net.layers[0].in_features,), hidden=(20, 10)).double()
    assert moved(begun, net) > 1e-3


def test_weights_and_mixing_equal_the_core_too():
    weight, mixed = np.linspace(0.5, 2, len(WINE[1])), methods.mixup(0.4)
    for method, loop in ((methods.rcad(1.0, 0.3), {"weight": weight}), (mixed, {"mix": mixed.augment})):
        estimator = RCADClassifier(method, **SHORT).fit(*WINE, sample_weight=loop.get("weight"))
        # The columns were standardised with the weights, which the loop takes from the estimator.
        net = core_loop(estimator, method.criterion(units="input"), **loop)
        assert moved(estimator.module_, net) < 1e-9


@pytest.mark.parametrize("name", rcad.METHODS)
def test_every_method_trains_on_a_table(name):
    estimator = RCADClassifier(name, max_iter=12, random_state=0)
    if name in ("data_augmentation", "cutout", "cutmix", "gaussian", "bernoulli"):
        with pytest.raises(InputError, match=r"expected (a method for|regression targets for)"):
            estimator.fit(*WINE)
    else:
        assert estimator.fit(*WINE).loss_curve_[-1] < estimator.loss_curve_[0]


def test_a_growing_method_grows_the_examples():
    one, plain = (
        RCADClassifier(method, max_iter=3, random_state=0, batch_size=200).fit(*WINE).loss_curve_
        for method in ("me_ada(epochs=2, rounds=1)", "erm")
    )
    assert one[:2] == plain[:2]
    assert one[2] != plain[2]


def test_random_state_alone_decides():
    state = torch.get_rng_state()
    fits = [RCADClassifier("rcad_random", random_state=seed, max_iter=5).fit(*WINE).network_.flat for seed in (1, 1, 2)]
    assert torch.equal(fits[0], fits[1])
    assert not torch.allclose(fits[0], fits[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_fits_in_threads_do_not_disturb_each_other(request):
    """First weights are drawn from torch's global generator; a tiny network makes many chances to collide."""

    def begin(seed):
        return Network.begun((4, 16, 16, 3), seed, torch.device("cpu"), torch.float64).flat

    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(begin, range(300)))
    assert all(torch.equal(one, begin(seed)) for seed, one in enumerate(together))


@pytest.mark.parametrize(
    "estimator",
    [
        RCADClassifier("rcad(every=3)", **SHORT, warm_start=True),
        RCADClassifier("mixup + rcad", **SHORT, early_stopping=True),
        RCADRegressor("rcad_random", **SHORT, warm_start=True),
        RCADClassifier("erm", **SHORT, class_weight="balanced"),
    ],
)
def test_captured_steps_are_those_of_the_lean_step(estimator, monkeypatch):
    """Through torch's AdamW on the network's own memory, so that a second fit and a saved one go on from it."""
    step = Mock(side_effect=CoreStep.step)
    monkeypatch.setattr(CoreStep, "step", lambda *arguments: step(*arguments))

    def twice():
        one = clone(estimator).set_params(captured=True)
        return one.fit(*data(estimator)).fit(*data(estimator))

    lean = twice()
    assert not step.called  # on a CPU there is nothing to capture
    monkeypatch.setattr(network, "DEVICES", ("cpu",))
    captured = twice()
    assert step.call_count >= 2 * EPOCHS
    assert captured.network_.optimizer.steps == lean.network_.optimizer.steps
    assert moved(captured.module_, lean.module_) < 1e-9
    np.testing.assert_allclose(captured.loss_curve_, lean.loss_curve_, rtol=1e-9)


def warm(method="rcad", **options):
    return RCADClassifier(method, **{"max_iter": 2, "random_state": 0, "warm_start": True, **options})


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_a_changed_method_goes_on_with_an_alpha_that_is_measured_once(way):
    measured = warm().fit(*WINE).alpha_
    model = warm("erm").fit(*WINE)
    assert (model.alpha_, model.measured_alpha_) == (None, None)
    changes = [
        ({"method": "rcad", "lam": 0.7}, methods.rcad(measured, 0.7)),
        ({"alpha": 1.5, "lam": None}, methods.rcad(1.5, 0.1)),
        ({"method": "rcad_random", "alpha": None}, methods.rcad_random(measured, 0.1)),
    ]
    for scale, (parameters, expected) in enumerate(changes, 1):
        before = model.network_.flat.clone()
        getattr(model.set_params(**parameters), way)(scale * WINE[0], WINE[1])
        assert model.method_ == expected
        assert not torch.equal(model.network_.flat, before)
    assert model.n_iter_ == 2 + 3 * (2 if way == "fit" else 1)
    assert model.set_params(warm_start=False).fit(WINE[0][::2], WINE[1][::2]).alpha_ != measured


def test_what_cannot_change_is_refused_in_one_line():
    model = warm(hidden_layer_sizes=[20]).fit(*WINE)
    model.set_params(hidden_layer_sizes=(20, 10))
    for go_on in (model.fit, model.partial_fit):
        with fails_in_one_line("expected hidden_layer_sizes=(20,) to go on training, but got (20, 10); "):
            go_on(*WINE)


def test_a_failed_new_fit_leaves_nothing_half_fitted():
    model = RCADClassifier(max_iter=1).fit(*WINE)
    with pytest.raises(InputError):
        model.set_params(method="nonsense").fit(WINE[0][:, :4], WINE[1])
    with pytest.raises(NotFittedError):
        model.predict(WINE[0])


@pytest.mark.filterwarnings("error")
def test_a_first_batch_of_one_class_names_the_cure():
    x, y = WINE
    one = x[y == 0], y[y == 0]
    with pytest.warns(UserWarning, match=r"^expected two or more classes .*; it is 0\.3 until a batch has sev"):
        model = RCADClassifier().partial_fit(*one, classes=CLASSES)
    assert (model.alpha_, model.measured_alpha_) == (0.3, None)
    assert model.partial_fit(x, y).alpha_ == model.measured_alpha_ != 0.3
    measured = model.alpha_
    assert model.partial_fit(*one).alpha_ == measured, "what was measured once stays"


test_what_cannot_be_trained_is_refused_in_one_line = refusals(
    (RCADRegressor("erm", learning_rate=1e30, max_iter=20).fit, DIABETES, "expected a finite loss, but it was .. rate"),
    (RCADRegressor().fit, (DIABETES[0], 1e200 * DIABETES[1]), "expected targets below 1e+150, so that their squares"),
    (RCADRegressor(early_stopping=True).partial_fit, DIABETES, "expected early_stopping=False with partial_fit"),
    (RCADClassifier(class_weight="balanced").partial_fit, (*WINE, CLASSES), "with partial_fit, but got 'balanced'"),
    (RCADClassifier("me_ada(epochs=1)").fit, (*WINE, np.linspace(1, 2, len(WINE[1]))), "no weights with 'me_ada'"),
    of=lambda train, rows: train(*rows),
)
