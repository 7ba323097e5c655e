import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.masks.codec import decode_mask, encode_mask, find_classes

LENET = ((300, 784), (100, 300), (10, 100))
SIZES = st.integers(1, 40)
GOLDEN = bytes.fromhex(
    "0143cc8c0883360cd98a5d8019bc5213f97b0ab1d26104c13b13802edc887f89f1fbfc8990605f57acddfff3add590"
    "7b2e00a7ac2a2ccbb39bcb95a48afabfb7071a526cc58853405a8f7778c23c0997dbd64ebbd74f52a520a238e3a25f"
    "72e87a"
)


def golden_mask():
    i, j = np.indices((30, 40))
    noise = ((i * 31 + j * 17 + 5) ** 3 >> 4) % 100
    uneven = noise < np.where(i < 9, 0, np.where(j < 12, 70, 8))
    i, j = np.indices((5, 9))
    single = np.ones((1, 1), bool)
    return [uneven, np.ones((3, 5), bool), np.zeros((5, 2), bool), single, i * j % 3 == 1]


def draw(shape, density, seed=0):
    return np.random.default_rng(seed).random(shape) < density


def uneven_mask(shape, seed=0):
    """Rows and columns of many densities, a tenth of the rows dead, the first columns too."""
    random = np.random.default_rng(seed)
    logit = random.normal(-2.5, 1.3, (shape[0], 1)) + random.normal(0, 0.8, shape[1])
    logit[random.random(shape[0]) < 0.1] = -np.inf
    logit[:, : shape[1] // 20] = -np.inf
    return random.random(shape) < 1 / (1 + np.exp(-logit))


def entropy_bytes(mask):
    """Bytes of independent weights at the density of each layer."""
    total = 0.0
    for layer in mask:
        p = layer.mean()
        if 0 < p < 1:
            total -= layer.size * (p * np.log2(p) + (1 - p) * np.log2(1 - p)) / 8
    return total


def assert_round_trip(mask):
    blob = encode_mask(mask)
    decoded = decode_mask(blob, [layer.shape for layer in mask])
    for before, after in zip(mask, decoded, strict=True):
        assert after.dtype == np.bool_
        assert after.flags.c_contiguous
        np.testing.assert_array_equal(after, before)
    return blob


@given(
    shapes=st.lists(st.tuples(SIZES, SIZES), max_size=4),
    density=st.sampled_from([0.0, 0.001, 0.1, 0.5, 0.97, 1.0]),
    dead_rows=st.floats(0, 1),
    dense_columns=st.floats(0, 1),
    seed=st.integers(0, 99),
)
@settings(max_examples=150, deadline=None)
def test_decode_undoes_encode(shapes, density, dead_rows, dense_columns, seed):
    mask = [draw(shape, density, seed) for shape in shapes]
    for layer in mask:
        units, fan_in = layer.shape
        layer[:, : int(dense_columns * fan_in)] |= draw((units, 1), 0.9, seed)
        layer[: int(dead_rows * units)] = False
    assert_round_trip(mask)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (70, 65), (0, 4), (4, 0)])
def test_odd_shapes(shape):
    layer = uneven_mask(shape)
    assert_round_trip([draw(shape, 0.3), layer, layer.T, layer[::2, ::3]])


def test_stored_masks_stay_readable():
    # Written by format 1 on the day it was made; these bytes must decode to these bits for ever.
    mask = golden_mask()
    assert all(labels.max() > 0 for labels in find_classes(mask[0]))  # all that the format has
    decoded = decode_mask(GOLDEN, [layer.shape for layer in mask])
    for before, after in zip(mask, decoded, strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("density", [0.081, 0.9])
def test_a_random_mask_costs_its_entropy_and_an_uneven_one_less(density):
    mask = [draw(shape, density, seed) for seed, shape in enumerate(LENET)]
    assert len(assert_round_trip(mask)) < entropy_bytes(mask) * 1.001 + 24
    uneven = [uneven_mask(shape, seed) for seed, shape in enumerate(LENET)]
    assert len(assert_round_trip(uneven)) < 0.8 * entropy_bytes(uneven)
