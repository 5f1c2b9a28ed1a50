"""The authors' training step, written anew from its description: `rcad_released` takes the same five steps."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rcad import Method, augment, compose, methods
from rcad.models import Normalize
from small_nets import CLASSES, norm_net

ALPHA, LAM, STEPS = 1.0, 0.1, 5
MEAN, DEVIATION = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)


def made():
    """The program's constants, then convolutions with BatchNorm; pixels of [0, 1] go in."""
    mean, deviation = ([number / 255 for number in numbers] for numbers in (MEAN, DEVIATION))
    return nn.Sequential(Normalize(mean, deviation), *norm_net()).double()


def averaging(net, on):
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats = on


def program_loss(net, augmented, images, labels, eps):
    """The regulariser first, with BatchNorm's averages held still; then the two views, the augmented one before."""
    averaging(net, on=False)
    delta = torch.zeros_like(images, requires_grad=True)
    (g,) = torch.autograd.grad(F.cross_entropy(net(images + delta), labels), delta)  # plain, whatever eps is
    length = g.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    p = net(images + ALPHA * g / (length + 1e-10)).softmax(1)
    regulariser = LAM * (math.log(CLASSES) + (p * p.log()).sum(1).mean())
    averaging(net, on=True)
    loss = 0.5 * F.cross_entropy(net(augmented), labels, label_smoothing=eps)
    return loss + 0.5 * F.cross_entropy(net(images), labels, label_smoothing=eps) + regulariser


def trained(method, start, batches):
    """The net after the batches: with a method of ours, or with the program's loss at a smoothing."""
    net = copy.deepcopy(start)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for augmented, images, labels in batches:
        optimizer.zero_grad()
        if isinstance(method, Method):
            method.criterion().backward(net, augmented, labels, raw=images)
        else:
            program_loss(net, augmented, images, labels, method).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return net


def farthest(one, two):
    states = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in states)


@pytest.mark.parametrize("cutout", [False, True])
@pytest.mark.parametrize("eps", [0.0, 0.6])
def test_five_steps_of_the_released_program(eps, cutout):
    """Weights and BatchNorm's averages, with label smoothing and CutOut too; the last commit adds no noise."""
    parts = [methods.data_augmentation(2), methods.rcad_released(ALPHA, LAM)]
    parts += [methods.label_smoothing(eps)] * bool(eps) + [methods.cutout(3)] * cutout
    method = compose(*parts)
    start, generator = made(), torch.Generator().manual_seed(1)
    batches = []
    for _ in range(STEPS):
        images = torch.rand(9, 3, 8, 8, dtype=torch.float64, generator=generator)
        labels = torch.randint(CLASSES, (9,), generator=generator)
        augmented, _ = augment(method.augment, images, labels, generator=generator)
        batches.append((augmented, images, labels))
    ours, theirs = trained(method, start, batches), trained(eps, start, batches)
    assert farthest(theirs, start) > 0.1
    assert farthest(ours, theirs) < 1e-10
