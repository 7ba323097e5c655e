"""Numbers as people read them, and what is averaged over what."""

import math
import random

import pytest
from scipy import stats

from impresslearn.errors import InputError
from impresslearn.report.quantities import quantity_of, word
from impresslearn.report.statistics import half_width, summarise
from impresslearn.report.wording import duration, percent, said, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (size(None), "–"),
        (size(0), "0 B"),
        (size(66.4), "66.4 B"),
        (size(999), "999 B"),
        (size(1000), "1.0 kB"),
        (size(33_275), "33.3 kB"),
        (size(4_690_000), "4.7 MB"),
        (size(5e15), "5000000 GB"),
        (percent(0.93124), "93.1%"),
        (percent(None), "–"),
        (duration(1.24), "1.2 s"),
        (duration(41.3), "41 s"),
        (duration(135), "2 min 15 s"),
        (said({"learning_rate": [1, None, True]}), "learning rate 1, none, yes"),
        (word(None), "–"),
        (word(True), "yes"),
        (word(3.0), "3"),
        (word(0.95), "0.95"),
    ],
)
def test_words(text, expected):
    assert text == expected


@pytest.mark.parametrize(
    ("key", "value", "half", "text"),
    [
        ("accuracy", 0.9123, None, "91.2%"),
        ("known_accuracy", 1.0, None, "100.0%"),
        ("accuracy_rank", 3, None, "3"),
        ("difference", -1.23, None, "−1.2 points"),
        ("forgetting", 0.0123, None, "+1.2 points"),
        ("forgetting", 0.0, None, "0 points"),
        ("backward_transfer", -0.05, None, "−5.0 points"),
        ("bytes_per_task", 33275, None, "33.3 kB"),
        ("seconds", 8100, None, "2 h 15 min"),
        ("p_value", 0.0004, None, "< 0.001"),
        ("p_value", 0.0412, None, "0.041"),
        ("masks", 240, None, "240"),
        ("overlap", 0.123456, None, "0.1235"),
        ("accuracy", 0.912, 0.0042, "91.2 ± 0.4%"),
        ("accuracy", 0.912, 0.0001, "91.20 ± 0.01%"),
        ("bytes", 1206, 0, "1.2 kB"),
        ("bytes", 1206, 310, "1.2 kB ± 310 B"),
        ("loss", 1.23456, 0.012, "1.235 ± 0.012"),
        ("loss", 123.456, 31, "123 ± 31"),
        ("difference", 1, 2, "+1.0 ± 2.0 points"),
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


@pytest.mark.parametrize("count", [2, 3, 17, 400])
def test_interval_is_scipys(count):
    draw = random.Random(count)
    values = [draw.gauss(0.9, 0.02) for _ in range(count)]
    low, high = stats.t.interval(0.95, count - 1, loc=sum(values) / count, scale=stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2, rel=1e-9)


def test_interval_by_hand():
    found = summarise(rows([0.1, 0.2, 0.3], task=["a", "b", "c"]), "accuracy")
    assert (found.mean, found.deviation) == (pytest.approx(0.2), pytest.approx(0.1))
    assert found.half_width == pytest.approx(4.302652729911275 * 0.1 / math.sqrt(3))
    assert (found.count, found.over) == (3, "3 tasks")


def test_several_seeds_are_the_units():
    """Two networks with ten tasks each are two independent results, not twenty."""
    values, seeds = [0.9] * 10 + [0.8] * 10, [0] * 10 + [1] * 10
    found = summarise(rows(values, seed=seeds, task=list("abcdefghij") * 2), "accuracy")
    assert (found.over, found.count, found.mean) == ("2 seeds", 20, pytest.approx(0.85))
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 1) * 0.05)
    assert summarise(rows([1.0, 0.0, 0.0, 0.0], seed=[0, 1, 1, 1]), "accuracy").mean == 0.5


def test_one_seed_averages_each_task_first():
    found = summarise(rows([0.8, 0.9, 0.6], task=["a", "a", "b"], seed=[7, 7, 7]), "accuracy")
    assert (found.over, found.mean) == ("2 tasks", pytest.approx(0.725))
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 1) * 0.25 / 2)


def test_a_single_unit_has_no_interval():
    found = summarise(rows([0.5]), "accuracy")
    assert (found.half_width, found.deviation, found.over) == (None, 0.0, "1 row")
    with pytest.raises(InputError, match="no row"):
        summarise([], "accuracy")


def test_rows_without_seeds_among_others_are_not_called_seeds():
    mixed = [{"accuracy": 0.1, "seed": 0}, {"accuracy": 0.2, "seed": 1}, {"accuracy": 0.3}]
    assert summarise(mixed, "accuracy").over == "3 rows"
