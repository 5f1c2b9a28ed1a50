"""The estimators as people use them: parameters, weights, several targets, calibration, scikit-learn around them."""

import math
import pickle
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import rcad
from one_line import refusals
from people import DIABETES, LABELS, REALS, WINE
from rcad import Categorical, InputError, methods, suggest_alpha
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor
from rcad.integrations.sklearn.tables import _table, split

DIGITS = load_digits(return_X_y=True)


def short(method="rcad", **options):
    return RCADClassifier(method, **{"max_iter": 30, "random_state": 0, **options})


def test_alpha_is_measured_on_standardised_examples():
    x, y = WINE
    scaled = torch.from_numpy(StandardScaler().fit_transform(x))
    model = short(max_iter=1).fit(x, y)
    assert model.alpha_ == pytest.approx(suggest_alpha(scaled, torch.from_numpy(y)), abs=1e-4)
    assert model.method_ == methods.rcad(model.alpha_, 0.1)
    assert short("rcad_random", max_iter=1).fit(x, y).alpha_ == model.alpha_
    assert short("erm", max_iter=1).fit(x, y).alpha_ is None
    weight = np.ones(len(y))
    weight[::5] = 3.0
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    heavy = short(max_iter=1).fit(x, y, sample_weight=weight)
    assert heavy.alpha_ == short(max_iter=1).fit(x[repeated], y[repeated]).alpha_
    assert heavy.alpha_ != model.alpha_


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"method": "rcad(alpha=0.7)"}, methods.rcad(0.7, 0.1)),
        ({"method": "rcad", "alpha": 0.7, "lam": 0.5}, methods.rcad(0.7, 0.5)),
        ({"method": methods.rcad(0.7, 0.5), "lam": 0.2}, methods.rcad(0.7, 0.2)),
        ({"method": "mixup(alpha=0.2) + rcad", "alpha": 0.7}, rcad.compose(methods.mixup(0.2), methods.rcad(0.7, 0.1))),
        ({"method": "adversarial_training"}, methods.adversarial_training(bounds=None)),
        ({"method": "rcad_text"}, methods.rcad_text(0.5, 0.02)),
    ],
)
def test_methods_are_read_as_they_are_written(given, expected):
    assert short(**given, max_iter=1).fit(*WINE).method_ == expected


def test_twins_of_another_class_have_no_part_in_the_measured_alpha():
    x, y = WINE
    plain = short(max_iter=1).fit(x, y).alpha_
    doubled = np.concatenate([x, x[::2], x[::2]]), np.concatenate([y, y[::2], (y[::2] + 1) % 3])
    measured = short(max_iter=1).fit(*doubled).alpha_
    assert 0.5 * plain < measured < 2 * plain
    table, labels = np.array([[0.0, 1.0], [1.0, 0.0]]).repeat(4, axis=0), np.arange(8) % 2
    for weight in (None, np.linspace(1, 2, 8)):
        with pytest.raises(InputError, match=r"each has an identical one there; give alpha a number, e"):
            short().fit(table, labels, sample_weight=weight)


def test_a_method_of_ones_own_is_named_as_in_a_command(tmp_path, monkeypatch):
    text = "import rcad\n\n\ndef mine(eps=0.1):\n    return rcad.methods.label_smoothing(eps)\n"
    (tmp_path / "own_for_tables.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    own = short("own_for_tables:mine(eps=0.2)", max_iter=1).fit(*WINE).method_
    assert (own.name, own.likelihood) == ("own_for_tables:mine", Categorical(0.2))


test_bad_parameters_are_refused_in_one_line = refusals(
    ({"method": "rcat"}, "did you mean 'rcad'"),
    ({"method": "erm", "alpha": 0.3}, "with a parameter alpha of its step, but got erm"),
    ({"method": "cutout"}, "expected a method for tables, but 'cutout'"),
    ({"method": methods.adversarial_training()}, "no bounds on a standardised table"),
    ({"method": "rcad(alpha=1.0)", "alpha": 2.0}, "expected alpha once, but got alpha=1.0 in the text .. alpha=2 "),
    ({"alpha": -1}, "expected alpha to be a finite number >= 0"),
    ({"batch_size": 2.5}, "expected batch_size to be a whole number >= 1"),
    ({"hidden_layer_sizes": 100}, "as a tuple such as"),
    ({"validation_fraction": 1}, "expected validation_fraction to be a number in [0, 1)"),
    ({"validation_fraction": 0, "early_stopping": True}, "validation_fraction above 0 beside early_stopping=True"),
    ({"early_stopping": True}, (WINE[0][::20], WINE[1][::20]), "early_stopping to hold out .. early_stopping=False"),
    ({"device": "toaster"}, "expected a device such as 'cpu' or 'cuda', but got 'toaster'"),
    ({"early_stopping": "yes"}, "expected early_stopping to be True or False, but got 'yes'"),
    ({"class_weight": [1, 2, 3]}, "'balanced' or a dict of weights by class, but got list"),
    ({"class_weight": {7: 2.0}}, "expected class_weight for classes among [0, 1, 2], but got one for 7"),
    ({"class_weight": "balanced"}, LABELS, "expected class_weight=None for several labels"),
    ({"method": "label_smoothing + rcad"}, LABELS, "a method for several yes/no labels each, but got 'label_smoothing"),
    ({"method": "label_smoothing"}, DIABETES, "expected class labels for the method 'label_smoothing', but got regr"),
    ({"method": "ls_on_adv"}, DIABETES, "one method to set the likelihood, but got 'gaussian' and 'ls_on_adv'"),
    of=lambda parameters, data=WINE: (RCADRegressor if data is DIABETES else RCADClassifier)(**parameters).fit(*data),
)


test_targets_of_another_form_than_before_are_refused = refusals(
    (RCADClassifier, WINE, (WINE[0], WINE[1] + 7), "expected labels among the 3 classes known, but got 7"),
    (RCADClassifier, LABELS, (LABELS[0], LABELS[1][:, :2]), "3 yes/no labels for each row as before, but got .. 2)"),
    (RCADRegressor, REALS, DIABETES, "expected 3 targets for each row as before, but got a shape of (442,)"),
    (RCADRegressor, DIABETES, REALS, "expected one target for each row as before"),
    of=lambda kind, first, then: kind(max_iter=1).fit(*first).partial_fit(*then),
)


def test_weights_of_classes_and_weights_of_zero():
    x, y = WINE
    two = y != 2
    pairs = [
        (short(class_weight={0: 1.0, 1: 5.0, 2: 1.0}).fit(x, y), short().fit(x, y, np.where(y == 1, 5.0, 1.0))),
        (short(class_weight="balanced").fit(x, y), short().fit(x, y, compute_sample_weight("balanced", y))),
        (short(class_weight={2: 0.0}).fit(x, y), short().fit(x[two], y[two])),
        (short().fit(x, y, two.astype(float)), short().fit(x[two], y[two])),
    ]
    for one, other in pairs:
        assert one.classes_.tolist() == other.classes_.tolist()
        assert np.array_equal(one.predict_proba(x), other.predict_proba(x))
    assert pairs[0][0].predict_proba(x)[:, 1].mean() > short().fit(x, y).predict_proba(x)[:, 1].mean() + 0.01
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        short().fit(x, y, -np.ones(len(y)))


@pytest.mark.parametrize(("kind", "data"), [(RCADClassifier, WINE), (RCADRegressor, DIABETES)])
def test_parts_of_a_fit_are_one_long_fit(kind, data):
    stream, warm = kind(random_state=0), kind(random_state=0, max_iter=2, warm_start=True)
    for _ in range(4):
        stream.partial_fit(*data, **({"classes": [0, 1, 2]} if kind is RCADClassifier else {}))
    whole = kind(random_state=0, max_iter=4).fit(*data)
    for model in (stream, warm.fit(*data).fit(*data)):
        assert torch.equal(model.network_.flat, whole.network_.flat)
        assert model.n_iter_ == 4
    assert whole.fit(*data).n_iter_ == 4  # which begins anew


def test_early_stopping_keeps_the_best_epoch(capsys):
    x, y = DIABETES
    model = RCADRegressor("erm", max_iter=500, early_stopping=True, n_iter_no_change=5, random_state=0, verbose=True)
    model.set_params(learning_rate=0.01).fit(x, y)
    scores = model.validation_scores_
    assert model.n_iter_ == len(scores) == capsys.readouterr().out.count("held-out log-likelihood") < 500
    best = int(np.argmax(scores))
    assert len(scores) - 1 - best >= 5 or len(scores) - 1 - best == 0
    again = clone(model).set_params(max_iter=best + 1).fit(x, y)
    assert np.allclose(again.predict(x), model.predict(x))
    # What is held out takes no part in the scales either.
    held = short(early_stopping=True, validation_fraction=0.3).fit(*WINE)
    assert held.columns_.scales.mean != pytest.approx(short().fit(*WINE).columns_.scales.mean)


def test_targets_that_are_held_out_have_no_part_in_the_scale():
    (x, y), weight = DIABETES, np.arange(442.0) + 1
    model = RCADRegressor("erm", max_iter=1, early_stopping=True, random_state=0).fit(x, y, weight)
    rows, _ = split(y, 0.1, model.seed_, stratified=False)
    center = np.average(y[rows], weights=weight[rows])
    assert model.center_ == center
    assert model.scale_ == np.average((y[rows] - center) ** 2, weights=weight[rows]) ** 0.5


def test_intervals_hold_the_target_about_as_often_as_they_say():
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, (600, 1))
    y = 100 + 20 * x[:, 0] + (1 + 4 * (x[:, 0] > 0)) * draw.normal(size=600)
    model = RCADRegressor(max_iter=150, random_state=0, lam=0.01).fit(x, y)
    _, deviation = model.predict(x, return_std=True)
    assert deviation[x[:, 0] > 0.2].mean() > 2 * deviation[x[:, 0] < -0.2].mean()
    low, high = model.predict_interval(x, 0.9).T
    assert (high - low) / 2 == pytest.approx(NormalDist().inv_cdf(0.95) * deviation)
    assert abs(((low < y) & (y < high)).mean() - 0.9) < 0.08


def test_the_module_is_the_model():
    x, model = WINE[0], short().fit(*WINE)
    net = model.module_
    features = torch.from_numpy(model.columns_.transform(_table(list(x.T), len(x)), x.dtype))
    assert net(features).softmax(1).detach().numpy() == pytest.approx(model.predict_proba(x))
    assert np.isfinite(model.predict_log_proba(1e6 * x)).all()  # although probabilities are zero there
    with torch.no_grad():
        net.fc.bias.add_(1000 * torch.arange(3))
    assert model.score(*WINE) > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_several_labels_come_back_as_from_scikit_learns_own():
    x, y = LABELS
    ours, theirs = RCADClassifier(random_state=0).fit(x, y), MLPClassifier(random_state=0, max_iter=20).fit(x, y)
    p = ours.predict_proba(x)
    for mine, other in ((ours.predict(x), theirs.predict(x)), (p, theirs.predict_proba(x))):
        assert (mine.shape, mine.dtype.kind) == (other.shape, other.dtype.kind)
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    assert np.array_equal(ours.predict(x), (p > 0.5).astype(int))
    assert np.exp(ours.predict_log_proba(x)) == pytest.approx(p)
    assert ours.score(x, y) > 0.6  # all three labels right
    assert np.array_equal(RCADClassifier(random_state=0).fit(x, csr_matrix(y)).predict_proba(x), p)
    # alpha is measured between rows with different labels.
    sets = np.unique(y, axis=0, return_inverse=True)[1].reshape(-1)
    assert ours.alpha_ == pytest.approx(suggest_alpha((x - x.mean(0)) / x.std(0), sets), abs=1e-4)


def test_several_reals_have_their_own_units():
    x, y = REALS
    model = RCADRegressor(random_state=0).fit(x, y)
    mean, deviation = model.predict(x, return_std=True)
    assert mean.shape == deviation.shape == y.shape
    assert mean.mean(0) == pytest.approx(y.mean(0), rel=0.3, abs=0.02)
    assert np.array_equal(model.center_, y.mean(0))
    assert model.score(x, y) > 0.5


def halves(data, train=60, held=100):
    order = np.random.default_rng(0).permutation(len(data[1]))
    parts = np.split(order, [train, train + held])
    return tuple((data[0][rows], data[1][rows]) for rows in parts)


def smallest(scores, coverage):
    """The score below which so many of n + 1 lie; that this holds what it promises, `test_conformal` says."""
    return np.sort(scores, axis=0)[math.ceil((len(scores) + 1) * coverage) - 1]


def test_calibrated_sets_and_intervals_are_split_conformal(tmp_path):
    train, (x, y), (new, _) = halves(DIGITS)
    model = RCADClassifier(max_iter=30, random_state=0).fit(*train).calibrate(x, y)
    limit = smallest(1 - model.predict_proba(x)[np.arange(len(y)), y], 0.95)
    p = model.predict_proba(new)
    sets = model.predict_set(new, coverage=0.95)
    assert np.array_equal(sets, (1 - p <= limit) | (p == p.max(1, keepdims=True)))
    assert 1 < sets.sum(1).mean() < 10
    model.save(tmp_path / "m.safetensors")
    for twin in (RCADClassifier.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(twin.predict_set(new, coverage=0.95), sets)
    train, (x, y), (new, _) = halves(REALS, 200)
    reals = RCADRegressor(max_iter=20, random_state=0).fit(*train).calibrate(x, y)
    (mean, deviation), (middle, spread) = (reals.predict(rows, return_std=True) for rows in (x, new))
    half = smallest(np.abs(y - mean) / deviation, 0.9) * spread
    assert reals.predict_interval(new) == pytest.approx(np.stack([middle - half, middle + half], -1))


TRAIN, HELD, _ = halves(DIGITS)


def quick(data=TRAIN):
    return RCADClassifier(max_iter=2, random_state=0).fit(*data)


test_what_cannot_be_calibrated_is_refused_in_one_line = refusals(
    (lambda: quick().calibrate(HELD[0][:8], HELD[1][:8]).predict_set(HELD[0]), "at least 9 rows .. of 0.9, but got 8;"),
    (lambda: quick().calibrate(*HELD).predict_set(HELD[0], coverage=90), "to be a number between 0 and 1, but got 90"),
    (lambda: quick().calibrate(HELD[0], HELD[1] + 11), "labels among the 10 classes known, but got 11"),
    (lambda: quick(LABELS).calibrate(*LABELS), "expected one class for each row to calibrate sets"),
    (lambda: quick().calibrate(*HELD).partial_fit(*TRAIN).predict_set(HELD[0]), "rows that fit has not seen first"),
)


@pytest.mark.gpu
def test_on_a_gpu_the_numbers_are_the_same_up_to_rounding():
    x, y = WINE
    cpu, gpu = (short(device=device).fit(x, y) for device in ("cpu", "cuda"))
    assert gpu.network_.flat.is_cuda
    moved = short(warm_start=True).fit(x, y).set_params(device="cuda").fit(x, y)
    assert moved.network_.flat.is_cuda
    assert moved.n_iter_ == 60
    assert gpu.predict_proba(x) == pytest.approx(cpu.predict_proba(x), abs=1e-6)
    captured = short(device="cuda", captured=True).fit(x, y)
    assert captured.predict_proba(x) == pytest.approx(cpu.predict_proba(x), abs=1e-5)


@parametrize_with_checks([kind(max_iter=40, learning_rate=0.01) for kind in (RCADClassifier, RCADRegressor)])
def test_scikit_learn_accepts_the_estimators(estimator, check):
    check(estimator)
