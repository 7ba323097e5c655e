"""Result records: whatever is wrong is named in one line, with file and place, before drawing."""

import copy
import json
import os

import pytest
import samples

from impresslearn.errors import InputError
from impresslearn.report import parse_record, read_record, read_records, write_report
from impresslearn.report.results import KEYS

GOOD = samples.comparison()
FIGURE = {"kind": "box", "x": "masks", "y": "accuracy"}
HEAT = {"kind": "heatmap", "x": "masks", "y": "sparsity", "value": "accuracy"}
WRONG = [
    (("format",), 2, "format must be 1, got 2"),
    (("format",), True, "format must be 1"),
    (("target",), "../evil", "target must be a plain name"),
    (("scale",), "huge", "scale must be one of 'smoke', 'small', 'paper', got 'huge'"),
    (("title",), 3, "title must be a text, got 3"),
    (("seeds",), [0, "1"], "seeds[1] must be an integer, got '1'"),
    (("settings",), [], "settings must be a mapping, got list"),
    (("settings", "lr"), float("nan"), "settings.lr must be a plain, finite value, got nan"),
    (("versions", "x"), {"y": [1, object]}, "versions.x.y[1] must be a plain, finite value"),
    (("seconds",), -1, "seconds must be a number of at least 0, got -1"),
    (("job_seconds",), "9", "job_seconds must be a number of at least 0, got '9'"),
    (("rows",), [], "rows must be a list of at least one row"),
    (("rows",), {}, "rows must be a list of at least one row"),
    (("rows", 4), {}, "rows[4] must be a mapping with entries"),
    (("rows", 4), "row", "rows[4] must be a mapping with entries, got 'row'"),
    (("rows", 4, "accuracy"), float("nan"), "rows[4].accuracy must be a text, a finite number"),
    (("rows", 4, "accuracy"), 10**400, "rows[4].accuracy must be a text, a finite number"),
    (("rows", 4, "accuracy"), 91.2, "rows[4].accuracy must be a fraction in [0, 1], got 91.2"),
    (("rows", 4, "accuracy"), "0.9", "rows[4].accuracy must be a number as in rows[0], got '0.9'"),
    (("rows", 4, "bytes_per_task"), -1, "rows[4].bytes_per_task must be a number of at least 0"),
    (("rows", 4, "p_value"), 1.5, "rows[4].p_value must be a probability in [0, 1], got 1.5"),
    (("rows", 4, "difference"), 170, "rows[4].difference must be a difference in percentage"),
    (("rows", 4, "method"), 3, "rows[4].method must be a text as in rows[0], got 3"),
    (("rows", 4, "x"), [1], "rows[4].x must be a text, a finite number or a truth value, got [1]"),
    (("figures",), "none", "figures must be a list, got 'none'"),
    (("figures", 0), [], "figures[0] must be a mapping, got list"),
    (("figures", 0), {"kind": "pie"}, "figures[0].kind must be one of 'box', 'line', 'bar', 'heat"),
    (("figures", 0), {"x": "masks"}, "figures[0].kind must be one of"),
    (("figures", 0), {"kind": "box", "x": "masks"}, "figures[0] lacks 'y'"),
    (("figures", 0), FIGURE | {"colour": 1}, "figures[0] has 'colour', but a box figure takes 'x'"),
    (("figures", 0), FIGURE | {"x": 1}, "figures[0].x must be a text, got 1"),
    (("figures", 0), FIGURE | {"x": "maskz"}, "figures[0].x names 'maskz', which no row has; rows"),
    (("figures", 0), FIGURE | {"y": "method"}, "figures[0].y names 'method', which is no number"),
    (("figures", 0), FIGURE | {"group": "way"}, "figures[0].group names 'way'"),
    (("figures", 0), FIGURE | {"where": {"way": 1}}, "names 'way', which no row has"),
    (("figures", 0), FIGURE | {"where": 0.9}, "figures[0].where must be a mapping, got 0.9"),
    (("figures", 0), FIGURE | {"where": {"masks": None}}, "figures[0].where.masks must be a text"),
    (("figures", 0), FIGURE | {"kind": "line", "log_x": 1}, "figures[0].log_x must be true"),
    (("figures", 0), HEAT | {"text": "p"}, "figures[0].text names 'p'"),
    (("figures", 0), HEAT | {"compare": "order"}, "figures[0].compare must be {'by': key, 'of'"),
    (("figures", 0), HEAT | {"compare": {"by": "order", "of": "accuracy"}}, "compare.by names"),
    (("tables", 0), {"title": "t"}, "tables[0] lacks 'columns', 'values'"),
    (("tables", 0), {"columns": [], "values": []}, "tables[0] needs columns and values"),
    (("tables", 0), {"columns": ["way"], "values": ["accuracy"]}, "names 'way'"),
    (("tables", 0), {"columns": ["method"], "values": ["task"]}, "'task', which is no number"),
    (("tables", 0), {"rows_verbatim": [[1]]}, "tables[0] lacks 'header'"),
    (("tables", 0), {"header": ["a"], "rows_verbatim": [[1], [1, 2]]}, "[1] must have 1 cells"),
    (("tables", 0), {"header": ["a"], "rows_verbatim": [[{}]]}, "rows_verbatim[0][0] must be a"),
]  # fmt: skip


def changed(place, value):
    record = copy.deepcopy(GOOD)
    part = record
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return record


def test_accepts_all_samples():
    for make in samples.ALL:
        parse_record(make())


@pytest.mark.parametrize("key", KEYS)
def test_names_what_is_missing(key):
    record = {name: value for name, value in GOOD.items() if name != key}
    with pytest.raises(InputError, match=f"the record lacks '{key}'"):
        parse_record(record)


@pytest.mark.parametrize(("place", "value", "message"), WRONG)
def test_names_what_is_wrong(place, value, message):
    with pytest.raises(InputError) as caught:
        parse_record(changed(place, value))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_unknown_entries_are_no_typos_passed_over():
    with pytest.raises(InputError, match="the record has 'figuers'"):
        parse_record(GOOD | {"figuers": []})


def test_an_empty_entry_is_none():
    record = changed(("rows", 4, "accuracy"), None)
    assert "accuracy" not in parse_record(record).rows[4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[]", "the record must be a mapping, got list"),
        (b"[" * 100_000, "is no JSON"),
        (json.dumps(GOOD | {"target": "other"}).encode(), "target must be the file's name 'here'"),
        (
            json.dumps(GOOD | {"target": "here", "seconds": float("inf")}).encode(),
            "seconds must be",
        ),
    ],
)
def test_names_the_file(tmp_path, content, message):
    (tmp_path / "here.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_records(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'here.json'}: ")
    assert message in str(caught.value)


def test_a_directory_of_records(tmp_path):
    with pytest.raises(InputError, match="has no result records"):
        read_records(tmp_path)
    with pytest.raises(InputError, match="there is no"):
        read_records(tmp_path / "nowhere")
    samples.write(tmp_path, samples.overlap(), samples.comparison())
    (tmp_path / "cache").mkdir()
    (tmp_path / ".hidden.json").write_text("{")
    assert [record.target for record in read_records(tmp_path)] == ["overlap", "permuted-mnist"]
    assert [r.target for r in read_records(tmp_path / "overlap.json")] == ["overlap"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(tmp_path):
    samples.write(tmp_path, GOOD)
    path = tmp_path / "permuted-mnist.json"
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        read_record(path)


@pytest.mark.parametrize(
    ("entry", "shown", "message"),
    [
        (
            "figures",
            FIGURE | {"where": {"sparsity": 0.1}},
            r"figures\[0\]: no row has masks and acc",
        ),
        ("figures", FIGURE | {"reference": {"method": "none"}}, r"figures\[0\]: reference: no row"),
        ("tables", {"columns": ["method"], "values": ["accuracy"], "where": {"seed": 9}}, "tables"),
    ],
)
def test_nothing_to_show_is_said_before_anything_is_written(tmp_path, entry, shown, message):
    record = parse_record(GOOD | {entry: [shown]})
    with pytest.raises(InputError, match=f"permuted-mnist: {message}"):
        write_report([record], tmp_path / "report.html")
    assert not list(tmp_path.iterdir())
