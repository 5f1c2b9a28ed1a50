"""What only a GPU can show. Skipped without one."""

import copy

import pytest
import torch

from rcad import METHODS, RCAD, Criterion, Objective, augment, compose, methods
from rcad.loss.model_calls import preserved_rng
from rcad.models import build
from small_nets import assert_same_state

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
ODD = 33


def resnet(width=64):
    torch.manual_seed(0)
    return build("resnet18", num_outputs=100, in_shape=(3, 32, 32), width=width).cuda()


def batch(count=ODD):
    generator = torch.Generator("cuda").manual_seed(1)
    x = torch.rand(count, 3, 32, 32, device="cuda", generator=generator)
    return x, torch.randint(100, (count,), device="cuda", generator=generator)


def gradient(net):
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


@pytest.fixture
def _exact():
    kept = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = kept


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("name", ["rcad", "rcad_text", "rcad_released", "ls_on_adv", "adversarial_training"])
def test_fused_equals_reference(name):
    x, y = batch()
    one = resnet(width=16).double()
    two, x = copy.deepcopy(one), x.double()
    METHODS[name]().criterion()(one, x, y, generator=torch.Generator("cuda").manual_seed(0)).backward()
    METHODS[name]().criterion().backward(two, x, y, generator=torch.Generator("cuda").manual_seed(0))
    assert_same_state(one, two)


def test_bf16_is_near_fp32():
    x, y = batch(128)
    exact, half = resnet(), resnet()
    expected = RCAD(0.5, 0.1).backward(exact, x, y)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        losses = RCAD(0.5, 0.1).backward(half, x, y)
    torch.testing.assert_close(losses.total, expected.total, rtol=2e-2, atol=2e-2)
    assert torch.cosine_similarity(gradient(exact), gradient(half), dim=0) > 0.9


def test_a_real_grad_scaler_with_fp16():
    x, y = batch(64)
    nets = [resnet(16), resnet(16)]
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(nets[1].parameters(), lr=0.1)
    RCAD(0.5, 0.1).backward(nets[0], x, y)
    with torch.autocast("cuda", dtype=torch.float16):
        RCAD(0.5, 0.1).backward(nets[1], x, y, scaler=scaler)
    scaler.unscale_(optimizer)
    assert torch.cosine_similarity(*map(gradient, nets), dim=0) > 0.98


def test_later_steps_never_wait_for_the_gpu():
    x, y = batch()
    method = compose(methods.data_augmentation(), methods.mixup(), methods.rcad(0.5, 0.1))  # measuring alpha waits
    net, criterion, generator = resnet(), method.criterion(), torch.Generator("cuda").manual_seed(0)

    def step():
        mixed, target = augment(method.augment, x, y, classes=100, generator=generator)
        criterion.backward(net, mixed, target, generator=generator)
        criterion(net, mixed, target, generator=generator).backward()

    step()
    before = gradient(net)
    torch.cuda.set_sync_debug_mode("error")  # from here on a synchronisation raises
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not torch.equal(gradient(net), before)


@pytest.mark.parametrize("what", ["model", "objective", "fused"])
def test_inductor_matches(what):
    torch._dynamo.reset()
    x, y = batch()
    plain, compiled, x = resnet(16).double(), resnet(16).double(), x.double()  # where only a mistake can differ
    terms = methods.rcad(0.5, 0.1).terms
    Criterion(terms=terms)(plain, x, y).backward()
    if what == "objective":
        torch.compile(Objective(compiled, terms=terms))(x, y).total.backward()
    elif what == "model":
        Criterion(terms=terms)(torch.compile(compiled), x, y).backward()
    else:
        Criterion(terms=terms).backward(torch.compile(compiled), x, y)
    assert_same_state(plain, compiled, rtol=1e-6)


def test_cuda_random_state_is_given_back():
    state = torch.cuda.get_rng_state()
    with preserved_rng(torch.device("cuda")):
        torch.rand(100, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), state)
