"""Result records: whatever is wrong is named in one line, with file and place, before drawing."""

import json
import re

import pytest
import samples
from samples import ABSENT, changed

from benchmarks.report import parse_record, read_record, read_records, write_report
from impresslearn.errors import InputError
from toys import refused

GOOD = samples.comparison()
FIGURE = {"kind": "box", "x": "masks", "y": "accuracy"}
MEANS = {"columns": ["method"], "values": ["accuracy"]}
PLAIN = "a text, a finite number or a truth value"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("rows",), ABSENT, "record: rows is missing"),
        (("format",), 3, "format must be less than or equal to 2, got 3"),
        (("figuers",), [], "figuers is not known here"),
        (("target",), "../evil", "target "),
        (("settings", "lr"), float("nan"), "settings must hold plain, finite values"),
        (("seconds",), float("inf"), "seconds must be a finite number, got inf"),
        (("rows", 4), {}, "rows[4] Dictionary must have at least 1 item"),
        (("rows", 4, "accuracy"), float("nan"), f"rows[4].accuracy must be {PLAIN}, got nan"),
        (("rows", 4, "accuracy"), 91.2, "rows[4].accuracy must be a fraction in [0, 1], got 91.2"),
        (("rows", 4, "accuracy"), "0.9", "accuracy must be a number in all rows, got '0.9'"),
        (("rows", 4, "bytes"), -1, "bytes must be a number of at least 0"),
        (("rows", 0, "method"), 3, "rows[0].method must be a text in all rows, got 3"),
        (("figures", 0), FIGURE | {"log_x": True}, "figures[0] a box figure has no 'log_x'"),
        (("figures", 0), FIGURE | {"kind": "heatmap"}, "figures[0] a heatmap figure needs 'value'"),
        (("figures", 0), FIGURE | {"x": "maskz"}, "x names 'maskz', which no row has"),
        (("figures", 0), FIGURE | {"y": "method"}, "y names 'method', which is no number"),
        (("figures", 0), FIGURE | {"where": {"way": 1}}, "where.way names 'way', which no row has"),
        (("figures", 0), FIGURE | {"where": {"masks": None}}, "where.masks[0] must be a text"),
        (("tables", 0), MEANS | {"values": []}, "tables[0] needs columns and values, or"),
        (("tables", 0), MEANS | {"values": ["task"]}, "'task', which is no number"),
        (("tables", 0), {"header": ["a"], "rows_verbatim": [[1], [1, 2]]}, "must have 1 cells"),
        (("tables", 0), {"header": ["a"], "rows_verbatim": [[{}]]}, "rows_verbatim[0][0] must be"),
        (("highlights",), [{"value": "method"}], "highlights[0]: value names 'method', which is"),
        # nothing to show
        (("figures", 0), FIGURE | {"where": {"sparsity": 1}}, "mnist: figures[0]: no row has mask"),
        (("figures", 0), FIGURE | {"reference": {"method": "y"}}, "figures[0]: reference: no row"),
        (("tables", 0), MEANS | {"where": {"seed": 9}}, "mnist: tables[0]: no row has acc"),
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
        ("overlap.json", b"[]", "the record must be a valid dictionary"),
        ("overlap.json", b"[" * 100_000, "is no JSON"),
        ("other.json", json.dumps(GOOD).encode(), "target must be the file's name 'other'"),
        ("findings.json", b"{", "is no JSON"),
        ("findings.json", b'{"x": {"y": 3}}', "x.y must be a valid string, got 3"),
    ],
)
def test_names_the_file(tmp_path, name, content, message):
    samples.write(tmp_path, samples.overlap())
    (tmp_path / name).write_bytes(content)
    refused(re.escape(f"{tmp_path / name}: ") + ".*" + message, read_records, tmp_path)


def test_a_directory_of_records(tmp_path):
    refused("has no result records", read_records, tmp_path)
    refused("there is no", read_records, tmp_path / "nowhere")
    refused("cannot be read", read_record, tmp_path)
    samples.write(tmp_path, samples.overlap(), GOOD)
    (tmp_path / "cache").mkdir()
    (tmp_path / ".hidden.json").write_text("{")
    assert [record.target for record in read_records(tmp_path)] == ["overlap", "permuted-mnist"]
    assert [r.target for r in read_records(tmp_path / "overlap.json")] == ["overlap"]
