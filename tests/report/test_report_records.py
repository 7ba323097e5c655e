"""Records and the demo's results: whatever is wrong is named in one line, before drawing."""

import io
import json

import pytest
import samples
from rich.console import Console
from samples import ABSENT, changed

from impresslearn.errors import InputError
from impresslearn.report import (
    parse_record,
    read_record,
    read_records,
    tasks_table,
    write_demo_report,
    write_report,
)
from impresslearn.report.demo import _record, check_demo_record
from impresslearn.report.page import charts_of

GOOD = samples.comparison()
FIGURE = {"kind": "box", "x": "masks", "y": "accuracy"}
HEAT = {"kind": "heatmap", "x": "masks", "y": "sparsity", "value": "accuracy"}
MEANS = {"columns": ["method"], "values": ["accuracy"]}
PLAIN = "a text, a finite number or a truth value"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("rows",), ABSENT, "record: rows is missing"),
        (("format",), 2, "format must be less than or equal to 1, got 2"),
        (("figuers",), [], "figuers is not known here"),
        (("target",), "../evil", "target "),
        (("settings", "lr"), float("nan"), "settings must hold plain, finite values"),
        (("seconds",), float("inf"), "seconds must be a finite number, got inf"),
        (("rows", 4), {}, "rows[4] must be a mapping with entries"),
        (("rows", 4, "accuracy"), float("nan"), f"rows[4].accuracy must be {PLAIN}, got nan"),
        (("rows", 4, "accuracy"), 10**400, f"rows[4].accuracy must be {PLAIN}"),
        (("rows", 4, "accuracy"), 91.2, "rows[4].accuracy must be a fraction in [0, 1], got 91.2"),
        (("rows", 4, "accuracy"), "0.9", "accuracy must be a number in all rows, got '0.9'"),
        (("rows", 4, "bytes"), -1, "bytes must be a number of at least 0"),
        (("rows", 4, "p_value"), 1.5, "p_value must be a probability in [0, 1], got 1.5"),
        (("rows", 4, "difference"), 170, "difference must be a difference in percentage"),
        (("rows", 0, "method"), 3, "rows[0].method must be a text in all rows, got 3"),
        (("figures", 0), FIGURE | {"log_x": True}, "figures[0] a box figure has no 'log_x'"),
        (("figures", 0), FIGURE | {"kind": "heatmap"}, "figures[0] a heatmap figure needs 'value'"),
        (("figures", 0), FIGURE | {"x": "maskz"}, "x names 'maskz', which no row has"),
        (("figures", 0), FIGURE | {"y": "method"}, "y names 'method', which is no number"),
        (("figures", 0), FIGURE | {"where": {"way": 1}}, "where.way names 'way', which no row has"),
        (("figures", 0), FIGURE | {"where": {"masks": None}}, "where.masks[0] must be a text"),
        (("figures", 0), HEAT | {"text": "p"}, "figures[0]: text names 'p'"),
        (("tables", 0), MEANS | {"values": []}, "tables[0] needs columns and values, or"),
        (("tables", 0), MEANS | {"columns": ["way"]}, "names 'way'"),
        (("tables", 0), MEANS | {"values": ["task"]}, "'task', which is no number"),
        (("tables", 0), {"header": ["a"], "rows_verbatim": [[1], [1, 2]]}, "must have 1 cells"),
        (("tables", 0), {"header": ["a"], "rows_verbatim": [[{}]]}, "rows_verbatim[0][0] must be"),
        # nothing to show
        (
            ("figures",),
            [FIGURE | {"where": {"sparsity": 1}}],
            "mnist: figures[0]: no row has masks",
        ),
        (("figures",), [FIGURE | {"reference": {"method": "y"}}], "figures[0]: reference: no row"),
        (
            ("tables",),
            [MEANS | {"where": {"seed": 9}}],
            "permuted-mnist: tables[0]: no row has acc",
        ),
    ],
)
def test_names_what_is_wrong_before_it_writes(tmp_path, place, value, message):
    with pytest.raises(InputError) as caught:
        write_report([parse_record(changed(GOOD, place, value))], tmp_path / "report.html")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not list(tmp_path.iterdir())


def test_an_empty_entry_is_none():
    record = changed(GOOD, ("rows", 4, "accuracy"), None)
    assert "accuracy" not in parse_record(record).rows[4]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("overlap.json", b"{", "is no JSON"),
        ("overlap.json", b"\xff\xfe", "is no JSON"),
        ("overlap.json", b"[]", "the record must be a valid dictionary"),
        ("overlap.json", b"[" * 100_000, "is no JSON"),
        ("other.json", json.dumps(GOOD).encode(), "target must be the file's name 'other'"),
        ("findings.json", b"{", "is no JSON"),
        ("findings.json", b"[]", "must be a valid dictionary, got []"),
        ("findings.json", b'{"x": {"y": 3}}', "x.y must be a valid string, got 3"),
    ],
)
def test_names_the_file(tmp_path, name, content, message):
    samples.write(tmp_path, samples.overlap())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_records(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert message in str(caught.value)


def test_a_directory_of_records(tmp_path):
    with pytest.raises(InputError, match="has no result records"):
        read_records(tmp_path)
    with pytest.raises(InputError, match="there is no"):
        read_records(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot be read"):
        read_record(tmp_path)
    samples.write(tmp_path, samples.overlap(), GOOD)
    (tmp_path / "cache").mkdir()
    (tmp_path / ".hidden.json").write_text("{")
    assert [record.target for record in read_records(tmp_path)] == ["overlap", "permuted-mnist"]
    assert [r.target for r in read_records(tmp_path / "overlap.json")] == ["overlap"]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("tasks", 3, "bytes"), ABSENT, "tasks[3].bytes is missing"),
        (("summary", "forgetting"), ABSENT, "summary.forgetting is missing"),
        (("tasks", 1, "accuracy"), 93.0, "accuracy must be less than or equal to 1, got 93"),
        (("tasks", 1, "supsup_accuracy"), float("nan"), "tasks[1].supsup_accuracy"),
        (("coefficients", "masks"), ["a", "a"], "masks and layers must be distinct"),
        (("coefficients", "masks"), ["a"], "shape (3, 1, 3)"),
    ],
)
def test_names_what_is_wrong_with_the_demo_s_results(tmp_path, place, value, message):
    broken = changed(samples.demo(), place, value)
    for show in (tasks_table, lambda r: write_demo_report(r, tmp_path / "report.html")):
        with pytest.raises(InputError) as caught:
            show(broken)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def demo_charts(results):
    return [chart.to_dict() for chart in charts_of(_record(check_demo_record(results)))]


def printed(results):
    console = Console(file=io.StringIO(), width=100)
    console.print(tasks_table(results))
    return console.file.getvalue()


def test_the_demo_s_baselines_may_be_absent_and_coefficients_zero(tmp_path):
    results = samples.demo()
    results["summary"] = dict.fromkeys(results["summary"])
    for task in results["tasks"]:
        task["supsup_accuracy"] = None
    results["coefficients"]["values"] = [[[0, 0, 0]] * 2] * 3
    scale = demo_charts(results)[2]["spec"]["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"][0] < scale["domain"][-1]
    results["coefficients"] |= {"tasks": [], "values": []}
    write_demo_report(results, tmp_path / "report.html")
    assert "mean over new tasks" in printed(results)


def test_the_demo_s_table_lists_tasks_and_means():
    shown = printed(changed(samples.demo(), ("tasks", 0, "name"), "[red]site[/red] *a* &amp;"))
    lines = [line.split() for line in shown.splitlines()]
    assert ["rotated-90", "basis", "91.0%", "95.0%", "–", "4.2", "kB"] in lines
    assert ["rotated-60", "new", "93.0%", "95.0%", "25.0%", "48", "B"] in lines
    assert ["mean", "over", "new", "tasks", "93.0%", "95.0%", "25.0%", "48", "B"] in lines
    assert "forgetting 0 · a SupSup mask takes 4.2 kB · task inference – · 12 s" in shown
    assert "[red]site[/red] *a* &amp;" in shown


def test_the_demo_s_charts_show_every_task_basis_tasks_first():
    results = changed(samples.demo(), ("tasks", 3, "bytes"), 0)
    results["tasks"].reverse()
    accuracy, cost, coefficients = demo_charts(results)
    order = ["rotated-90", "rotated-0", "rotated-120", "rotated-60", "rotated-30"]
    assert accuracy["layer"][0]["encoding"]["x"]["scale"]["domain"] == order
    groups = accuracy["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert groups[:2] == ["ImpressLearn, basis task", "ImpressLearn, new task"]
    assert cost["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"
    points = cost["datasets"][cost["data"]["name"]]
    assert {m["x"] for m in points if m["group"] == groups[1]} == {1, 48}
    assert len(coefficients["datasets"][coefficients["data"]["name"]]) == 3 * 2 * 3
    assert coefficients["facet"]["column"]["sort"] == ["fc1", "fc2", "head"]
    scale = coefficients["spec"]["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == [-1.5, 0, 1.5]
