"""Pixel transforms agree with scipy and torch, and what is random is the same on every machine."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from impresslearn.streams.draws import draw_angles, seeded, stratified_sample
from impresslearn.streams.pixels import flip_and_shift, rotate


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
    seen, moves = set(), list(product([False, True], range(-2, 3), range(-2, 3)))
    for image, result in zip(x, moved, strict=True):
        found = [each for each in moves if torch.equal(padded_and_cropped(image, *each), result)]
        assert len(found) == 1
        seen.add(found[0])
    mirrors, downs, rights = map(set, zip(*seen, strict=True))
    assert (mirrors, downs, rights) == ({False, True}, set(range(-2, 3)), set(range(-2, 3)))


@pytest.mark.parametrize(
    ("spread", "first"),
    [
        # numpy.random.RandomState([0, 0]).permutation(360)[:4]; its draws are frozen by NEP 19.
        (False, (204, 6, 35, 319)),
        (True, (204, 24, 114, 294)),
    ],
)
def test_angles_are_distinct_and_those_of_every_other_machine(spread, first):
    draw = partial(draw_angles, spread=spread)
    every = draw(360, seed=0)
    assert sorted(every) == list(range(360))
    assert draw(4, seed=0) == every[:4] == first
    assert draw(20, seed=1) != draw(20, seed=0) == every[:20]


def test_spread_angles_keep_their_distance_whatever_their_number():
    for tasks in (2, 3, 8, 15, 16, 17, 100, 256):
        chosen = draw_angles(tasks, tasks, spread=True)
        gaps = np.diff(sorted([*chosen, min(chosen) + 360]))
        assert gaps.min() >= 360 // 2 ** (tasks - 1).bit_length()


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_stratified_samples_keep_the_proportions(sizes, share, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    count = round(share * len(labels))
    chosen = stratified_sample(labels, count, seeded(seed, "validation"))
    assert len(set(chosen.tolist())) == len(chosen) == count
    assert (np.diff(chosen) > 0).all()
    taken = np.bincount(labels[chosen], minlength=len(sizes))
    assert (np.abs(taken - np.array(sizes) * count / len(labels)) < 1 + 1e-9).all()
