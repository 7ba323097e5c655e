"""The k-th largest of many numbers: the same as a full sort, NaN and ties included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.kernels import selection


def check(values, count):
    threshold, at_least = selection.kth_largest(values, count)
    assert threshold == np.sort(values)[::-1][count - 1]
    assert at_least == np.count_nonzero(values >= threshold) >= count


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(selection.SMALL + 1, 60_000),
    share=st.floats(0, 1),
    levels=st.sampled_from([3, 50, 10**6]),
)
def test_any_share_of_any_draw(seed, size, share, levels):
    rng = np.random.default_rng(seed)
    values = (rng.integers(0, levels, size) - levels // 2).astype(np.float32)
    check(values, max(1, int(share * size)))


@pytest.mark.parametrize("size", [100, 50_000])
@pytest.mark.parametrize("place", [0, 57, -1])
def test_nan_is_told(size, place):
    values = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    values[place] = np.nan
    threshold, at_least = selection.kth_largest(values, size // 10)
    assert np.isnan(threshold)
    assert at_least == 0


def test_any_array_of_numbers_is_taken_and_without_numba_a_partition_serves(monkeypatch):
    values = np.random.default_rng(0).standard_normal(100_000, dtype=np.float32)[::2]
    values.flags.writeable = False
    check(values, 5000)
    monkeypatch.setattr(selection, "usable", lambda name: None)
    check(values, 5000)
