"""Result records: whatever is wrong is named in one line, with file and place, before drawing."""

import copy
import json
import os

import pytest
import samples

from impresslearn.errors import InputError
from impresslearn.report import parse_record, read_record, read_records, write_report
from impresslearn.report.records import Record

KEYS = [name for name, field in Record.model_fields.items() if field.is_required()]

GOOD = samples.comparison()
FIGURE = {"kind": "box", "x": "masks", "y": "accuracy"}
HEAT = {"kind": "heatmap", "x": "masks", "y": "sparsity", "value": "accuracy"}
PLAIN = "a text, a finite number or a truth value"
WRONG = [
    (("format",), 2, "format must be less than or equal to 1, got 2"),
    (("format",), True, "format must be a valid integer, got True"),
    (("target",), "../evil", "target "),
    (("scale",), "huge", "scale must be 'smoke', 'small', 'paper'"),
    (("seeds",), [0, "1"], "seeds[1] must be a valid integer, got '1'"),
    (("settings", "lr"), float("nan"), "settings must hold plain, finite values"),
    (("seconds",), float("inf"), "seconds must be a finite number, got inf"),
    (("rows",), [], "rows "),
    (("rows", 4), {}, "rows[4] must be a mapping with entries"),
    (("rows", 4, "accuracy"), float("nan"), f"rows[4].accuracy must be {PLAIN}, got nan"),
    (("rows", 4, "accuracy"), 10**400, f"rows[4].accuracy must be {PLAIN}"),
    (("rows", 4, "accuracy"), 91.2, "rows[4].accuracy must be a fraction in [0, 1], got 91.2"),
    (("rows", 4, "accuracy"), "0.9", "rows[4].accuracy must be a number in all rows, got '0.9'"),
    (("rows", 4, "bytes_per_task"), -1, "rows[4].bytes_per_task must be a number of at least 0"),
    (("rows", 4, "p_value"), 1.5, "rows[4].p_value must be a probability in [0, 1], got 1.5"),
    (("rows", 4, "difference"), 170, "rows[4].difference must be a difference in percentage"),
    (("rows", 0, "method"), 3, "rows[0].method must be a text in all rows, got 3"),
    (("figures", 0), FIGURE | {"kind": "pie"}, "figures[0].kind must be 'box', 'line', 'bar' or"),
    (("figures", 0), {"x": "masks", "y": "accuracy"}, "figures[0].kind is missing"),
    (("figures", 0), {"kind": "box", "x": "masks"}, "figures[0].y is missing"),
    (("figures", 0), FIGURE | {"colour": 1}, "figures[0].colour is not known here"),
    (("figures", 0), FIGURE | {"log_x": True}, "figures[0] a box figure has no 'log_x'"),
    (("figures", 0), FIGURE | {"kind": "heatmap"}, "figures[0] a heatmap figure needs 'value'"),
    (("figures", 0), FIGURE | {"x": "maskz"}, "figures[0]: x names 'maskz', which no row has"),
    (("figures", 0), FIGURE | {"y": "method"}, "figures[0]: y names 'method', which is no number"),
    (("figures", 0), FIGURE | {"group": "way"}, "figures[0]: group names 'way'"),
    (("figures", 0), FIGURE | {"where": {"way": 1}}, "where.way names 'way', which no row has"),
    (("figures", 0), FIGURE | {"where": {"masks": None}}, "figures[0].where.masks[0] must be a te"),
    (("figures", 0), FIGURE | {"kind": "line", "log_x": 1}, "figures[0].log_x must be a valid"),
    (("figures", 0), HEAT | {"text": "p"}, "figures[0]: text names 'p'"),
    (("tables", 0), {"title": "t"}, "tables[0] needs columns and values, or header"),
    (("tables", 0), {"columns": [], "values": []}, "tables[0] needs columns and values"),
    (("tables", 0), {"columns": ["way"], "values": ["accuracy"]}, "names 'way'"),
    (("tables", 0), {"columns": ["method"], "values": ["task"]}, "'task', which is no number"),
    (("tables", 0), {"rows_verbatim": [[1]]}, "rows_verbatim[0] must have 0 cells"),
    (("tables", 0), {"header": ["a"], "rows_verbatim": [[1], [1, 2]]}, "[1] must have 1 cells"),
    (("highlights",), [{"value": "method"}], "highlights[0]: value names 'method', which is no n"),
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
    with pytest.raises(InputError, match=f"record: {key} is missing"):
        parse_record(record)


@pytest.mark.parametrize(("place", "value", "message"), WRONG)
def test_names_what_is_wrong(place, value, message):
    with pytest.raises(InputError) as caught:
        parse_record(changed(place, value))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_unknown_entries_are_no_typos_passed_over():
    with pytest.raises(InputError, match="figuers is not known here"):
        parse_record(GOOD | {"figuers": []})


def test_an_empty_entry_is_none():
    record = changed(("rows", 4, "accuracy"), None)
    assert "accuracy" not in parse_record(record).rows[4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[]", "the record must be a valid dictionary"),
        (b"[" * 100_000, "is no JSON"),
        (json.dumps(GOOD | {"target": "other"}).encode(), "target must be the file's name 'here'"),
        (
            json.dumps(GOOD | {"target": "here", "seconds": float("inf")}).encode(),
            "seconds must be a finite",
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
