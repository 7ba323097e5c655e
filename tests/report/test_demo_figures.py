"""What the figures show; how they look was judged by eye."""

import pytest

from impresslearn.report.demo_figures import accuracy_figure, bytes_figure, coefficients_figure
from impresslearn.report.palette import DARK


def test_accuracy_has_one_bar_per_task_and_method(record):
    bars = accuracy_figure(record).data
    assert [bar.name for bar in bars] == ["ImpressLearn", "SupSup", "Single mask (X)"]
    assert list(bars[0].y) == [task["accuracy"] for task in record["tasks"]]
    assert list(bars[2].y) == [None, None, 0.25, 0.25, 0.25]


def test_basis_tasks_come_first_and_stand_apart(record):
    record["tasks"].reverse()
    figure = accuracy_figure(record)
    assert list(figure.data[0].customdata)[:2] == ["rotated-90", "rotated-0"]
    assert [note.text for note in figure.layout.annotations] == ["basis tasks", "new tasks"]
    assert figure.layout.shapes[0].x1 == 1.5


def test_heat_map_is_centred_and_keeps_layers_apart(record):
    figure = coefficients_figure(record)
    (heat,) = figure.data
    assert (heat.zmin, heat.zmax) == (-1.5, 1.5)
    assert list(heat.z[0]) == [0.1, 0.4, None, -0.2, 0.5, None, 0.3, -1.5]
    assert list(heat.customdata[2][3]) == ["rotated-120", "rotated-0", "fc2"]
    assert list(figure.layout.xaxis.tickvals) == [0, 1, 3, 4, 6, 7]
    assert [note.text for note in figure.layout.annotations] == ["fc1", "fc2", "head"]


def test_heat_map_of_zeros_still_has_a_scale(record):
    record["coefficients"]["values"] = [[[0, 0, 0]] * 2] * 3
    (heat,) = coefficients_figure(record).data
    assert heat.zmin < 0 < heat.zmax


def test_bytes_are_logarithmic_and_survive_zero(record):
    record["tasks"][2]["bytes"] = 0
    figure = bytes_figure(record, DARK)
    assert figure.layout.yaxis.type == "log"
    assert [list(trace.y) for trace in figure.data] == [[4200, 4200], [1, 48, 48]]
    assert figure.data[1].customdata[0][1] == "0 B"
    assert figure.layout.annotations[0].text == "a SupSup mask: 4.2 kB"


def test_many_labels_are_thinned(record):
    record["tasks"] = [{**record["tasks"][2], "name": f"task-{i}"} for i in range(500)]
    assert len(accuracy_figure(record).layout.xaxis.ticktext) <= 40


@pytest.mark.parametrize("figure", [accuracy_figure, coefficients_figure, bytes_figure])
def test_names_are_no_markup(record, figure):
    record["tasks"][2]["name"] = record["coefficients"]["tasks"][0] = "<b>&"
    text = figure(record).to_json()
    assert "&lt;b&gt;&amp;" in text.replace("\\u003c", "<")
    assert "<b>&" not in text.replace("\\u003c", "<").replace("\\u003e", ">")
