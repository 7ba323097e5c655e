"""What is drawn: the record's numbers, in their natural order. How it looks was judged by eye."""

import statistics
from itertools import pairwise

import pytest
import samples

from impresslearn.errors import InputError
from impresslearn.report import parse_record
from impresslearn.report.charts import charts_of
from impresslearn.report.colouring import notability
from impresslearn.report.statistics import welch


def chart(figure, rows):
    record = samples.HEAD | {"target": "t", "title": "t", "rows": rows, "tables": []}
    (found,) = charts_of(parse_record(record | {"figures": [figure]}))
    return found


def measured(values, **keys):
    return [{"accuracy": value, **keys, "task": f"task-{i}"} for i, value in enumerate(values)]


BOX = {"kind": "box", "x": "masks", "y": "accuracy", "group": "method"}
LINE = BOX | {"kind": "line"}


def test_boxes_hold_the_quartiles():
    values = [0.1, 0.2, 0.3, 0.4, 0.9]
    found = chart(BOX, measured(values, masks=5, method="a"))
    (box,) = found.series[0].boxes
    assert box.quartiles == pytest.approx(tuple(statistics.quantiles(values, method="inclusive")))
    assert (box.lower, box.upper, box.outliers) == (0.1, 0.4, (0.9,))
    assert (box.mean, box.count, box.values) == (pytest.approx(0.38), 5, tuple(values))


def test_few_values_are_shown_and_many_are_not():
    found = chart(BOX, measured([0.5 + i / 100 for i in range(20)], masks=5, method="a"))
    assert found.series[0].boxes[0].values == ()


def test_positions_are_numeric_not_lexicographic():
    rows = [row for n in (100, 5, 20) for row in measured([0.5, 0.6], masks=n, method="a")]
    found = chart(BOX, rows)
    assert found.x.labels == ("5", "20", "100")
    assert [box.where for box in found.series[0].boxes] == ["5", "20", "100"]


def test_texts_keep_the_order_of_the_rows():
    rows = [row for n in ("fc2", "fc10", "head") for row in measured([0.5], layer=n)]
    found = chart({"kind": "bar", "x": "layer", "y": "accuracy"}, rows)
    assert found.x.labels == ("fc2", "fc10", "head")
    assert [series.name for series in found.series] == [""]


def test_a_method_at_one_position_leaves_no_gaps_at_the_others():
    rows = measured([0.1, 0.2], masks=1, method="X")
    rows += [
        row
        for n in (5, 10)
        for method in ("a", "b")
        for row in measured([0.5, 0.6], masks=n, method=method)
    ]
    found = {series.name: [box.x for box in series.boxes] for series in chart(BOX, rows).series}
    assert found["X"] == [0.0]
    assert [(a + b) / 2 for a, b in zip(found["a"], found["b"], strict=True)] == [1.0, 2.0]


def test_boxes_do_not_overlap():
    found = charts_of(parse_record(samples.crowded()))[0]
    centres = sorted(box.x for series in found.series for box in series.boxes)
    assert len(centres) == 96
    assert min(b - a for a, b in pairwise(centres)) > found.width


def test_reference_is_drawn_across_and_not_inside():
    (found,) = charts_of(parse_record(samples.comparison()))
    rows = [row for row in samples.comparison()["rows"] if row["sparsity"] == 0.9]
    values = [row["accuracy"] for row in rows if row["method"] == "supsup"]
    assert [each.name for each in found.series] == [
        "X", "heterogeneous", "homogeneous", "GN", "random",
    ]  # fmt: skip
    (reference,) = found.references
    assert reference.name == "supsup"
    assert reference.mean == pytest.approx(statistics.fmean(values))
    assert reference.deviation == pytest.approx(statistics.stdev(values))
    assert found.y.low < reference.mean < found.y.high


def test_a_reference_that_has_x_is_no_box():
    rows = [row for m in ("a", "supsup") for row in measured([0.5], masks=3, method=m)]
    found = chart(BOX | {"reference": {"method": "supsup"}}, rows)
    assert [series.name for series in found.series] == ["a"]
    assert [each.name for each in found.references] == ["supsup"]


def test_a_reference_without_the_filtered_key_is_kept():
    rows = measured([0.5], masks=3, method="a", sparsity=0.9) + measured([0.9], method="supsup")
    found = chart(BOX | {"where": {"sparsity": 0.9}, "reference": {"method": "supsup"}}, rows)
    assert found.references[0].mean == 0.9


def test_where_takes_one_value_or_several():
    rows = [row for s in (0.8, 0.9, 0.95) for row in measured([0.5], masks=3, sparsity=s)]
    for wanted, count in ((0.9, 1), ([0.8, 0.9], 2)):
        found = chart({**BOX, "group": None, "where": {"sparsity": wanted}}, rows)
        assert found.series[0].boxes[0].count == count


def test_a_method_has_one_colour_in_all_figures():
    def slots(**more):
        figure = {**BOX, "x": "seed", **more}
        rows = [row for m in ("b", "a", "supsup") for row in measured([0.5], seed=0, method=m)]
        return {series.name: series.slot for series in chart(figure, rows).series}

    assert slots()["a"] == slots(where={"method": "a"})["a"]
    assert len(set(slots().values())) == 3


def test_lines_hold_means_and_intervals():
    rows = [row for n in (10, 2) for row in measured([0.5, 0.7], masks=n, method="a")]
    found = chart(LINE, rows)
    first, second = found.series[0].marks
    assert (first.x, second.x) == (2, 10)
    assert first.mean == pytest.approx(0.6)
    assert first.high - first.mean == pytest.approx(12.706204736432095 * 0.1, rel=1e-6)
    assert (first.count, first.units) == (2, "2 tasks")


def test_points_gather_rows_of_unequal_x():
    rows = [
        {"method": "a", "masks": masks, "bytes_per_task": 10 * masks + task, "accuracy": 0.5}
        for masks in (3, 1)
        for task in range(3)
    ]
    figure = LINE | {"x": "bytes_per_task"}
    assert len(chart(figure, rows).series[0].marks) == 6
    marks = chart(figure | {"points": ["masks"]}, rows).series[0].marks
    assert [mark.x for mark in marks] == [11, 31]
    assert marks[0].where == "11 B · masks 1"


def test_logarithmic_axis():
    rows = [row for n in (1, 1000) for row in measured([0.5], masks=n, method="a")]
    found = chart(LINE | {"log_x": True}, rows)
    assert found.x.log
    assert 0 < found.x.low < 1
    with pytest.raises(
        InputError, match=r"figures\[0\]: log_x needs values above 0, but masks is 0"
    ):
        chart(LINE | {"log_x": True}, measured([0.5], masks=0, method="a"))


def test_frontier_is_what_no_cheaper_mean_reaches():
    points = {("a", 1): 0.5, ("a", 2): 0.7, ("b", 1): 0.6, ("b", 3): 0.65, ("c", 1): 0.9}
    rows = [{"method": m, "masks": x, "accuracy": y} for (m, x), y in points.items()]
    figure = LINE | {"frontier": True}
    assert chart(figure | {"ours": ["a", "b"]}, rows).frontier == ((1, 0.6), (2, 0.7))
    assert chart(figure, rows).frontier == ((1, 0.9),)
    assert chart(LINE, rows).frontier == ()


def test_bars_start_at_zero():
    rows = measured([0.8], masks=5, method="a") + measured([0.9], masks=3, method="b")
    found = chart(BOX | {"kind": "bar"}, rows)
    assert found.y.low == 0
    assert [(mark.where, mark.mean) for s in found.series for mark in s.marks] == [
        ("5", 0.8),
        ("3", 0.9),
    ]


def test_heat_map_cells():
    rows = [{"masks": 10, "sparsity": 0.9, "p_value": 0.04, "difference": -1.2}]
    rows += [{"masks": 2, "sparsity": 0.8, "p_value": 0.0004, "difference": 3.1}]
    figure = {"kind": "heatmap", "x": "masks", "y": "sparsity", "value": "p_value"}
    found = chart(figure | {"text": "difference"}, rows)
    assert (found.x.labels, found.y.labels) == (("2", "10"), ("0.8", "0.9"))
    assert found.values == ((0.0004, None), (None, 0.04))
    assert found.texts == (("+3.1", ""), ("", "−1.2"))
    assert found.scale == "probability"
    assert [notability(p) for p in (0.05, 0.049, 0.005, 0.0005)] == [0, 1, 2, 3]


def test_heat_map_tests_two_groups_of_rows():
    groups = {"one": [0.5, 0.52, 0.49], "two": [0.6, 0.63, 0.61]}
    rows = [
        row
        for order, values in groups.items()
        for row in measured(values, masks=3, sparsity=0.9, order=order)
    ]
    figure = {
        "kind": "heatmap", "x": "masks", "y": "sparsity", "value": "p_value", "text": "difference",
        "compare": {"by": "order", "of": "accuracy"},
    }  # fmt: skip
    found = chart(figure, rows)
    expected = welch(groups["one"], groups["two"])
    assert found.values == ((pytest.approx(expected.p_value),),)
    assert found.texts == (("+11.0",),)
    with pytest.raises(InputError, match="compare needs two values of 'order', rows have one only"):
        chart(figure, rows[:3])


@pytest.mark.parametrize(
    ("values", "scale"),
    [([0.1, 0.4], "sequential"), ([-0.1, 0.4], "diverging"), ([0.2], "sequential")],
)
def test_heat_map_scale(values, scale):
    rows = [{"masks": i, "layer": "fc1", "gain": value} for i, value in enumerate(values)]
    found = chart({"kind": "heatmap", "x": "masks", "y": "layer", "value": "gain"}, rows)
    assert found.scale == scale
    assert found.low < found.high


def test_truth_values_are_shares():
    rows = [{"method": "a", "masks": 3, "found": value} for value in (True, True, False, True)]
    found = chart(BOX | {"kind": "bar", "y": "found"}, rows)
    assert found.series[0].marks[0].mean == 0.75
    assert found.quantity.text(0.75) == "75.0%"
