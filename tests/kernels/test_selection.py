"""The k-th largest of many numbers: the same as a full sort, NaN and ties included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.kernels import selection

SIZES = (1, 2, 1000, 20_001, 65_537)


def draw(kind, size, seed=0):
    rng = np.random.default_rng(seed)
    values = {
        "normal": rng.standard_normal(size),
        "heavy tails": rng.standard_cauchy(size),
        "many ties": np.round(rng.standard_normal(size), 2),
        "one value": np.full(size, 0.25),
        "sorted": np.sort(rng.standard_normal(size)),
        "with infinities": np.where(rng.random(size) < 0.01, np.inf, rng.standard_normal(size)),
    }[kind]
    return values.astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "kind", ["normal", "heavy tails", "many ties", "one value", "sorted", "with infinities"]
)
def test_equals_a_full_sort(kind, size):
    values = draw(kind, size)
    ordered = np.sort(values)[::-1]
    for count in {1, size, max(1, size // 10), max(1, size // 2)}:
        threshold, at_least = selection.kth_largest(values, count)
        assert threshold == ordered[count - 1]
        assert at_least == np.count_nonzero(values >= ordered[count - 1])


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
    count = max(1, int(share * size))
    threshold, at_least = selection.kth_largest(values, count)
    assert threshold == np.sort(values)[::-1][count - 1]
    assert at_least == np.count_nonzero(values >= threshold) >= count


def test_a_periodic_order_that_misleads_the_sample_costs_time_only():
    size = 80_000
    values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    values[:: size // selection.SAMPLE] += 1000  # exactly what the sample sees
    threshold, _ = selection.kth_largest(values, size // 10)
    assert threshold == np.sort(values)[::-1][size // 10 - 1]


@pytest.mark.parametrize("size", [100, 50_000])
@pytest.mark.parametrize("place", [0, 57, -1])
def test_nan_is_told(size, place):
    values = draw("normal", size)
    values[place] = np.nan
    threshold, at_least = selection.kth_largest(values, size // 10)
    assert np.isnan(threshold)
    assert at_least == 0


def test_any_array_of_numbers_is_taken():
    values = draw("normal", 100_000)[::2]
    values.flags.writeable = False
    expected = np.sort(values)[::-1][4999]
    assert selection.kth_largest(values, 5000) == (expected, 5000)


@pytest.mark.parametrize("magnitude", [False, True])
def test_keeping_and_signed_products(magnitude):
    scores, weight = draw("normal", 501), draw("normal", 501, seed=1)
    scores[3] = 0
    ranked = np.abs(scores) if magnitude else scores
    kept = selection.keep_above(scores, weight, 0.5, magnitude)
    assert np.array_equal(kept, np.where(ranked >= 0.5, weight, 0))
    product = selection.signed_product(weight, kept, scores)
    assert np.array_equal(product, weight * kept * np.sign(scores))


def test_without_numba_the_partition_serves(monkeypatch):
    monkeypatch.setattr(selection, "_loops", lambda: None)
    values = draw("normal", 50_000)
    threshold, at_least = selection.kth_largest(values, 5000)
    assert (threshold, at_least) == (np.sort(values)[::-1][4999], 5000)
    assert selection.keep_above(values, values, 0.5, False) is None
    assert selection.signed_product(values, values, values) is None
