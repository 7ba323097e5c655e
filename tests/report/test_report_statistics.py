"""Means, intervals and tests: by hand and against scipy."""

import math
import random

import pytest
from scipy import stats

from impresslearn.errors import InputError
from impresslearn.report.statistics import deviation, half_width, quantile, summarise, welch


def rows(values, **keys):
    return [
        {"accuracy": value, **{k: v[i] for k, v in keys.items()}} for i, value in enumerate(values)
    ]


def test_interval_by_hand():
    found = summarise(rows([0.1, 0.2, 0.3], task=["a", "b", "c"]), "accuracy")
    assert found.mean == pytest.approx(0.2)
    assert found.deviation == pytest.approx(0.1)
    assert found.half_width == pytest.approx(4.302652729911275 * 0.1 / math.sqrt(3))
    assert (found.count, found.unit, found.units) == (3, "tasks", 3)
    assert (found.low, found.high) == (
        pytest.approx(0.2 - found.half_width),
        pytest.approx(0.2 + found.half_width),
    )


@pytest.mark.parametrize("count", [2, 3, 17, 400])
def test_interval_is_scipys(count):
    draw = random.Random(count)
    values = [draw.gauss(0.9, 0.02) for _ in range(count)]
    low, high = stats.t.interval(0.95, count - 1, loc=sum(values) / count, scale=stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2, rel=1e-9)


def test_several_seeds_are_the_units():
    """Two networks with ten tasks each are two independent results, not twenty."""
    values = [0.9] * 10 + [0.8] * 10
    found = summarise(
        rows(values, seed=[0] * 10 + [1] * 10, task=list("abcdefghij") * 2), "accuracy"
    )
    assert (found.unit, found.units, found.count) == ("seeds", 2, 20)
    assert found.mean == pytest.approx(0.85)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 1) * 0.05)


def test_every_seed_weighs_the_same():
    assert summarise(rows([1.0, 0.0, 0.0, 0.0], seed=[0, 1, 1, 1]), "accuracy").mean == 0.5


def test_one_seed_averages_each_task_first():
    values, tasks = [0.8, 0.9, 0.6], ["a", "a", "b"]
    found = summarise(rows(values, task=tasks, seed=[7, 7, 7]), "accuracy")
    assert (found.unit, found.units) == ("tasks", 2)
    assert found.mean == pytest.approx(0.725)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 1) * 0.25 / 2)


def test_a_single_unit_has_no_interval():
    found = summarise(rows([0.5]), "accuracy")
    assert (found.half_width, found.low, found.deviation, found.unit) == (None, None, 0.0, "rows")


def test_rows_without_seeds_among_others_are_not_called_seeds():
    mixed = [{"accuracy": 0.1, "seed": 0}, {"accuracy": 0.2, "seed": 1}, {"accuracy": 0.3}]
    assert summarise(mixed, "accuracy").unit == "rows"


def test_nothing_to_average():
    with pytest.raises(InputError, match="no row"):
        summarise([], "accuracy")


@pytest.mark.parametrize("sizes", [(2, 2), (10, 10), (5, 40)])
def test_welch_is_scipys(sizes):
    draw = random.Random(sum(sizes))
    first = [draw.gauss(0.9, 0.04) for _ in range(sizes[0])]
    second = [draw.gauss(0.95, 0.01) for _ in range(sizes[1])]
    found, theirs = welch(first, second), stats.ttest_ind(second, first, equal_var=False)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (found.t, found.degrees) == (pytest.approx(theirs.statistic), pytest.approx(theirs.df))
    assert found.difference == pytest.approx(sum(second) / sizes[1] - sum(first) / sizes[0])


def test_welch_without_variation():
    assert welch([0.5, 0.5], [0.5, 0.5]).p_value == 1
    assert welch([0.5, 0.5], [0.6, 0.6]).p_value == 0
    assert welch([0.5], [0.6, 0.7]) is None


def test_small_pieces():
    assert deviation([1.0, 2.0, 3.0, 4.0]) == pytest.approx(stats.tstd([1, 2, 3, 4]))
    assert [quantile([1.0, 2.0, 4.0, 8.0], part) for part in (0, 0.25, 0.5, 1)] == [1, 1.75, 3, 8]
    assert quantile([3.0], 0.25) == 3
