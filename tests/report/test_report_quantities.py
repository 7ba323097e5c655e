"""Numbers as people read them, on axes and in tables."""

import pytest

from impresslearn.report.charts.axes import category_axis, number_axis, value_axis
from impresslearn.report.palette import DARK, LIGHT, slots_of
from impresslearn.report.quantities import FRACTION, NUMBER, quantity_of, word
from impresslearn.report.ticks import linear_ticks, logarithmic_ticks


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("accuracy", 0.9123, "91.2%"),
        ("known_accuracy", 1.0, "100.0%"),
        ("difference", -1.23, "−1.2 points"),
        ("forgetting", 0.0123, "+1.2 points"),
        ("bytes_per_task", 33275, "33.3 kB"),
        ("seconds", 8100, "2 h 15 min"),
        ("p_value", 0.0004, "< 0.001"),
        ("p_value", 0.0412, "0.041"),
        ("masks", 240, "240"),
        ("overlap", 0.123456, "0.1235"),
        ("accuracy_rank", 3, "3"),
    ],
)
def test_a_key_says_what_it_measures(key, value, text):
    assert quantity_of(key).text(value) == text


@pytest.mark.parametrize(
    ("key", "mean", "half", "text"),
    [
        ("accuracy", 0.912, 0.0042, "91.2 ± 0.4%"),
        ("accuracy", 0.912, 0.0001, "91.20 ± 0.01%"),
        ("bytes", 1206, 0, "1.2 kB"),
        ("bytes", 1206, 310, "1.2 kB ± 310 B"),
        ("masks", 5, 0, "5"),
        ("loss", 1.23456, 0.012, "1.235 ± 0.012"),
        ("loss", 123.456, 31, "123 ± 31"),
        ("difference", 1, 2, "+1.0 ± 2.0 points"),
    ],
)
def test_intervals(key, mean, half, text):
    assert quantity_of(key).interval(mean, half) == text


def test_words():
    assert [word(each) for each in (None, True, 3.0, 0.95, "x")] == ["–", "yes", "3", "0.95", "x"]


def test_ticks_are_round():
    assert linear_ticks(0.617, 0.983)[0] == [0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    assert linear_ticks(5, 5) == ([5], 1.0)
    assert logarithmic_ticks(8, 150_000) == [10, 100, 1000, 10_000, 100_000]
    assert logarithmic_ticks(3, 60) == [5, 10, 20, 50]
    assert logarithmic_ticks(33, 34) == [33]


def test_axes():
    axis = value_axis([0.4, 0.99], FRACTION, "accuracy")
    assert axis.high <= 1.02
    assert axis.labels[-1] == "100%"
    assert value_axis([3.0, 3.0], NUMBER, "").low < 3 < value_axis([3.0, 3.0], NUMBER, "").high
    assert value_axis([0.0, 0.0], NUMBER, "", from_zero=True).high > 0
    assert value_axis([-0.2, -0.1], NUMBER, "", from_zero=True).high == 0
    assert number_axis([1, 2, 4, 128], "masks", "", log=True).labels == ("1", "2", "4", "128")
    assert number_axis([10, 99_000], "bytes", "", log=True).labels[-1] == "100 kB"
    assert category_axis([100, 4200], "bytes", "").labels == ("100 B", "4.2 kB")


def test_colours():
    names = ["b", "supsup", "heterogeneous", *map(str, range(20))]
    slots = slots_of(names)
    assert len(set(slots.values())) == len(names)
    assert (slots["heterogeneous"], slots["supsup"]) == (0, 7)
    for palette in (LIGHT, DARK):
        assert len(set(palette.series)) == 8
        assert "series" not in palette.css()
