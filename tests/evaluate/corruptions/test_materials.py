"""Linear maps against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from rcad.evaluate.corruptions.materials import convolve, disk, gaussian_blur, mirrored


def uniform(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 6.4])
@pytest.mark.parametrize("truncate", [3.0, 4.0])
def test_gaussian_blur_is_scipys(sigma, truncate):
    x = uniform(2, 1, 20, 14)
    expected = [ndimage.gaussian_filter(image[0], sigma, mode="reflect", truncate=truncate) for image in x.numpy()]
    np.testing.assert_allclose(gaussian_blur(x, sigma, truncate)[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("radius", [1, 2.5, 10])
def test_filters_are_scipys(radius):
    x, kernel = uniform(2, 3, 18, 15), disk(radius, 0.5)
    kernel[0, :] *= 2  # not symmetric, to tell a correlation from a convolution
    expected = [[ndimage.correlate(channel, kernel, mode="reflect") for channel in image] for image in x.numpy()]
    np.testing.assert_allclose(convolve(x, kernel), expected, atol=1e-5)


def test_a_mirrored_border_may_exceed_the_image():
    x = uniform(1, 1, 4, 5)
    np.testing.assert_array_equal(mirrored(x, 11)[0, 0], np.pad(x[0, 0], 11, mode="symmetric"))
