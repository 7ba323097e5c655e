"""Numbers as people read them, and what is averaged over what."""

import math

import pytest
from benchmarks.report.quantities import quantity_of
from benchmarks.report.statistics import summarise
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from impresslearn.errors import InputError


@pytest.mark.parametrize(
    ("key", "value", "half", "text"),
    [
        ("accuracy", 0.9123, None, "91.2%"),
        ("difference", -1.23, None, "−1.2 points"),
        ("forgetting", 0.0, None, "0 points"),
        ("backward_transfer", -0.05, None, "−5.0 points"),
        ("bytes", 66.4, None, "66.4 B"),
        ("bytes_per_task", 33275, None, "33.3 kB"),
        ("bytes", 999.96, None, "1.0 kB"),
        ("bytes", 999_960, None, "1.0 MB"),
        ("bytes", 5e15, None, "5000000 GB"),
        ("seconds", 1.24, None, "1.2 s"),
        ("seconds", 135, None, "2 min 15 s"),
        ("seconds", 8100, None, "2 h 15 min"),
        ("p_value", 0.0004, None, "< 0.001"),
        ("p_value", 0.0412, None, "0.041"),
        ("overlap", 0.123456, None, "0.1235"),
        ("known_accuracy", 0.912, 0.0042, "91.2 ± 0.4%"),
        ("accuracy", 0.912, 0.0001, "91.20 ± 0.01%"),
        ("bytes", 1206, 0, "1.2 kB"),
        ("bytes", 1206, 310, "1.2 kB ± 310 B"),
        ("loss", 1.23456, 0.012, "1.235 ± 0.012"),
        ("loss", 123.456, 31, "123 ± 31"),
        ("forgetting", 0.01, 0.02, "+1.0 ± 2.0 points"),
    ],
)
def test_a_key_says_what_it_measures(key, value, half, text):
    quantity = quantity_of(key)
    assert (quantity.text(value) if half is None else quantity.interval(value, half)) == text


def rows(values, **keys):
    return [
        {"accuracy": value, **{k: v[i] for k, v in keys.items()}} for i, value in enumerate(values)
    ]


@given(st.lists(st.integers(0, 100), min_size=2, max_size=40, unique=True))
def test_interval_is_scipys(percents):
    values = [each / 100 for each in percents]
    low, high = stats.t.interval(0.95, len(values) - 1, scale=stats.sem(values))
    found = summarise(rows(values), "accuracy")
    assert found.half_width == pytest.approx((high - low) / 2, rel=1e-9)
    assert found.mean == pytest.approx(math.fsum(values) / len(values))


@pytest.mark.parametrize(
    ("values", "keys", "over", "units"),
    [
        ([0.1, 0.2, 0.3], {"task": "abc"}, "3 tasks", [0.1, 0.2, 0.3]),
        # Two networks with three tasks each are two independent results, not six.
        ([0.9] * 3 + [0.8] * 3, {"seed": "000111", "task": "abcabc"}, "2 seeds", [0.9, 0.8]),
        ([0.8, 0.9, 0.6], {"seed": "777", "task": "aab"}, "2 tasks", [0.85, 0.6]),
        ([0.5], {}, "1 row", [0.5]),
    ],
)
def test_the_units_of_an_interval(values, keys, over, units):
    found = summarise(rows(values, **keys), "accuracy")
    alone = summarise(rows(units), "accuracy")
    assert (found.over, found.count) == (over, len(values))
    assert (found.mean, found.half_width) == pytest.approx((alone.mean, alone.half_width))


def test_rounding_is_no_interval():
    agreeing = [0.1 + 0.2, 0.3, 0.3]  # 0.30000000000000004 and 0.3
    assert summarise(rows(agreeing, seed="012"), "accuracy").half_width == 0


def test_rows_without_seeds_among_others_are_not_called_seeds():
    mixed = [{"accuracy": 0.1, "seed": 0}, {"accuracy": 0.2, "seed": 1}, {"accuracy": 0.3}]
    assert summarise(mixed, "accuracy").over == "3 rows"
    with pytest.raises(InputError, match="no row"):
        summarise([], "accuracy")
