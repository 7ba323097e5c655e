"""Both renderers show the chart's numbers; names in them are no markup."""

import json
import sys
from xml.etree import ElementTree

import pytest
import samples

from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.report import (
    markdown_of,
    parse_record,
    read_records,
    write_csv,
    write_figures,
    write_report,
)
from impresslearn.report.charts import charts_of
from impresslearn.report.interactive import draw
from impresslearn.report.palette import DARK, LIGHT

EVIL = "</script><script>alert(1)</script><b>$x_{1}$&"


def charts(make):
    return charts_of(parse_record(make()))


def test_boxes_in_plotly():
    (chart,) = charts(samples.comparison)
    figure = draw(chart)
    boxes = [trace for trace in figure.data if trace.type == "box"]
    assert [trace.name for trace in boxes] == [series.name for series in chart.series]
    assert list(boxes[1].median) == [box.quartiles[1] for box in chart.series[1].boxes]
    assert list(boxes[1].x) == [box.x for box in chart.series[1].boxes]
    assert list(figure.layout.xaxis.ticktext) == ["5", "10", "30", "100", "240"]
    assert figure.layout.xaxis.title.text == "basis masks N"
    (line,) = [trace for trace in figure.data if (trace.name or "").startswith("supsup")]
    assert list(line.y) == [chart.references[0].mean] * 2


def test_lines_in_plotly():
    (chart,) = charts(samples.frontier)
    figure = draw(chart)
    assert figure.layout.xaxis.type == "log"
    frontier, first = figure.data[:2]
    assert list(zip(frontier.x, frontier.y, strict=True)) == list(chart.frontier)
    assert list(first.y) == [mark.mean for mark in chart.series[0].marks]
    assert first.error_y.array[0] == pytest.approx(
        chart.series[0].marks[0].high - chart.series[0].marks[0].mean
    )


def test_bars_in_plotly():
    grouped, plain = map(draw, charts(samples.overlap))
    assert [trace.name for trace in grouped.data] == ["heterogeneous", "homogeneous", "random"]
    assert len(grouped.data[0].y) == 9
    assert grouped.layout.xaxis.tickangle == -45
    assert not plain.layout.showlegend


def test_heat_maps_in_plotly():
    tested, recorded, accuracy, difference = charts(samples.task_order)
    (heat,) = draw(tested).data
    assert set(map(int, (z for line in heat.z for z in line))) <= {0, 1, 2, 3}
    assert len(draw(tested).layout.annotations) == 25
    assert "p value" in heat.customdata[0][0][1]
    assert draw(recorded).data[0].zmax == 3.5
    assert draw(accuracy).data[0].z[0][0] == accuracy.values[0][0]
    (heat,) = draw(difference).data
    assert heat.zmin == -heat.zmax


@pytest.mark.parametrize("make", samples.ALL)
def test_dark_and_light_differ_in_colours_only(make):
    for chart in charts(make):
        light, dark = (json.loads(draw(chart, p).to_json()) for p in (LIGHT, DARK))
        assert [t["type"] for t in light["data"]] == [t["type"] for t in dark["data"]]
        assert light["layout"]["xaxis"]["range"] == dark["layout"]["xaxis"]["range"]
        assert light["layout"]["font"]["color"] != dark["layout"]["font"]["color"]


CONTROLS = "a\x1b[2J\x00\x9b\u202e\u2028\udcff"


def hostile():
    rows = [
        {"method": EVIL, EVIL: EVIL, "masks": 3, "accuracy": 0.5, "task": EVIL},
        {"method": "supsup" + EVIL, EVIL: EVIL, "masks": 3, "accuracy": 0.6, "task": EVIL},
    ]
    common = {"title": EVIL, "caption": EVIL, "x_label": EVIL, "y_label": EVIL, "x": EVIL}
    lines = {**common, "y": "accuracy", "group": "method"}
    figures = [
        {"kind": "box", **lines, "reference": {"method": "supsup" + EVIL}},
        {"kind": "line", **lines, "frontier": True},
        {"kind": "bar", **lines},
        {"kind": "heatmap", **common, "y": "method", "value": "accuracy", "text": "task"},
    ]
    tables = [
        {"title": EVIL, "columns": ["method", EVIL], "values": ["accuracy"]},
        {"title": EVIL, "header": [EVIL], "rows_verbatim": [[EVIL]]},
    ]
    words = dict.fromkeys(("title", "claim", "data", "finding"), EVIL)
    return samples.HEAD | words | {
        "target": "hostile", "rows": rows, "figures": figures, "tables": tables,
        "settings": {EVIL: {EVIL: [EVIL]}}, "versions": {EVIL: EVIL}, "hardware": {EVIL: EVIL},
    }  # fmt: skip


def test_names_are_no_markup_for_plotly():
    for chart in charts(hostile):
        text = json.dumps(json.loads(draw(chart).to_json()), ensure_ascii=False)
        assert "<script" not in text.replace("&lt;", "")
        assert "&lt;script&gt;" in text
        assert "$" not in text


def test_what_steers_a_terminal_is_written_out_in_every_form(tmp_path):
    pytest.importorskip("matplotlib")
    raw = json.dumps(hostile()).replace(json.dumps(EVIL)[1:-1], json.dumps(CONTROLS)[1:-1])
    (tmp_path / "hostile.json").write_text(raw, encoding="utf-8")
    records = read_records(tmp_path)
    write_report(records, tmp_path / "report.html")
    written = [*write_csv(records, tmp_path), *write_figures(records, tmp_path)]
    texts = [path.read_text(encoding="utf-8") for path in [*written, tmp_path / "report.html"]]
    for path in written[1:]:
        ElementTree.parse(path)
    unwanted = set(CONTROLS) - set("a[2J")
    for text in (*texts, *map(markdown_of, records)):
        assert not unwanted & set(text)
    assert r"a\x1b[2J\x00\x9b\u202e" in texts[0]  # the CSV file


@pytest.fixture
def no_matplotlib(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_says_what_to_install(no_matplotlib, tmp_path):
    with pytest.raises(MissingDependencyError, match=r"pip install 'impresslearn\[plots\]'"):
        write_figures([parse_record(samples.overlap())], tmp_path)


def test_static_figures_are_files_and_the_same_each_time(tmp_path):
    pytest.importorskip("matplotlib")
    records = [parse_record(samples.overlap()), parse_record(hostile())]
    paths = write_figures(records, tmp_path / "a")
    assert [path.name for path in paths][:2] == [
        "overlap-1-overlap-by-layer.svg",
        "overlap-2-overlap-by-kind.svg",
    ]
    again = write_figures(records, tmp_path / "b")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("<?xml")
        assert "<script" not in text
        assert not path.stem.strip("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_static_figures_of_the_other_kinds(tmp_path):
    pytest.importorskip("matplotlib")
    records = [parse_record(make()) for make in (samples.frontier, samples.task_order)]
    for path in write_figures(records, tmp_path, "png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"must end in \.svg, \.png, \.pdf"):
        write_figures(records, tmp_path, "gif")
