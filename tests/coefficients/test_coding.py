import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.coefficients.coding import LARGEST, MODEL_BYTES, decode_levels, encode_levels


def laplace(count, width, seed=0):
    drawn = np.random.default_rng(seed).laplace(0, width, count)
    return np.clip(np.rint(drawn), -LARGEST, LARGEST).astype(np.int64)


def decoded(tensors):
    models, content = encode_levels(tensors)
    return decode_levels(models, [tensor.shape for tensor in tensors], content)


@given(
    st.lists(st.lists(st.integers(-LARGEST, LARGEST), max_size=60), min_size=1, max_size=5),
)
@settings(max_examples=100, deadline=None)
def test_any_whole_numbers_come_back(drawn):
    tensors = [np.array(each, dtype=np.int64) for each in drawn]
    for given_, found in zip(tensors, decoded(tensors), strict=True):
        np.testing.assert_array_equal(found, given_)


@given(st.integers(0, 9), st.integers(1, 12), st.integers(0, 3), st.floats(0, 1), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_any_matrix_comes_back(units, fan_in, kind, density, seed):
    """Of one sign, of both, of size 1 alone, up to the largest; empty ones too."""
    draws = np.random.default_rng(seed)
    shape = (units + 1, fan_in)
    largest = (1, 2, LARGEST, LARGEST)[kind]
    levels = draws.integers(1 if kind < 3 else -largest, largest + 1, shape)
    levels *= draws.random(shape) < density
    vector = np.array([3, 0, -1])
    found = decoded([vector, levels, vector])
    for given_, each in zip([vector, levels, vector], found, strict=True):
        np.testing.assert_array_equal(each, given_)


def test_a_matrix_costs_its_positions_signs_and_sizes():
    draws = np.random.default_rng(0)
    used = draws.random((200, 300)) < 0.02
    levels = used * draws.geometric(0.6, used.shape)
    entropy = used.size * -(0.02 * np.log2(0.02) + 0.98 * np.log2(0.98)) / 8
    sizes = used.sum() * -(0.6 * np.log2(0.6) + 0.4 * np.log2(0.4)) / 0.6 / 8
    _, content = encode_levels([levels])
    assert 0.9 * (entropy + sizes) < len(content) < 1.05 * (entropy + sizes)
    _, with_signs = encode_levels([levels * draws.choice([-1, 1], used.shape)])
    assert len(with_signs) - len(content) == pytest.approx(used.sum() / 8, rel=0.05)


@pytest.mark.parametrize("width", [0.2, 1, 15])
def test_code_is_near_the_entropy_of_each_tensor(width):
    """Tensors have models of their own and share one stream; zeros cost next to nothing."""
    tensors = [laplace(3000, width), laplace(3000, 3), np.zeros(1000, dtype=np.int64)]
    models, content = encode_levels(tensors)
    assert {len(model) for model in models} == {MODEL_BYTES}
    entropy = 0.0
    for levels in tensors:
        _, counts = np.unique(levels, return_counts=True)
        entropy -= (counts * np.log2(counts / levels.size)).sum() / 8
    assert len(content) <= 1.02 * entropy + 8


def test_the_code_is_the_same_for_ever():
    """Golden bytes: files hold them."""
    levels = np.array([0, 1, -1, 0, 2, 0, 0, -3, 0, 1])
    models, content = encode_levels([levels])
    assert (models[0].hex(), content.hex()) == ("8060", "4dc01aa4")
    assert decode_levels(models, [(10,)], content)[0].tolist() == levels.tolist()
    matrix = levels.reshape(2, 5)
    models, content = encode_levels([matrix])
    assert (models[0].hex(), content.hex()) == ("9960", "1071c50c02e38ba5")
    np.testing.assert_array_equal(decode_levels(models, [(2, 5)], content)[0], matrix)
    for size in (LARGEST + 1, -LARGEST - 1):
        with pytest.raises(ValueError, match="from -127 to 127"):
            encode_levels([np.array([0, size])])


@pytest.mark.parametrize(
    ("models", "content", "match"),
    [
        ([b"\x80\x80"], b"123", "32-bit words"),
        ([b"\x00\x80"], b"1234", "P\\(0\\) above 0"),
        ([b"\x80\x80"], b"1234" * 9, "left over"),
    ],
)
def test_bytes_that_no_writer_made_are_refused(models, content, match):
    with pytest.raises(ValueError, match=match):
        decode_levels(models, [(3,)], content)
