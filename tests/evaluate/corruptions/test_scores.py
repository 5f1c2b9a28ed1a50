"""A model under corruptions: by hand, batch by batch, and mCE with its kin."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from one_line import refusals
from rcad.data.corrupted import CorruptedArrays
from rcad.evaluate.corruptions import CORRUPTIONS, CorruptionScores, Scores, corrupt_numbered, scores
from rcad.evaluate.corruptions.scores import evaluate_corruptions, evaluate_published, mce, mean_error, relative_mce
from small_nets import left_alone

COUNT, CLASSES = 37, 4


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (COUNT, 3, 12, 12), generator=generator).to(torch.uint8)
    return x, torch.randint(CLASSES, (COUNT,), generator=generator)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(432, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, CLASSES))


def by_hand(net, images, y):
    with torch.no_grad():
        output = net.eval()(images.float() / 255)
    return 100 * (output.argmax(1) == y).double().mean().item(), F.cross_entropy(output, y).item()


def test_each_cell_is_the_score_on_the_corrupted_images_and_the_model_is_left_alone():
    (x, y), net = data(), model()
    net.train()
    net[3].eval()
    chosen = {"corruptions": ("fog", "shot_noise"), "severities": (2, 5), "seed": 3}
    with left_alone(net):
        found = evaluate_corruptions(net, x, y, **chosen, batch_size=10)
    assert (found.provenance, list(found.scores)) == ("generated", ["fog", "shot_noise"])
    for name, cells in found.scores.items():
        for severity, cell in zip((2, 5), cells, strict=True):
            expected = by_hand(net, corrupt_numbered(x, name, severity, seed=3, first=0), y)
            assert (cell.accuracy, cell.nll) == pytest.approx(expected, rel=1e-5)
    assert (found.clean.accuracy, found.clean.nll) == pytest.approx(by_hand(net, x, y), rel=1e-5)


def test_summaries_and_plain_data():
    cells = {"fog": (Scores(80.0, 1.0), Scores(60.0, 2.0)), "snow": (Scores(50.0, 3.0), Scores(10.0, 5.0))}
    found = CorruptionScores("generated", (1, 5), cells, Scores(90.0, 0.5))
    assert found.errors() == {"fog": (20.0, 40.0), "snow": (50.0, 90.0)}
    assert found.accuracies() == {"fog": 70.0, "snow": 30.0}
    assert found.nlls() == {"fog": 1.5, "snow": 4.0}
    assert CorruptionScores.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert CorruptionScores.from_dict(CorruptionScores("published", (1, 5), cells).to_dict()).clean is None


def published(folder):
    rng = np.random.default_rng(0)
    images = {name: rng.integers(0, 256, (25, 12, 12, 3), dtype=np.uint8) for name in ("fog", "snow")}
    for name, array in images.items():
        np.save(folder / f"{name}.npy", array)
    labels = np.tile(rng.integers(0, CLASSES, 5), 5)
    return CorruptedArrays(folder, labels, ("snow", "fog")), images, labels


def test_published_sets_give_the_same_kind_of_scores(tmp_path):
    arrays, images, labels = published(tmp_path)
    net, calls = model(), []
    found = evaluate_published(net, arrays, clean=data(), batch_size=3, progress=lambda *c: calls.append(c))
    assert (found.provenance, list(found.scores)) == ("published", ["snow", "fog"])
    assert calls[-1] == (50 + COUNT, 50 + COUNT)
    for name, cells in found.scores.items():
        for severity, cell in enumerate(cells):
            rows = slice(5 * severity, 5 * severity + 5)
            part = torch.from_numpy(images[name][rows]).permute(0, 3, 1, 2)
            expected = by_hand(net, part, torch.from_numpy(labels[rows]))
            assert (cell.accuracy, cell.nll) == pytest.approx(expected, rel=1e-5)
    assert (found.clean.accuracy, found.clean.nll) == pytest.approx(by_hand(net, *data()), rel=1e-5)
    only = evaluate_published(net, arrays, corruptions=["fog"], severities=[4], batch_size=3)
    assert only.scores == {"fog": found.scores["fog"][3:4]}
    assert only.clean is None


GIVEN = {"predict": model(), "x": data()[0], "y": data()[1], "corruptions": ["fog"], "severities": [1]}
test_wrong_input_is_named = refusals(
    ({"corruptions": []}, "expected at least one corruption"),
    ({"y": torch.zeros(3, dtype=torch.long)}, "expected one class label per example"),
    ({"y": torch.full((COUNT,), CLASSES)}, "expected labels from 0 to 3 for a model with 4 outputs"),
    ({"predict": lambda x: x.flatten()}, "expected logits (37, K)"),
    of=lambda change: evaluate_corruptions(**(GIVEN | change)),
)


ERRORS = {"fog": (10.0, 30.0), "snow": (20.0, 40.0)}
BASELINE = {"fog": (30.0, 50.0), "snow": (50.0, 70.0), "frost": (1.0, 2.0)}


def test_by_hand():
    assert mean_error(ERRORS) == 25
    assert mce(ERRORS, BASELINE) == pytest.approx(50)
    assert mce({**ERRORS, "snow": (50.0, 70.0)}, BASELINE) == pytest.approx(75)
    # fog adds 20 - 5 = 15 to the clean error and 40 - 10 = 30 to the baseline's; snow 25 and 50.
    assert relative_mce(ERRORS, 5, BASELINE, 10) == pytest.approx(50)
    assert relative_mce(ERRORS, 0, BASELINE, 10) == pytest.approx(100 * (20 / 30 + 30 / 50) / 2)
    assert scores.severity_curve(ERRORS) == (15, 35)
    # The ratio of sums, not the mean of ratios.
    assert mce({"fog": (10.0, 10.0)}, {"fog": (10.0, 90.0)}) == pytest.approx(20)
    # A mean will do in place of severities.
    assert mce({"fog": 20.0, "snow": 30.0}, {"fog": 40.0, "snow": 60.0}) == pytest.approx(50)
    assert mce(ERRORS, {"fog": 40, "snow": 60}) == pytest.approx(50)
    assert tuple(scores.ALEXNET_IMAGENET_C) == CORRUPTIONS
    assert mean_error(scores.ALEXNET_IMAGENET_C) > scores.ALEXNET_IMAGENET


test_wrong_values_are_named = refusals(
    (mean_error, {}, "expected the errors of at least one corruption"),
    (mce, ERRORS, {"fog": 10.0}, "but snow is missing"),
    (mce, ERRORS, {"fog": 0.0, "snow": 1.0}, "expected a baseline that fog makes worse"),
    (mce, {"fog": (1.0,)}, BASELINE, "expected as many severities as the baseline for fog, but got 1 and 2"),
    (relative_mce, ERRORS, 5, BASELINE, 40, "expected a baseline that fog makes worse"),
)
