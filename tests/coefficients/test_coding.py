"""The code of whole numbers, and readouts that are fitted within a number of bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.coefficients.coding import (
    LARGEST,
    LARGEST_STEP,
    SMALLEST_STEP,
    decode_levels,
    encode_levels,
    nearest_steps,
)


def laplace(count, width, seed=0):
    drawn = np.random.default_rng(seed).laplace(0, width, count)
    return np.clip(np.rint(drawn), -LARGEST, LARGEST).astype(np.int64)


def decoded(tensors):
    return decode_levels(encode_levels(tensors), [tensor.shape for tensor in tensors])[0]


@given(
    vector=st.lists(st.integers(-LARGEST, LARGEST), max_size=60),
    units=st.integers(1, 10),
    fan_in=st.integers(1, 12),
    kind=st.integers(0, 3),
    density=st.floats(0, 1),
    seed=st.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_any_whole_numbers_come_back(vector, units, fan_in, kind, density, seed):
    """Of one sign, of both, of size 1 alone, up to the largest; empty ones too."""
    draws = np.random.default_rng(seed)
    largest = (1, 2, LARGEST, LARGEST)[kind]
    levels = draws.integers(1 if kind < 3 else -largest, largest + 1, (units, fan_in))
    levels *= draws.random(levels.shape) < density
    tensors = [np.array(vector, dtype=np.int64), levels, np.array([3, 0, -1])]
    for given_, found in zip(tensors, decoded(tensors), strict=True):
        np.testing.assert_array_equal(found, given_)


def test_a_matrix_costs_its_positions_signs_and_sizes():
    draws = np.random.default_rng(0)
    used = draws.random((200, 300)) < 0.02
    levels = used * draws.geometric(0.6, used.shape)
    entropy = used.size * -(0.02 * np.log2(0.02) + 0.98 * np.log2(0.98)) / 8
    sizes = used.sum() * -(0.6 * np.log2(0.6) + 0.4 * np.log2(0.4)) / 0.6 / 8
    content = encode_levels([levels])
    assert 0.9 * (entropy + sizes) < len(content) < 1.05 * (entropy + sizes)
    with_signs = encode_levels([levels * draws.choice([-1, 1], used.shape)])
    assert len(with_signs) - len(content) == pytest.approx(used.sum() / 8, rel=0.05)


@pytest.mark.parametrize("width", [0.2, 1, 15])
def test_code_is_near_the_entropy_of_each_tensor(width):
    """Tensors have models of their own where it pays and share one stream; zeros cost nothing."""
    tensors = [laplace(3000, width), laplace(3000, 3), np.zeros(1000, dtype=np.int64)]
    content = encode_levels(tensors)
    entropy = 0.0
    for levels in tensors:
        _, counts = np.unique(levels, return_counts=True)
        entropy -= (counts * np.log2(counts / levels.size)).sum() / 8
    assert len(content) <= 1.02 * entropy + 8


def test_the_code_is_the_same_for_ever():
    """Golden bytes: files hold them."""
    levels = np.array([0, 1, -1, 0, 2, 0, 0, -3, 0, 1])
    content = encode_levels([levels])
    assert content.hex() == "a0ca41ac01"
    assert decode_levels(content, [(10,)])[0][0].tolist() == levels.tolist()
    matrix = levels.reshape(2, 5)
    content = encode_levels([matrix])
    assert content.hex() == "8662b888528b24f9"
    np.testing.assert_array_equal(decode_levels(content, [(2, 5)])[0][0], matrix)
    grids = np.array([[0.75], [-3.25]], np.float32)
    content = encode_levels([levels], tuple(grids))
    assert content.hex() == "f48efade62bca9"
    found, told = decode_levels(content, [(10,)], with_grids=True)
    assert found[0].tolist() == levels.tolist()
    np.testing.assert_array_equal(told, grids)
    for size in (LARGEST + 1, -LARGEST - 1):
        with pytest.raises(ValueError, match="from -127 to 127"):
            encode_levels([np.array([0, size])])


def test_steps_are_kept_to_a_sixteenth():
    steps = np.geomspace(SMALLEST_STEP, LARGEST_STEP, 1000)
    rounded = nearest_steps(steps)
    assert np.abs(rounded / steps - 1).max() <= 1 / 16
    np.testing.assert_array_equal(nearest_steps(rounded), rounded)
    assert nearest_steps([0.0, 1e30]).tolist() == [SMALLEST_STEP, LARGEST_STEP]
    ones = [np.ones(1, np.int64)] * len(steps)
    _, (told, offsets) = decode_levels(
        encode_levels(ones, (rounded, -rounded)), [(1,)] * len(steps), with_grids=True
    )
    np.testing.assert_array_equal(told, rounded)
    np.testing.assert_array_equal(offsets, -rounded)
