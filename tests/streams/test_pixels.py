"""Pixel transforms agree with scipy and torch's own pad and crop."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import ndimage

from impresslearn.streams.pixels import flip_and_shift, permute_pixels, rotate


def images(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("degrees", [0, 1, 90, 137, 270])
@pytest.mark.parametrize("shape", [(28, 28), (9, 14), (9, 9)])
def test_rotation_agrees_with_scipy(degrees, shape):
    x = images(2, 1, *shape)
    expected = ndimage.rotate(
        x.numpy(), degrees, axes=(3, 2), reshape=False, order=1, mode="grid-constant"
    )
    np.testing.assert_allclose(rotate(x, degrees).numpy(), expected, atol=2e-5)
    if degrees % 90 == 0 and shape[0] == shape[1]:
        exact = torch.rot90(x, degrees // 90, (-2, -1))
        torch.testing.assert_close(rotate(x, degrees), exact, atol=1e-5, rtol=0)


def test_permutation_moves_pixels_alike_in_every_channel():
    x = images(2, 3, 4, 5)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    moved = permute_pixels(x, order)
    assert torch.equal(moved.flatten(-2)[1, 2, 7], x.flatten(-2)[1, 2, order[7]])
    assert torch.equal(permute_pixels(moved, torch.argsort(order)), x)


def padded_and_cropped(image, mirror, down, right):
    padded = F.pad(image.flip(-1) if mirror else image, (2,) * 4, mode="reflect")
    height, width = image.shape[-2:]
    return padded[..., 2 + down : 2 + down + height, 2 + right : 2 + right + width]


def test_augmentation_pads_crops_and_mirrors_as_its_generator_says():
    x = images(64, 2, 6, 7)
    moved, again, other = (
        flip_and_shift(x, torch.Generator().manual_seed(seed), pixels=2) for seed in (0, 0, 1)
    )
    assert torch.equal(moved, again)
    assert not torch.equal(moved, other)
    assert torch.equal(x, images(64, 2, 6, 7))
    seen = set()
    for image, result in zip(x, moved, strict=True):
        found = [
            (mirror, down, right)
            for mirror in (False, True)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if torch.equal(padded_and_cropped(image, mirror, down, right), result)
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert {mirror for mirror, _, _ in seen} == {False, True}
    assert {down for _, down, _ in seen} == {right for _, _, right in seen} == set(range(-2, 3))
