"""skorch nets with a method's loss, beyond what `test_adapters` says of every adapter."""

from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("skorch")

from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetBinaryClassifier, NeuralNetClassifier
from skorch.callbacks import GradientNormClipping
from skorch.helper import predefined_split

from equal import plain_loop, same_parameters, sgd
from one_line import refusals
from rcad import RCAD, Bernoulli, Criterion, Gaussian, InputError, RandomStep, Term, augment, methods
from rcad.integrations.skorch import RCADNetClassifier, RCADNetMixin, RCADNetRegressor
from small_nets import CLASSES, images, norm_net

METHOD = "rcad(alpha=0.5, lam=0.3)"
X, Y = images(24)[0].numpy(), np.arange(24) % CLASSES


class Weighted(nn.Sequential):
    def forward(self, x, sample_weight):
        return super().forward(x)


def flat(*last, outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Tanh(), nn.Linear(8, outputs), *last)


ProbabilityNet = type("ProbabilityNet", (RCADNetMixin, NeuralNetClassifier), {})
BinaryNet = type("BinaryNet", (RCADNetMixin, NeuralNetBinaryClassifier), {})


def made(kind=RCADNetClassifier, module=norm_net, **changed):
    settings = {"max_epochs": 2, "batch_size": 4, "lr": 0.1, "train_split": None, "verbose": 0}
    settings |= {"method": METHOD} if issubclass(kind, RCADNetMixin) else {}
    return kind(module, **{**settings, **changed})


def core_loop(net, criterion, y=Y, weight=None, **options):
    batches = []
    for part in [slice(start, start + 4) for start in range(0, len(y), 4)] * 2:
        more = {} if weight is None else {"weight": torch.tensor(weight[part])}
        batches.append((torch.tensor(X[part]), torch.tensor(y[part]), more))
    return plain_loop(net.train(), criterion, batches, sgd(net, momentum=0.0), clip=0.5, **options)


def test_a_module_that_ends_in_a_softmax_is_read_through_its_logarithm():
    probabilities = made(ProbabilityNet, lambda: norm_net().append(nn.Softmax(1)), criterion=nn.NLLLoss).fit(X, Y)
    logits = made().fit(X, Y)
    # log(p + eps) instead of log p, as skorch itself does.
    same_parameters(probabilities.module_, logits.module_, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(probabilities.predict_proba(X), logits.predict_proba(X), atol=1e-5)
    options = {"compile": True, "compile__backend": "eager"}  # which wraps the criterion too
    compiled = made(ProbabilityNet, lambda: norm_net().append(nn.Softmax(1)), criterion=nn.NLLLoss, **options).fit(X, Y)
    same_parameters(compiled.module_._orig_mod, probabilities.module_)
    with pytest.raises(InputError, match="expected probabilities from the module, since the criterion is NLLLoss"):
        made(ProbabilityNet, criterion=nn.NLLLoss).fit(X, Y)


def tagger(*last):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(3, CLASSES, 1), *last)


@pytest.mark.parametrize("method", [METHOD, "label_smoothing + ls_on_adv"])
@pytest.mark.parametrize(("criterion", "last"), [(nn.CrossEntropyLoss, ()), (nn.NLLLoss, (nn.Softmax(1),))])
def test_what_the_criterion_ignores_no_method_trains_on(method, criterion, last):
    tags = np.arange(24 * 8).reshape(24, 8) % CLASSES  # 0 is padding
    options = {"module": partial(tagger, *last), "method": method, "criterion": criterion, "classes": range(CLASSES)}
    padded, left_out = (
        made(**options, criterion__ignore_index=ignored).fit(X[..., 0], np.where(tags == 0, ignored, tags))
        for ignored in (0, -100)
    )
    same_parameters(padded.module_, left_out.module_)


def test_the_batches_are_mixed_by_the_method():
    net, batch = made(method="mixup").initialize(), (torch.tensor(X[:4]), torch.tensor(Y[:4]))
    net.check_data(X, Y)  # where skorch counts the classes
    torch.manual_seed(7)
    loss = net.train_step_single(batch)["loss"]
    torch.manual_seed(7)
    mixed = augment(methods.mixup().augment, *batch, classes=CLASSES)
    assert torch.equal(loss, methods.mixup().criterion()(norm_net(), *mixed))


def test_a_grid_searches_the_parameters():
    grid = {"alpha": [0.1, 2.0], "lam": [0.1, 0.5]}
    search = GridSearchCV(made(method="rcad"), grid, cv=2, scoring="neg_log_loss", error_score="raise").fit(X, Y)
    assert len(set(search.cv_results_["mean_test_score"])) == 4
    best = search.best_estimator_
    assert best.rcad_.criterion.loss.terms[1].weight == search.best_params_["lam"]
    same_parameters(best.module_, made(method="rcad", **search.best_params_).fit(X, Y).module_)


def test_partial_fit_goes_on_with_the_alpha_that_was_measured():
    whole, halves = made(max_epochs=4).fit(X, Y), made()
    same_parameters(whole.module_, halves.partial_fit(X, Y).partial_fit(X, Y).module_)
    net = made(method="rcad", max_epochs=1).fit(X, Y)
    found = net.rcad_.criterion.loss
    assert net.partial_fit(50 * X, Y).rcad_.criterion.loss == found
    assert net.fit(50 * X, Y).rcad_.criterion.loss != found  # begins anew
    assert net.set_params(method=METHOD).partial_fit(X, Y).rcad_.criterion.loss != found
    assert (net.rcad_steps_, len(net.history)) == (12, 2)


def test_validation_is_skorchs():
    rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    net = made(method="label_smoothing + rcad", train_split=predefined_split(rows)).fit(X, Y)
    with torch.no_grad():
        plain = nn.functional.cross_entropy(net.module_.eval()(torch.tensor(X)), torch.tensor(Y)).item()
    assert net.history[-1, "valid_loss"] == pytest.approx(plain, rel=1e-5)
    assert net.history[-1, "valid_acc"] == pytest.approx((net.predict(X) == Y).mean())


def test_the_parts_of_the_loss_stand_in_the_epochs_row():
    """Averaged as skorch averages the loss: by the sizes of the batches."""
    net = made(max_epochs=1, batch_size=10).fit(X, Y)
    for name in ("train_nll", "train_entropy"):
        rows = net.history[-1, "batches", :, ("train_batch_size", name)]
        assert [size for size, _ in rows] == [10, 10, 4]
        assert net.history[-1, name] == pytest.approx(np.average([v for _, v in rows], weights=[s for s, _ in rows]))
    net.set_params(method="rcad(alpha=0.5, lam=0.3, every=100)").partial_fit(X, Y).partial_fit(X, Y)
    assert np.isnan(net.history[-1, "train_entropy"]), "a term that rested: the column stays, without a number"


one, ODD = partial(flat, nn.Flatten(0), outputs=1), (Y % 2).astype(np.float32)
WEIGHT = np.linspace(0, 2, 24, dtype=np.float32)
REALS = np.random.default_rng(0).standard_normal((24, 1)).astype(np.float32)
NO_CLEAN_PASS = Criterion(terms=[Term("nll", where=RandomStep(0.0))])  # which gives no output to score
EVERY, GAUSSIAN = RCAD(0.5, 0.3, every=2), RCAD(0.5, 0.3, likelihood=Gaussian())
# The net, its data, and the same in a loop.
EQUAL = {
    "sample weights lie in X": (
        made(module=lambda: Weighted(*norm_net()), input_key="x"),
        ({"x": X, "sample_weight": WEIGHT}, Y),
        (norm_net(), RCAD(0.5, 0.3), Y, {"weight": WEIGHT}),
    ),
    "regression": (made(RCADNetRegressor, flat), (X, REALS), (flat(), GAUSSIAN, REALS, {})),
    "yes or no": (made(BinaryNet, one), (X, ODD), (one(), RCAD(0.5, 0.3, likelihood=Bernoulli()), ODD, {})),
    "no clean pass": (made(method=NO_CLEAN_PASS), (X, Y), (norm_net(), NO_CLEAN_PASS, Y, {})),
    # 6 batches an epoch: the second step has batches of two epochs.
    "accumulated": (made(method=EVERY, accumulate=4), (X, Y), (norm_net(), deepcopy(EVERY), Y, {"accumulate": 4})),
}


@pytest.mark.parametrize("name", EQUAL)
def test_it_equals_a_loop_over_the_core(name):
    net, data, (plain, criterion, y, options) = EQUAL[name]
    net.set_params(callbacks=[("clip", GradientNormClipping(0.5))]).fit(*data)
    same_parameters(net.module_, core_loop(plain, criterion, y, **options))
    if name == "accumulated":
        seen = ["train_entropy" in row for epoch in net.history[:, "batches"] for row in epoch]
        assert (net.rcad_steps_, seen) == (3, [True] * 4 + [False] * 4 + [True] * 4)


def test_the_regressor_predicts_means_and_deviations():
    net = made(RCADNetRegressor, flat, criterion__cap=1.5).fit(X, REALS)
    assert net.rcad_.likelihood == Gaussian(cap=1.5)
    with torch.no_grad():
        output = net.module_(torch.tensor(X)).numpy()
    np.testing.assert_allclose(net.predict(X), output[:, 0], rtol=1e-6)
    np.testing.assert_allclose(net.predict_std(X), np.exp(output[:, 1] / 2), rtol=1e-6)
    assert np.isfinite(net.score(X, REALS))


def overriding(name, kind=NeuralNetClassifier, by=None):
    """A net with a function of its own, which does what that of its base does."""
    return type("Own", (kind,), {name: by or getattr(kind, name)})


def test_a_closure_is_one_step():
    """LBFGS evaluates the loss several times for one step; a term that rests every other step must not blink."""
    calls = []

    def noting(self, batch, **fit_params):
        step = RCADNetClassifier.train_step_single(self, batch, **fit_params)
        calls.append((self.rcad_steps_, "rcad" in step["parts"]))
        return step

    options = {"optimizer": torch.optim.LBFGS, "optimizer__max_iter": 3, "optimizer__line_search_fn": "strong_wolfe"}
    options |= {"module": partial(flat, outputs=CLASSES), "method": EVERY, "batch_size": 12}
    net = made(overriding("train_step_single", RCADNetClassifier, noting), **options).fit(X, Y)
    assert len(calls) > net.rcad_steps_ == 4
    assert all(present == (step % 2 == 0) for step, present in calls)


def test_batches_left_over_by_a_fit_are_dropped():
    net = made(accumulate=5).fit(X, Y)
    assert (net.rcad_steps_, net.rcad_waiting_) == (2, 2)
    net.set_params(max_epochs=1).partial_fit(X[:20], Y[:20])
    assert (net.rcad_steps_, net.rcad_waiting_) == (3, 0)


def over(name, **changed):
    """A net with the mixin before one that overrides a function."""
    return made(type("Mine", (RCADNetMixin, overriding(name)), {}), criterion=nn.CrossEntropyLoss, **changed)


test_what_cannot_be_done_is_refused_in_one_line = refusals(
    (lambda: over("get_loss"), "expected skorch's own get_loss, whose place the method takes in training, but got"),
    (lambda: made(overriding("get_loss", RCADNetClassifier)), "but got Own.get_loss; accumulate with accumulate="),
    (lambda: over("infer"), "but got Own.infer; do it in the module's forward"),
    (lambda: over("train_step_single"), "but got Own.train_step_single; override it in a subclass"),
    (
        lambda: made(overriding("train_step_single", RCADNetClassifier, NeuralNetClassifier.train_step_single)),
        "expected Own.train_step_single to return what super().train_step_single returned",
    ),
    (lambda: over("train_step", accumulate=2), "but got Own.train_step; leave that or accumulate= out"),
    (lambda: made(accumulate=2, optimizer=torch.optim.LBFGS), "without a closure for accumulate, but got LBFGS"),
    (lambda: made(criterion__weight=torch.ones(CLASSES)), "a weight; pass method=rcad.RCAD(..., likelihood=rcad."),
    (lambda: made(method=RCAD(0.1, 0.1), lam=0.2), "expected a Criterion to be given by itself"),
    (lambda: made(criterion=nn.HuberLoss), "but got HuberLoss; pass method="),
    (made, {"extra": X}, "expected X to be a dict with extra in it"),
    of=lambda net, more=None: net().fit(X, Y, **(more or {})),
)
