"""What every corruption promises; JPEG is held against Pillow's own."""

import io
from itertools import pairwise

import numpy as np
import pytest
import torch

from one_line import refusals
from rcad.evaluate.corruptions import CORRUPTIONS, SEVERITIES, corrupt, corrupt_numbered
from rcad.evaluate.corruptions.generated import jpeg_compression
from rcad.evaluate.corruptions.materials import Draws

FIXED = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}
DRAWN = [name for name in CORRUPTIONS if name not in FIXED]
image = pytest.importorskip("PIL.Image")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(*shape):
    return torch.rand(*shape, generator=seeded(9))


def waves(count, channels, height, width):
    rows, columns = torch.arange(height).view(-1, 1), torch.arange(width)
    image = torch.stack([0.5 + 0.5 * torch.sin(rows / 5 + columns / 9 + k) for k in range(channels)])
    return image.expand(count, -1, -1, -1)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(3, 1, 8, 8), (2, 3, 4, 4), (2, 3, 50, 64)], ids=str)
def test_shape_dtype_and_range_stay_and_the_image_changes(name, shape):
    levels = (uniform(*shape) * 255).round()
    x = (levels / 255).requires_grad_()
    kept = x.clone()
    for severity in (1, 5):
        found = []
        for given in (x, x.double(), x.half(), levels.to(torch.uint8)):
            found.append(moved := corrupt(given, name, severity, generator=seeded()))
            assert (moved.shape, moved.dtype, moved.requires_grad) == (given.shape, given.dtype, False)
            assert moved.isfinite().all()
            assert 0 <= moved.min() <= moved.max() <= (255 if given.dtype == torch.uint8 else 1)
        assert (found[3].float() - found[0] * 255).abs().max() <= 0.5 + 1e-3
    assert not torch.equal(moved, given)
    assert torch.equal(x, kept)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_generator_decides_and_nothing_else_is_drawn_and_no_images_are_no_error(name):
    x, rng = uniform(3, 3, 32, 32), torch.get_rng_state()
    moved = corrupt(x, name, 3, generator=seeded(1))
    assert torch.equal(moved, corrupt(x, name, 3, generator=seeded(1)))
    assert torch.equal(torch.get_rng_state(), rng)
    generator = seeded(1)
    corrupt(x, name, 3, generator=generator)
    for other in (seeded(2), generator):
        assert torch.equal(moved, corrupt(x, name, 3, generator=other)) == (name in FIXED)
    assert corrupt(x[:0], name, 1, generator=seeded()).shape == (0, 3, 32, 32)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_depends_on_its_number_and_not_on_its_batch(name):
    x = uniform(41, 3, 16, 16)
    whole = corrupt_numbered(x, name, 4, seed=7, first=0)
    for size in (1, 7, 16):
        starts = range(0, 41, size)
        parts = [corrupt_numbered(x[i : i + size], name, 4, seed=7, first=i) for i in starts]
        # Matrix products may round differently for other batch sizes.
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-5)
    if name in DRAWN:
        assert not torch.allclose(corrupt_numbered(x, name, 4, seed=8, first=0), whole)
        assert not torch.allclose(corrupt_numbered(x, name, 4, seed=7, first=1), whole)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severity_grows(name):
    x = waves(4, 3, 64, 64)
    distance = [(corrupt_numbered(x, name, s, seed=0, first=0) - x).abs().mean().item() for s in SEVERITIES]
    assert all(low < high for low, high in pairwise(distance)), distance


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gaussian_noise", [0.485, 0.0617, 0.8873, 0.039, 0.5012, 0.1147, 0.5014, 0.1151]),
        ("shot_noise", [0.4772, 0.0508, 0.8859, 0.0382, 0.4786, 0.1081, 0.4741, 0.1186]),
        ("impulse_noise", [0.4852, 0.0253, 0.8877, 0.0091, 0.5002, 0.0701, 0.5015, 0.0447]),
        ("defocus_blur", [0.4841, 0.004, 0.8961, 0.0033, 0.5011, 0.0207, 0.501, 0.0718]),
        ("glass_blur", [0.4841, 0.0758, 0.8961, 0.0359, 0.5011, 0.082, 0.501, 0.1052]),
        ("motion_blur", [0.4802, 0.0519, 0.9031, 0.0187, 0.501, 0.0599, 0.5008, 0.1218]),
        ("zoom_blur", [0.4877, 0.0574, 0.9014, 0.0058, 0.4985, 0.1136, 0.5003, 0.1648]),
        ("snow", [0.6271, 0.143, 0.9537, 0.0576, 0.7706, 0.2695, 0.7381, 0.2371]),
        ("frost", [0.6307, 0.1483, 0.9661, 0.0699, 0.6633, 0.1824, 0.659, 0.1764]),
        ("fog", [0.4653, 0.1802, 0.6981, 0.198, 0.336, 0.2519, 0.3262, 0.2675]),
        ("brightness", [0.5379, 0.0538, 0.9527, 0.0566, 0.5917, 0.0906, 0.5684, 0.0674]),
        ("contrast", [0.4841, 0.2217, 0.8961, 0.0458, 0.5011, 0.3024, 0.501, 0.2547]),
        ("elastic_transform", [0.4869, 0.1016, 0.8987, 0.011, 0.4962, 0.1907, 0.5007, 0.1452]),
        ("pixelate", [0.4841, 0.0203, 0.9028, 0.0093, 0.5011, 0.0318, 0.5009, 0.0495]),
        ("jpeg_compression", [0.484, 0.0189, 0.8956, 0.0051, 0.5013, 0.0236, 0.5016, 0.0331]),
    ],
)
def test_the_numbers_are_fixed(name, expected):
    """Mean and mean change, in colour and grey, of each size: accuracies of other days must stay comparable."""
    found = []
    for severity, shape in ((4, (20, 3, 40, 36)), (2, (8, 1, 9, 9)), (5, (6, 3, 64, 70)), (3, (2, 3, 130, 128))):
        x = waves(*shape)
        moved = corrupt_numbered(x, name, severity, seed=5, first=3)
        found += [moved.mean().item(), (moved - x).abs().mean().item()]
    assert found == pytest.approx(expected, abs=2e-4)


test_wrong_values_are_named_in_one_line = refusals(
    (torch.zeros(2, 3, 8, 8), "gausian_noise", 1, "but got 'gausian_noise'; did you mean 'gaussian_noise'?"),
    (torch.zeros(2, 3, 8, 8), "fog", 0, "expected a severity from 1 to 5, but got 0"),
    (torch.zeros(3, 8, 8), "fog", 1, "expected images (B, C, H, W)"),
    (torch.zeros(2, 3, 3, 8), "fog", 1, "at least 4 pixels, but got (2, 3, 3, 8)"),
    (torch.full((2, 3, 8, 8), 1.5), "fog", 1, "expected pixels in [0, 1], but got [1.5, 1.5]"),
    (torch.full((2, 3, 8, 8), float("nan")), "fog", 1, "expected pixels in [0, 1]"),
    of=lambda x, name, severity: corrupt(x, name, severity, generator=seeded()),
)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_on_a_gpu_an_image_still_depends_on_its_number_alone(name):
    x = uniform(41, 3, 32, 32).cuda()
    whole = corrupt_numbered(x, name, 4, seed=7, first=0)
    assert whole.device == x.device
    parts = [corrupt_numbered(x[i : i + 7], name, 4, seed=7, first=i) for i in range(0, 41, 7)]
    # A GPU may round a JPEG coefficient at a tie the other way.
    assert ((torch.cat(parts) - whole).abs() > 1e-3).float().mean() < 1e-3
    if name in FIXED:
        cpu = corrupt_numbered(x.cpu(), name, 4, seed=7, first=0)
        assert ((cpu - whole.cpu()).abs() > 1e-3).float().mean() < 1e-3


def saved(levels: np.ndarray, quality: int) -> np.ndarray:
    """What Pillow reads back."""
    file = io.BytesIO()
    image.fromarray(levels.squeeze(-1) if levels.shape[-1] == 1 else levels).save(file, "JPEG", quality=quality)
    return np.asarray(image.open(file)).reshape(levels.shape)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", [80, 50, 25, 7])
@pytest.mark.parametrize("side", [8, 21, 32, 64])
def test_pillow_agrees_to_a_fraction_of_a_level(side, quality, channels):
    levels = (waves(8, channels, side, side) * 255).round()
    draws = Draws(0, "test", 0, 1, torch.device("cpu"))
    ours = (jpeg_compression(levels / 255, quality, draws) * 255).round().clamp(0, 255)
    pictures = levels.permute(0, 2, 3, 1).numpy().astype(np.uint8)
    theirs = np.stack([saved(picture, quality) for picture in pictures]).astype(float)
    difference = np.abs(ours.permute(0, 2, 3, 1).numpy() - theirs).mean()
    change = np.abs(theirs - pictures).mean()
    assert side == 8 or difference < 1.0  # a single block may fall on the other side of a coarse step
    assert difference < 0.13 * change
