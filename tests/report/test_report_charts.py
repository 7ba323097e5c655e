"""What is drawn: the record's numbers, in their natural order. How it looks was judged by eye."""

import json
import statistics

import pytest
import samples
import vl_convert

from impresslearn.errors import InputError
from impresslearn.report import parse_record
from impresslearn.report.charts import charts_of, comparison_chart
from impresslearn.report.charts.grouped import frontier
from impresslearn.report.charts.scales import value_scale
from impresslearn.report.charts.theme import SERIES, slots_of
from impresslearn.report.page import VEGA_LITE
from impresslearn.report.quantities import FRACTION, NUMBER

BOX = {"kind": "box", "x": "masks", "y": "accuracy", "group": "method"}
LINE = BOX | {"kind": "line"}
BAR = BOX | {"kind": "bar"}


def chart(figure, rows):
    """The specification of a figure."""
    record = samples.HEAD | {"target": "t", "title": "t", "rows": rows, "tables": []}
    (found,) = charts_of(parse_record(record | {"figures": [figure]}))
    return found.to_dict()


def measured(values, **keys):
    return [{"accuracy": value, **keys, "task": f"task-{i}"} for i, value in enumerate(values)]


def marks(spec, kind):
    """The data of the first layer of a mark."""
    layer = next(each for each in spec["layer"] if each["mark"]["type"] == kind)
    return spec["datasets"][layer.get("data", spec.get("data"))["name"]]


def channel(spec, name):
    return next(each["encoding"][name] for each in spec["layer"] if name in each["encoding"])


def test_boxes_hold_the_quartiles_and_whiskers_the_extremes():
    values = [0.1 + 0.03 * i for i in range(20)]
    (box,) = marks(chart(BOX, measured(values, masks=5, method="a")), "bar")
    expected = statistics.quantiles(values, method="inclusive")
    assert [box["first"], box["median"], box["third"]] == pytest.approx(expected)
    assert (box["low"], box["high"]) == pytest.approx((values[0], values[-1]))
    assert (box["mean"], box["rows"]) == (pytest.approx(statistics.fmean(values)), 20)


def test_few_values_are_points():
    spec = chart(BOX, measured([0.1, 0.2, 0.5], masks=5, method="a"))
    assert {layer["mark"]["type"] for layer in spec["layer"]} == {"tick", "circle"}
    assert [point["value"] for point in marks(spec, "circle")] == [0.1, 0.2, 0.5]
    assert "points: single results" in spec["title"]["subtitle"][0]


def test_values_of_x_are_in_their_order():
    rows = [row for n in (100, 5, 20) for row in measured([0.5, 0.6], masks=n, method="a")]
    assert channel(chart(BOX, rows), "x")["scale"]["domain"] == ["5", "20", "100"]
    rows = [row for n in ("fc2", "fc10", "head") for row in measured([0.5], layer=n)]
    spec = chart({"kind": "bar", "x": "layer", "y": "accuracy"}, rows)
    assert channel(spec, "x")["scale"]["domain"] == ["fc2", "fc10", "head"]
    close = [row for n in (0.123456, 0.123457) for row in measured([0.5], masks=n, method="a")]
    assert len(channel(chart(BOX, close), "x")["scale"]["domain"]) == 2


def test_places_in_a_stream_have_their_task_s_name():
    rows = [{"place": i + 1, "task": f"digits {i}", "learned": 1, "accuracy": 0.5} for i in (0, 1)]
    heat = {"kind": "heatmap", "x": "place", "y": "learned", "value": "accuracy"}
    assert channel(chart(heat, rows), "x")["scale"]["domain"] == ["digits 0", "digits 1"]
    rows.append(rows[0] | {"task": "another order"})
    assert channel(chart(heat, rows), "x")["scale"]["domain"] == ["1", "2"]


def test_a_method_at_one_position_leaves_no_gaps_at_the_others():
    rows = measured([0.1, 0.2], masks=1, method="X")
    for masks in (5, 10):
        for method in ("a", "b"):
            rows += measured([0.5, 0.6], masks=masks, method=method)
    found = {(m["group"], m["x"]): m["offset"] for m in marks(chart(BAR, rows), "bar")}
    assert found["X", "1"] == 0
    assert found["a", "5"] == -found["b", "5"] < 0
    crowded = marks(charts_of(parse_record(samples.crowded()))[2].to_dict(), "bar")
    assert len({(mark["x"], mark["offset"]) for mark in crowded}) == 96


def test_a_reference_is_drawn_across_and_not_inside():
    (found,) = charts_of(parse_record(samples.comparison()))
    spec = found.to_dict()
    rows = [row for row in samples.comparison()["rows"] if row["sparsity"] == 0.9]
    values = [row["accuracy"] for row in rows if row["method"] == "supsup"]
    shown = channel(spec, "color")["scale"]["domain"]
    assert shown == ["X", "heterogeneous", "homogeneous", "GN", "random", "supsup"]
    (reference,) = marks(spec, "rect")
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    assert reference["mean"] == pytest.approx(1 - mean)  # the axis is one of errors
    assert reference["low"] == pytest.approx(1 - mean + deviation)
    assert "supsup" not in {mark["group"] for mark in marks(spec, "bar")}


@pytest.mark.parametrize("where", [{}, {"sparsity": 0.9}])
def test_a_reference_needs_neither_x_nor_the_filtered_key(where):
    rows = measured([0.5], masks=3, method="a", sparsity=0.9) + measured([0.9], method="supsup")
    spec = chart(BOX | {"where": where, "reference": {"method": "supsup"}}, rows)
    assert [each["group"] for each in marks(spec, "rect")] == ["supsup"]
    assert {each["group"] for each in marks(spec, "circle")} == {"a"}


def test_where_takes_one_value_or_several():
    rows = [row for s in (0.8, 0.9, 0.95) for row in measured([0.5], masks=3, sparsity=s)]
    for wanted, count in ((0.9, 1), ([0.8, 0.9], 2)):
        found = chart({**BOX, "group": None, "where": {"sparsity": wanted}}, rows)
        assert marks(found, "circle")[0]["rows"] == count


def test_a_method_has_one_colour_in_all_figures():
    def colours(**more):
        rows = [row for m in ("b", "a", "supsup") for row in measured([0.5], seed=0, method=m)]
        scale = channel(chart({**BOX, "x": "seed", **more}, rows), "color")["scale"]
        return dict(zip(scale["domain"], (each["expr"] for each in scale["range"]), strict=True))

    assert colours()["a"] == colours(where={"method": "a"})["a"]
    assert len(set(colours().values())) == 3
    slots = slots_of(["b", "supsup", "heterogeneous", *map(str, range(20))])
    assert len(set(slots.values())) == len(slots)
    assert (slots["heterogeneous"], slots["supsup"]) == (0, 7)
    assert len(set(map(tuple, SERIES))) == len(SERIES)


def test_lines_hold_means_and_intervals():
    rows = [row for n in (10, 2) for row in measured([0.5, 0.7], masks=n, method="a")]
    first, second = sorted(marks(chart(LINE, rows), "line"), key=lambda mark: mark["x"])
    assert (first["x"], second["x"], first["rows"]) == (2, 10, 2)
    assert first["mean"] == pytest.approx(0.6)
    assert first["low"] == 0  # an interval ends where accuracies do
    assert first["interval"] == "60.0 ± 127.1%"


def test_points_gather_rows_of_unequal_x_and_are_not_joined():
    rows = [
        {"method": "a", "masks": masks, "bytes_per_task": 10 * masks + task, "accuracy": 0.5}
        for masks in (3, 1)
        for task in range(3)
    ]
    figure = LINE | {"x": "bytes_per_task"}
    assert len(marks(chart(figure, rows), "line")) == 6
    spec = chart(figure | {"points": ["masks"]}, rows)
    assert sorted(mark["x"] for mark in marks(spec, "point")) == [11, 31]
    assert marks(spec, "point")[0]["at"] == "masks 3"
    assert "line" not in {layer["mark"]["type"] for layer in spec["layer"]}


def test_logarithmic_axis():
    rows = [row for n in (1, 1000) for row in measured([0.5], masks=n, method="a")]
    assert channel(chart(LINE | {"log_x": True}, rows), "x")["scale"]["type"] == "log"
    with pytest.raises(InputError, match=r"figures\[0\]: log_x needs .* above 0, but masks is 0"):
        chart(LINE | {"log_x": True}, measured([0.5], masks=0, method="a"))


def test_frontier_is_what_no_cheaper_mean_reaches():
    points = {("a", 1): 0.5, ("a", 2): 0.7, ("b", 1): 0.6, ("b", 3): 0.65, ("c", 1): 0.9}
    found = frontier([{"group": m, "x": x, "mean": y} for (m, x), y in points.items() if m != "c"])
    assert found == [(1, 0.6), (2, 0.7)]
    rows = [{"method": m, "masks": x, "accuracy": y} for (m, x), y in points.items()]
    for ours, best in ((["a", "b"], [1, 2]), ([], [1])):
        spec = chart(LINE | {"frontier": True, "points": ["masks"], "ours": ours}, rows)
        assert [step["x"] for step in marks(spec, "line")] == best


def test_axes():
    near = value_scale([0.5, 0.99], [], FRACTION)
    assert near.errors
    assert near.place(0.9) == pytest.approx(0.1)
    assert 0 < near.place(1.0) < 0.02  # nothing is without error on a logarithmic axis
    assert not value_scale([0.91, 0.93], [], FRACTION).errors
    assert not value_scale([0.3, 0.99], [], FRACTION, from_zero=True).errors
    assert value_scale([0.5, 0.6], [-9, 9], NUMBER).high < 1  # an interval does not dwarf the means
    assert value_scale([0.5, 0.6], [-9, 9], NUMBER, capped=False).place(-8) == -8


def test_bars_start_at_zero():
    rows = measured([0.8], masks=5, method="a") + measured([0.9], masks=3, method="b")
    spec = chart(BAR, rows)
    assert channel(spec, "y")["scale"]["zero"]
    assert {mark["x"]: mark["mean"] for mark in marks(spec, "bar")} == {"3": 0.9, "5": 0.8}


def test_heat_map_cells_have_their_numbers():
    rows = [{"masks": 10, "sparsity": 0.9, "p_value": 0.04, "difference": -1.2}]
    rows += [{"masks": 2, "sparsity": 0.8, "p_value": 0.0004, "difference": 3.1}]
    figure = {"kind": "heatmap", "x": "masks", "y": "sparsity", "value": "p_value"}
    spec = chart(figure | {"text": "difference"}, rows)
    cells = {(c["x"], c["y"]): (c["text"], c["below"]) for c in marks(spec, "rect")}
    assert cells == {("10", "0.9"): ("0.040", "−1.2"), ("2", "0.8"): ("< 0.001", "+3.1")}
    assert channel(spec, "y")["scale"]["domain"] == ["0.9", "0.8"]  # numbers grow upwards
    assert channel(spec, "color")["scale"]["domain"] == [0.001, 0.01, 0.05]


@pytest.mark.parametrize(
    ("values", "domain"),
    [([0.1, 0.4], [0.1, 0.4]), ([-0.1, 0.4], [-0.4, 0, 0.4]), ([0.2], [0, 0.2]), ([0], [-1, 0])],
)
def test_heat_map_scale(values, domain):
    rows = [{"masks": i, "layer": "fc1", "gain": value} for i, value in enumerate(values)]
    spec = chart({"kind": "heatmap", "x": "masks", "y": "layer", "value": "gain"}, rows)
    assert channel(spec, "color")["scale"]["domain"] == pytest.approx(domain)


def test_truth_values_are_shares():
    rows = [{"method": "a", "masks": 3, "found": value} for value in (True, True, False, True)]
    (mark,) = marks(chart(BAR | {"y": "found"}, rows), "bar")
    assert (mark["mean"], mark["average"]) == (0.75, "75.0%")


@pytest.mark.parametrize("make", [*samples.ALL, samples.hostile])
def test_every_chart_is_one_that_vega_lite_takes_in_light_and_dark(make):
    for each in charts_of(parse_record(make())):
        spec = each.to_dict()
        pictures = []
        for dark in (False, True):
            (param,) = (param for param in spec["params"] if param["name"] == "dark")
            param["value"] = dark
            pictures.append(vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE))
        assert "#1d2129" in pictures[0]
        assert "#e8eaed" in pictures[1]
        assert "<script" not in pictures[0] + pictures[1]
        assert "NaN" not in pictures[0]


def test_methods_side_by_side():
    rows = [
        {
            "method": m,
            "task": f"t{t}",
            "learned": n,
            "accuracy": 0.9 - fall * (n - t),
            "bytes": size,
        }
        for m, fall, size in (("ours", 0, 60), ("theirs", 0.1, 4200))
        for n in range(4)
        for t in range(3)
    ]
    rows[0]["accuracy"] = float("nan")
    spec = comparison_chart(rows).to_dict()
    progress, cost = spec["hconcat"]
    assert [progress["layer"][0]["mark"]["type"], len(cost["layer"])] == ["line", 2]
    data = spec["datasets"][progress["data"]["name"]]
    theirs = {mark["x"]: mark["mean"] for mark in data if mark["group"] == "theirs"}
    assert theirs == pytest.approx({1: 0.2, 2: 0.25, 3: 0.3})  # errors
    unknown = [row | {"bytes": None} for row in rows if row["method"] == "ours"]
    assert len(comparison_chart(unknown).to_dict()["hconcat"]) == 1
    with pytest.raises(InputError, match="no row holds"):
        comparison_chart(rows[:1])
