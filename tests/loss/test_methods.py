"""The ladder of tests, for every method: re-derivation, limits, twins, side effects, training, compile."""

import copy
import importlib
import itertools
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from one_line import fails_in_one_line, refusals
from rcad import METHODS, Method, Term, augment, compose, method, methods
from rcad.loss.methods import SLOTS
from rederived import REDERIVED, rcad
from small_nets import (
    CLASSES,
    PassCounter,
    assert_same_state,
    fitted_resnet,
    gradients,
    images,
    norm_net,
    smooth_net,
    soft,
)

NAMES = sorted(METHODS)
CLASSIFIERS = [name for name in NAMES if name not in ("gaussian", "bernoulli")]
WHOLE = {  # noise and the measuring of alpha have tests of their own
    "rcad_released": {"jitter": 0.0},
    "rcad": {"alpha": 0.5, "lam": 0.02},
    "rcad_random": {"alpha": 0.5, "lam": 0.02},
}


resnet = pytest.fixture(scope="module")(fitted_resnet)


def make(name):
    return METHODS[name](**WHOLE.get(name, {}))


def views(name, dtype=torch.float32, kind="hard"):
    """A batch, its un-augmented twin, and targets that suit the method."""
    x, y = images(dtype=dtype)
    raw, _ = images(seed=5, dtype=dtype)
    target = soft(y, dtype=dtype) if kind == "soft" else y
    if name == "gaussian":
        target = y.to(dtype)
    if name == "bernoulli":
        target = (soft(y, dtype=dtype) > 0.2).to(dtype)
    return {"x": x, "target": target, "raw": raw}


def net_for(name, net):
    if name == "gaussian":
        torch.manual_seed(3)
        net[-1] = nn.Linear(net[-1].in_features, 2).to(net[-1].weight.dtype)
    return net


def step(net, method, batch, fused):
    options = {"raw": batch["raw"], "generator": torch.Generator().manual_seed(7)}
    criterion = method.criterion()
    if fused:
        losses = criterion.backward(net, batch["x"], batch["target"], **options)
    else:
        losses = criterion.losses(net, batch["x"], batch["target"], **options)
        losses.total.backward()
    return {"total": losses.total.detach(), **losses.parts}


def assert_is(loss, method, batch, fused):
    ours, theirs = smooth_net().double(), smooth_net().double()
    value = step(ours, method, batch, fused)["total"]
    expected = loss(theirs, batch["x"], batch["target"], batch["raw"])
    expected.backward()
    torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-12)
    assert_same_state(ours, theirs, rtol=1e-8, atol=1e-12)


def test_every_method_is_rederived_or_accounted_for():
    assert set(NAMES) - set(REDERIVED) == {"gaussian", "bernoulli", "rcad_random"}


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("name", sorted(REDERIVED))
def test_a_loop_over_single_examples_gives_the_same(name, kind):
    assert_is(REDERIVED[name], make(name), views(name, torch.float64, kind), fused=False)


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize(("name", "norm"), [("rcad", "l2"), ("rcad_text", "raw")])
@pytest.mark.parametrize(("direction", "eps"), [({}, 0.0), ({"direction": "training"}, 0.6)])
def test_smoothed_labels_leave_the_direction_alone_unless_asked(name, norm, direction, eps, kind):
    """The paper's formula goes away from log p(y|x); the smoothed loss is another direction, here by name."""
    method = compose(methods.label_smoothing(0.6), METHODS[name](alpha=0.5, lam=0.3, **direction))
    for fused in (False, True):
        loss = rcad(0.5, 0.3, norm, eps=0.6, direction_eps=eps)
        assert_is(loss, method, views(name, torch.float64, kind), fused)


def test_the_random_control_is_rcad_with_another_direction():
    net, batch = smooth_net().double(), views("rcad_random", torch.float64)
    draw = torch.randn(batch["x"].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    moved = batch["x"] + 0.5 * draw / draw.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    p = net(moved).softmax(1)
    expected = nn.functional.cross_entropy(net(batch["x"]), batch["target"]) + 0.02 * (p * p.log()).sum(1).mean()
    torch.testing.assert_close(step(net, make("rcad_random"), batch, fused=False)["total"], expected.detach())


@pytest.mark.parametrize("name", ["rcad", "rcad_text", "rcad_random", "confidence_penalty"])
@pytest.mark.parametrize("fused", [False, True])
def test_lam_zero_is_erm_bit_for_bit(name, fused):
    batch = views(name)
    ours, plain = norm_net(dropout=0.3), norm_net(dropout=0.3)
    counter = PassCounter(ours)
    torch.manual_seed(1)
    step(ours, METHODS[name](lam=0.0), batch, fused)
    assert counter.forwards == 1
    torch.manual_seed(1)
    nn.functional.cross_entropy(plain(batch["x"]), batch["target"]).backward()
    assert_same_state(ours, plain, rtol=0.0, atol=0.0)


def test_alpha_zero_is_the_confidence_penalty():
    batch = views("rcad")
    ours, penalty = norm_net(), norm_net()
    step(ours, methods.rcad(alpha=0.0, lam=0.1), batch, fused=False)
    step(penalty, methods.confidence_penalty(lam=0.1), batch, fused=False)
    assert_same_state(ours, penalty)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_fused_equals_reference_on_a_fitted_resnet(name, resnet):
    one, two = copy.deepcopy(resnet), copy.deepcopy(resnet)
    batch = views(name)
    reference, fused = (step(net, make(name), batch, fused) for net, fused in ((one, False), (two, True)))
    assert reference.keys() == fused.keys()
    for part, value in reference.items():
        torch.testing.assert_close(value, fused[part], rtol=1e-5, atol=1e-6)
    assert_same_state(one, two, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fused", [False, True])
def test_side_effects(name, fused):
    net, batch = net_for(name, norm_net()), views(name)
    before = {key: value.clone() for key, value in batch.items()}
    rng = torch.get_rng_state()
    step(net, make(name), batch, fused)
    advanced = 2 if name in ("two_views", "rcad_released", "adversarial_two_views") else 1
    assert [int(m.num_batches_tracked) for m in net.modules() if isinstance(m, nn.BatchNorm2d)] == [advanced] * 2
    assert all(m.training for m in net.modules())
    assert torch.equal(torch.get_rng_state(), rng)
    for key, value in batch.items():
        assert torch.equal(value, before[key])
        assert (value.grad, value.requires_grad) == (None, False)
    assert gradients(net).keys() == {n for n, _ in net.named_parameters()}


def train(net, method, batch, steps, optimizer):
    criterion = method.criterion()
    value = float("nan")
    for index in steps:
        generator = torch.Generator().manual_seed(index)
        x, y = augment(method.augment, batch["x"], batch["target"], classes=CLASSES, generator=generator)
        optimizer.zero_grad()
        raw = {"raw": batch["raw"], "raw_target": batch["target"]}
        losses = criterion.backward(net, x, y, **raw, generator=generator, step=index)
        optimizer.step()
        value = losses.parts["nll"].item()
    return value


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("name", NAMES)
def test_every_method_trains_and_resumes(name, kind):
    method, batch = make(name), views(name, kind=kind)

    def fresh():
        net = net_for(name, norm_net())
        return net, torch.optim.SGD(net.parameters(), lr=0.04, momentum=0.9)

    whole, optimizer = fresh()
    first = train(whole, method, batch, range(1), optimizer)
    last = train(whole, method, batch, range(1, 15), optimizer)
    assert last < first - 0.02

    part, optimizer = fresh()
    train(part, method, batch, range(6), optimizer)
    state, memory = copy.deepcopy(part.state_dict()), copy.deepcopy(optimizer.state_dict())
    resumed, optimizer = fresh()
    resumed.load_state_dict(state)
    optimizer.load_state_dict(memory)
    train(resumed, method, batch, range(6, 15), optimizer)
    for name_, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name_])


def of_their_own():
    """A method for each sum of terms: augmentation and growth happen outside of the loss."""
    return list({repr((make(name).likelihood, make(name).terms)): name for name in reversed(CLASSIFIERS)}.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", of_their_own())
def test_every_loss_matches_under_compile(name):
    torch._dynamo.reset()
    batch, nets = views(name), (norm_net(), norm_net())
    objectives = [make(name).objective(net) for net in nets]
    for objective in (objectives[0], torch.compile(objectives[1], backend="eager")):
        torch.manual_seed(0)
        objective(batch["x"], batch["target"], raw=batch["raw"]).total.backward()
    assert_same_state(*nets)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_prints_compares_hashes_and_saves_itself(name):
    value = METHODS[name]()
    assert value == METHODS[name]()
    assert hash(value) == hash(METHODS[name]())
    assert eval(repr(value), vars(methods)) == value
    plain = json.loads(json.dumps(value.to_dict()))
    assert Method.from_dict(plain) == value
    assert Method.parse(str(value)) == Method.parse(name) == value
    assert value.name == name


def test_terms_of_ones_own_are_shown():
    value = compose(methods.erm(), methods.mixup(alpha=0.3), Method(extra=(Term("mine", weight=0.5),)))
    assert repr(value) == "erm() + mixup(alpha=0.3) + Method(mine: weight=0.5)"


def test_the_methods_are_one_module_under_both_names():
    assert importlib.import_module("rcad.methods") is methods is importlib.import_module("rcad.loss.methods")
    assert all(getattr(methods, name) is METHODS[name] for name in METHODS)


REGRESSION = {"gaussian", "bernoulli"}


def conflict(first, second):
    """Whether two methods fill one slot, re-derived from their fields."""
    one, two = METHODS[first](), METHODS[second]()
    fields = any(None not in (getattr(one, slot), getattr(two, slot)) for slot in SLOTS)
    steps = {step.slot for step in one.augment} & {step.slot for step in two.augment}
    terms = {term.name for term in one.extra} & {term.name for term in two.extra}
    return fields or bool(steps or terms) or ("ls_on_adv" in (first, second) and bool({first, second} & REGRESSION))


@pytest.mark.parametrize(("first", "second"), itertools.combinations(NAMES, 2))
def test_every_pair_composes_or_says_why_not(first, second):
    one, two = METHODS[first](), METHODS[second]()
    if conflict(first, second):
        with fails_in_one_line("expected"):
            compose(one, two)
        return
    both = compose(one, two)
    weights = {"rcad": 0.3, "rcad_random": 0.3} if "gaussian" in (first, second) else {}  # lam="auto"
    extra = {replace(term, weight=weights.get(own.name, term.weight)) for own in (one, two) for term in own.extra}
    assert set(both.terms) >= extra
    assert len(both.augment) == len(one.augment) + len(two.augment)
    assert {both.growth, both.likelihood} >= {v for v in (one.growth, two.growth, one.likelihood, two.likelihood) if v}
    assert Method.from_dict(both.to_dict()) == both
    assert both.criterion().asked.terms == both.terms


test_conflicts_and_wrong_names_are_named = refusals(
    (compose, "rcad", "mixup", "expected methods to compose, but got 'rcad'; Method.parse reads text"),
    (Method.parse, "label_smoothing + gaussian", "to set the likelihood, but got 'label_smoothing' and 'gaussian'"),
    (Method.parse, "ls_on_adv + gaussian", "to set the likelihood, but got 'gaussian' and 'ls_on_adv'"),
    (Method.parse, "erm + mixup + rcad + cutmix", "to set the mix augmentation, but got 'mixup' and 'cutmix'"),
    (Method.parse, "adversarial_training + rcad_released", "to set the clean loss, but got 'adversarial_training' and"),
    (Method.parse, "ada + me_ada", "expected one method to set the growth of the training set, but got 'ada' and"),
    (Method.parse, "rcad + rcad(alpha=1.0)", "distinct names, but got 'rcad' twice"),
    (lambda: Method(extra=Term("mine")), "expected extra to be a tuple, but got the term 'mine' alone; write (term,)"),
    (lambda: compose(), "at least one method"),
    (lambda: method("rcda"), "but got 'rcda'; did you mean 'rcad'?"),
    (lambda: method("rcad", alfa=1.0), "expected a parameter of rcad to be one of alpha, lam"),
    (lambda: Method.from_dict({"methods": []}), "a list under 'methods'"),
    (lambda: Method.from_dict({"methods": [{"alpha": 1.0}]}), "expected method to be one of"),
)
