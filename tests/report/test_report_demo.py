"""The demo's page, table and the check of its record."""

import copy
import io

import pytest
from rich.console import Console

from impresslearn.errors import InputError
from impresslearn.report import check_demo_record, tasks_table, write_demo_report
from impresslearn.report.demo import Means, Task, _record
from impresslearn.report.page import charts_of

PLACES = [
    *[(key,) for key in ("tasks", "summary", "settings", "versions", "coefficients")],
    *[("tasks", 3, key) for key in Task.model_fields],
    *[("summary", key) for key in Means.model_fields],
    *[("coefficients", key) for key in ("masks", "layers", "tasks", "values")],
]
WRONG = [
    (("tasks",), [], "tasks "),
    (("tasks", 0, "role"), "old", "tasks[0].role must be 'basis' or 'new', got 'old'"),
    (("tasks", 1, "accuracy"), 93.0, "tasks[1].accuracy must be less than or equal to 1, got 93"),
    (("tasks", 1, "accuracy"), None, "tasks[1].accuracy"),
    (("tasks", 1, "supsup_accuracy"), float("nan"), "tasks[1].supsup_accuracy"),
    (("tasks", 1, "bytes"), -1, "tasks[1].bytes"),
    (("summary", "seconds"), "12", "summary.seconds"),
    (("summary", "seconds"), float("inf"), "summary.seconds"),
    (("settings",), [], "settings must be a valid dictionary, got []"),
    (("coefficients", "masks"), ["a", "a"], "masks and layers must be distinct"),
    (("coefficients", "masks"), ["a"], "shape (3, 1, 3)"),
    (("coefficients", "values", 0, 0, 0), None, "coefficients.values[0][0][0]"),
]


def changed(record, place, value=None, *, remove=False):
    changed_record = copy.deepcopy(record)
    part = changed_record
    for key in place[:-1]:
        part = part[key]
    if remove:
        del part[place[-1]]
    else:
        part[place[-1]] = value
    return changed_record


def printed(record) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(tasks_table(record))
    return console.file.getvalue()


def specs(record):
    return [chart.to_dict() for chart in charts_of(_record(check_demo_record(record)))]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_names_what_is_missing(record, place, tmp_path):
    broken = changed(record, place, remove=True)
    for render in (tasks_table, lambda r: write_demo_report(r, tmp_path / "report.html")):
        with pytest.raises(InputError, match=rf"{place[-1]} is missing$") as caught:
            render(broken)
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("place", "value", "message"), WRONG)
def test_names_what_is_wrong(record, place, value, message):
    with pytest.raises(InputError) as caught:
        check_demo_record(changed(record, place, value))
    assert message in str(caught.value)


def test_baselines_may_be_absent(record, tmp_path):
    for key in Means.model_fields:
        record["summary"][key] = None
    for task in record["tasks"]:
        task["supsup_accuracy"] = None
    record["coefficients"] |= {"tasks": [], "values": []}
    write_demo_report(record, tmp_path / "report.html")
    assert "mean over new tasks" in printed(record)


def test_table_lists_tasks_and_means(record):
    record["tasks"][0]["name"] = "[red]site[/red] *a* &amp;"
    lines = [line.split() for line in printed(record).splitlines()]
    assert ["rotated-90", "basis", "91.0%", "95.0%", "–", "4.2", "kB"] in lines
    assert ["rotated-60", "new", "93.0%", "95.0%", "25.0%", "48", "B"] in lines
    assert ["mean", "over", "new", "tasks", "93.0%", "95.0%", "25.0%", "48", "B"] in lines
    assert "forgetting 0 · a SupSup mask takes 4.2 kB · task inference – · 12 s" in printed(record)
    assert "[red]site[/red] *a* &amp;" in printed(record)


def test_charts_show_every_task_basis_tasks_first(record):
    record["tasks"].reverse()
    record["tasks"][1]["bytes"] = 0
    accuracy, cost, coefficients = specs(record)
    order = ["rotated-90", "rotated-0", "rotated-120", "rotated-60", "rotated-30"]
    assert accuracy["layer"][0]["encoding"]["x"]["scale"]["domain"] == order
    groups = accuracy["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert groups[:2] == ["ImpressLearn, basis task", "ImpressLearn, new task"]
    assert cost["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"
    points = cost["datasets"][cost["data"]["name"]]
    assert {m["x"] for m in points if m["group"] == groups[1]} == {1, 48}
    assert {m["x"] for m in points if m["group"] == "SupSup"} == {4200}
    cells = coefficients["datasets"][coefficients["data"]["name"]]
    assert len(cells) == 3 * 2 * 3
    assert coefficients["facet"]["column"]["sort"] == ["fc1", "fc2", "head"]
    scale = coefficients["spec"]["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == [-1.5, 0, 1.5]


def test_coefficients_of_zero_still_have_a_scale(record):
    record["coefficients"]["values"] = [[[0, 0, 0]] * 2] * 3
    (heat,) = specs(record)[2:]
    low, high = heat["spec"]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert low < high
