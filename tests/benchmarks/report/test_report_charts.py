"""What is drawn: the record's numbers, in their natural order. How it looks was judged by eye."""

import json
import statistics
from math import nan

import pytest
import samples
import vl_convert
from benchmarks.report.charts import VEGA_LITE, charts_of, comparison_chart

from benchmarks.report import parse_record
from impresslearn.errors import InputError

BOX = {"kind": "box", "x": "masks", "y": "accuracy", "group": "method"}
LINE = BOX | {"kind": "line"}
BAR = BOX | {"kind": "bar"}
HEAT = {"kind": "heatmap", "x": "masks", "y": "sparsity", "value": "gain"}


def drawn(record):
    """The specifications of a record's figures."""
    return [each.to_dict() for each in charts_of(parse_record(record))]


def chart(figure, rows):
    """The specification of a figure."""
    (spec,) = drawn(samples.record("t", rows, [figure]))
    return spec


def valued(*values, masks=5, method="a", **keys):
    """A row a value, each a task's."""
    return [
        {"accuracy": value, "masks": masks, "method": method, "task": f"task-{place}", **keys}
        for place, value in enumerate(values)
    ]


def each_with(key, values, *accuracies):
    """Rows of these accuracies for every value of a key."""
    return [row for value in values for row in valued(*accuracies, **{key: value})]


def marks(spec, kind):
    """The data of the first layer of a mark."""
    layer = next(each for each in spec["layer"] if each["mark"]["type"] == kind)
    return spec["datasets"][layer.get("data", spec.get("data"))["name"]]


def scale(spec, name):
    """The scale of a channel."""
    found = (each["encoding"][name] for each in spec["layer"] if name in each["encoding"])
    return next(found)["scale"]


TWENTY = [0.1 + 0.03 * place for place in range(20)]
FIRST, MEDIAN, THIRD = statistics.quantiles(TWENTY, method="inclusive")
QUARTILES = {"first": FIRST, "median": MEDIAN, "third": THIRD, "low": 0.1, "high": 0.67}
UNEQUAL = [
    {**row, "bytes": 10 * masks + place}
    for masks in (3, 1)
    for place, row in enumerate(valued(0.5, 0.5, 0.5, masks=masks))
]
MEANS = {("a", 1): 0.5, ("a", 2): 0.7, ("b", 1): 0.6, ("b", 3): 0.65, ("c", 1): 0.8}
STEPS = [row for (m, n), mean in MEANS.items() for row in valued(mean, masks=n, method=m)]
FRONTIER = LINE | {"frontier": True, "points": ["masks"], "ours": ["a", "b"]}
TESTED = [
    {"masks": 10, "sparsity": 0.9, "p_value": 0.04, "difference": -1.2},
    {"masks": 2, "sparsity": 0.8, "p_value": 0.0004, "difference": 3.1},
]
TESTS = HEAT | {"value": "p_value", "text": "difference"}
FOUND = [{"method": "a", "masks": 3, "found": value} for value in (True, True, False, True)]


@pytest.mark.parametrize(
    ("figure", "rows", "kind", "expected"),
    [
        (BOX, valued(*TWENTY), "bar", [QUARTILES | {"mean": statistics.fmean(TWENTY), "rows": 20}]),
        (BOX, valued(0.1, 0.2), "circle", [{"value": 0.1}, {"value": 0.2}]),  # few are points
        (BAR | {"y": "found"}, FOUND, "bar", [{"x": "3", "mean": 0.75, "average": "75.0%"}]),
        # an interval ends where accuracies do
        (LINE, valued(0.5, 0.7), "line", [{"x": 5, "low": 0, "interval": "60.0 ± 127.1%"}]),
        (LINE | {"x": "bytes"}, UNEQUAL, "line", [{"x": x} for x in (30, 31, 32, 10, 11, 12)]),
        (
            LINE | {"x": "bytes", "points": ["masks"]},
            UNEQUAL,
            "point",
            [{"x": 31, "at": "masks 3"}, {"x": 11, "at": "masks 1"}],
        ),
        # what no cheaper mean reaches
        (FRONTIER, STEPS, "line", [{"x": 1, "mean": 0.6}, {"x": 2, "mean": 0.7}]),
        (
            TESTS,
            TESTED,
            "rect",
            [
                {"x": "10", "y": "0.9", "text": "0.040", "below": "−1.2"},
                {"x": "2", "y": "0.8", "text": "< 0.001", "below": "+3.1"},
            ],
        ),
    ],
)
def test_marks_hold_the_numbers(figure, rows, kind, expected):
    found = marks(chart(figure, rows), kind)
    shown = [{key: mark[key] for key in some} for mark, some in zip(found, expected, strict=True)]
    assert shown == [pytest.approx(some) for some in expected]


@pytest.mark.parametrize(
    ("figure", "rows", "channel", "expected"),
    [
        (BOX, each_with("masks", [100, 5, 20], 0.5), "x", {"domain": ["5", "20", "100"]}),
        # two values are never one place
        (BOX, each_with("masks", [1.23456, 1.23457], 0.5), "x", {"domain": ["1.23456", "1.23457"]}),
        (LINE | {"log_x": True}, each_with("masks", [1, 1000], 0.5), "x", {"type": "log"}),
        (BAR, valued(0.8) + valued(0.99, masks=3), "y", {"zero": True}),
        (BOX, valued(0.5) + valued(0.99, masks=3), "y", {"type": "log"}),  # of the error
        (TESTS, TESTED, "y", {"domain": ["0.9", "0.8"]}),  # numbers grow upwards
        (TESTS, TESTED, "color", {"domain": [0.001, 0.01, 0.05]}),
        *(
            (HEAT, each_with("gain", values, 0.5), "color", {"domain": domain})
            for values, domain in (
                ([0.1, 0.4], [0.1, 0.4]),
                ([-0.1, 0.4], [-0.4, 0, 0.4]),
                ([0], [-1, 0]),
            )
        ),
    ],
)
def test_axes_and_scales(figure, rows, channel, expected):
    if figure == HEAT:
        rows = [row | {"masks": place, "sparsity": 0.9} for place, row in enumerate(rows)]
    found = scale(chart(figure, rows), channel)
    assert {key: found[key] for key in expected} == expected


def test_points_are_not_joined_and_a_logarithm_knows_no_zero():
    spec = chart(LINE | {"points": ["masks"]}, valued(0.5))
    assert "line" not in {layer["mark"]["type"] for layer in spec["layer"]}
    with pytest.raises(InputError, match=r"figures\[0\]: log_x needs .* above 0, but masks is 0"):
        chart(LINE | {"log_x": True}, valued(0.5, masks=0))


def test_an_interval_does_not_dwarf_the_means():
    rows = [{"masks": n, "method": "a", "gain": n + by} for n in (1, 2) for by in (-9, 9)]
    drawn = marks(chart(LINE | {"y": "gain"}, rows), "line")
    assert all(0 < mark["low"] < mark["high"] < 3 for mark in drawn)


def test_places_in_a_stream_have_their_task_s_name():
    rows = [{"place": i + 1, "task": f"digits {i}", "learned": 1, "accuracy": 0.5} for i in (0, 1)]
    heat = {"kind": "heatmap", "x": "place", "y": "learned", "value": "accuracy"}
    assert scale(chart(heat, rows), "x")["domain"] == ["digits 0", "digits 1"]
    rows.append(rows[0] | {"task": "another order"})
    assert scale(chart(heat, rows), "x")["domain"] == ["1", "2"]


def test_a_method_at_one_position_leaves_no_gaps_at_the_others():
    rows = valued(0.1, masks=1, method="X")
    rows += [row for masks in (5, 10) for row in each_with("method", "abcdefgh", 0.5)]
    found = {(m["group"], m["x"]): m["offset"] for m in marks(chart(BAR, rows), "bar")}
    assert found["X", "1"] == 0
    assert found["a", "5"] == -found["h", "5"] < 0
    assert len({(x, offset) for (_, x), offset in found.items()}) == len(found)


def test_a_reference_is_drawn_across_and_not_inside():
    """It needs neither x nor the key that is filtered by."""
    rows = [row for s in (0.8, 0.9, 0.95) for row in valued(*TWENTY, sparsity=s)]
    rows += [{"method": "supsup", "accuracy": value} for value in (0.96, 0.98)]
    figure = BOX | {"where": {"sparsity": [0.8, 0.9]}, "reference": {"method": "supsup"}}
    spec = chart(figure, rows)
    assert scale(spec, "color")["domain"] == ["a", "supsup"]
    assert [(box["group"], box["rows"]) for box in marks(spec, "bar")] == [("a", 40)]
    (reference,) = marks(spec, "rect")
    assert reference["mean"] == pytest.approx(0.03)  # near 1 the axis is one of errors
    assert reference["low"] == pytest.approx(0.03 + statistics.stdev((0.96, 0.98)))


def test_a_method_has_one_colour_in_all_figures():
    rows = each_with("method", ["b", "a", "supsup", *"01234"], 0.5)

    def colours(**more):
        found = scale(chart(BOX | more, rows), "color")
        return dict(zip(found["domain"], (each["expr"] for each in found["range"]), strict=True))

    assert colours()["a"] == colours(where={"method": "a"})["a"]
    assert len(set(colours().values())) == 8


@pytest.mark.parametrize("make", samples.ALL)
def test_every_chart_is_one_that_vega_lite_takes_in_light_and_dark(make):
    for spec in drawn(make()):
        (dark,) = (param for param in spec["params"] if param["name"] == "dark")
        for dark["value"], ink in ((False, "#1d2129"), (True, "#e8eaed")):
            picture = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE)
            assert ink in picture
            assert "<script" not in picture
            assert "NaN" not in picture


def test_methods_side_by_side():
    rows = [
        {"method": method, "task": f"t{task}", "learned": learned, "bytes": size}
        | {"accuracy": 0.9 - fall * (learned - task)}
        for method, fall, size in (("ours", 0, 60), ("theirs", 0.1, 4200))
        for learned in range(4)
        for task in range(3)
    ]
    rows[0]["accuracy"] = nan
    spec = comparison_chart(rows).to_dict()
    progress, cost = spec["hconcat"]
    assert [each["mark"]["type"] for each in progress["layer"]] == ["area", "line", "point"]
    assert len(cost["layer"]) == 2
    data = spec["datasets"][progress["data"]["name"]]
    theirs = {mark["x"]: mark["mean"] for mark in data if mark["group"] == "theirs"}
    assert theirs == pytest.approx({1: 0.2, 2: 0.25, 3: 0.3})  # errors
    unknown = [row | {"bytes": None} for row in rows if row["method"] == "ours"]
    assert len(comparison_chart(unknown).to_dict()["hconcat"]) == 1
    with pytest.raises(InputError, match="no row holds"):
        comparison_chart(rows[:1])
