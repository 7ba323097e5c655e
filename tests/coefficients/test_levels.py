import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.coefficients.quantisation import (
    LARGEST,
    MODEL_BYTES,
    decode_levels,
    encode_levels,
)


def laplace(count, width, seed=0):
    drawn = np.random.default_rng(seed).laplace(0, width, count)
    return np.clip(np.rint(drawn), -LARGEST, LARGEST).astype(np.int64)


def decoded(tensors):
    models, content = encode_levels(tensors)
    return decode_levels(models, [tensor.size for tensor in tensors], content)


@given(
    st.lists(st.lists(st.integers(-LARGEST, LARGEST), max_size=60), min_size=1, max_size=5),
)
@settings(max_examples=100, deadline=None)
def test_any_whole_numbers_come_back(drawn):
    tensors = [np.array(each, dtype=np.int64) for each in drawn]
    for given_, found in zip(tensors, decoded(tensors), strict=True):
        np.testing.assert_array_equal(found, given_)


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
    assert decode_levels(models, [10], content)[0].tolist() == levels.tolist()
    for size in (LARGEST + 1, -LARGEST - 1):
        with pytest.raises(ValueError, match="from -127 to 127"):
            encode_levels([np.array([0, size])])


def test_damage_gives_an_error_or_numbers_within_bounds():
    models, content = encode_levels([laplace(200, 1), laplace(50, 4)])
    counts = [200, 50]
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        try:
            found = decode_levels(models, counts, bytes(damaged))
        except ValueError:
            continue
        assert [len(each) for each in found] == counts
        assert all(np.abs(each).max() <= LARGEST for each in found)


@pytest.mark.parametrize(
    ("models", "content", "match"),
    [
        ([b"\x80\x80"], b"123", "32-bit words"),
        ([b"\x00\x80"], b"1234", "P\\(0\\) above 0"),
        ([b"\x80"], b"1234", "P\\(0\\) above 0"),
        ([b"\x80\x80"], b"1234" * 9, "left over"),
    ],
)
def test_bytes_that_no_writer_made_are_refused(models, content, match):
    with pytest.raises(ValueError, match=match):
        decode_levels(models, [3], content)
