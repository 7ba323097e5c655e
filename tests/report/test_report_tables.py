"""Tables: means with intervals, cells as they are, in the terminal and in Markdown."""

import csv
import io

import pytest
import samples
from rich.console import Console

from impresslearn.errors import InputError
from impresslearn.report import markdown_of, parse_record, printable_of, write_csv
from impresslearn.report.tables import highlights_of, tables_of


def printed(record):
    console = Console(file=io.StringIO(), width=120)
    console.print(printable_of(parse_record(record)))
    return console.file.getvalue()


def small():
    rows = [
        {"method": method, "masks": masks, "task": f"t{task}", "seed": 0}
        | {"accuracy": 0.5 + 0.1 * task, "bytes_per_task": 12 * masks}
        for method in ("b", "a")
        for masks in (10, 5)
        for task in range(3)
    ]
    rows.append({"method": "supsup", "task": "t0", "seed": 0, "accuracy": 0.9})
    table = {
        "title": "Means",
        "columns": ["method", "masks"],
        "values": ["accuracy", "bytes_per_task"],
    }
    return samples.HEAD | {
        "target": "small", "title": "A [bold]small[/bold] one", "rows": rows, "figures": [],
        "tables": [table],
    }  # fmt: skip


def test_means_with_intervals_sorted_by_the_columns():
    (table,) = tables_of(parse_record(small()))
    assert table.header == ("method", "masks", "accuracy", "bytes per task", "n")
    assert table.rows == (
        ("b", "5", "60.0 ± 24.8%", "60 B", "3"),
        ("b", "10", "60.0 ± 24.8%", "120 B", "3"),
        ("a", "5", "60.0 ± 24.8%", "60 B", "3"),
        ("a", "10", "60.0 ± 24.8%", "120 B", "3"),
        ("supsup", "–", "90.0%", "–", "1, 0"),
    )
    assert table.note == "mean ± 95% interval over 3 tasks; n: rows"
    assert table.numeric == (False, True, True, True, True)


def test_cells_as_they_are():
    record = samples.overlap()
    (table,) = tables_of(parse_record(record))
    assert table.rows[0][:3] == ("PermutedMNIST", "784!", "10")
    assert table.numeric[:3] == (False, False, True)


def test_single_rows_are_not_counted():
    record = small() | {"rows": small()["rows"][::3]}
    (table,) = tables_of(parse_record(record))
    assert table.header == ("method", "masks", "accuracy", "bytes per task")
    assert table.rows[0] == ("b", "5", "50.0%", "60 B")
    assert (table.note, len(table.numeric)) == ("", 4)


def test_highlights_are_means():
    of_b = {"title": "B", "value": "accuracy", "where": {"method": "b"}, "caption": "its mean"}
    record = parse_record(small() | {"highlights": [of_b, {"value": "bytes_per_task"}]})
    assert highlights_of(record) == [("B", "60.0%", "its mean"), ("bytes per task", "90 B", "")]
    assert "B 60.0% · bytes per task 90 B" in markdown_of(record)
    nothing = {"value": "accuracy", "where": {"method": "c"}}
    with pytest.raises(InputError, match=r"small: highlights\[0\]: no row has accuracy where"):
        highlights_of(parse_record(small() | {"highlights": [nothing]}))


def test_markdown():
    (table,) = tables_of(parse_record(small()))
    lines = table.markdown().splitlines()
    assert lines[0] == "**Means**"
    assert lines[2] == "| method | masks | accuracy | bytes per task | n |"
    assert lines[3] == "| --- | ---: | ---: | ---: | ---: |"
    assert lines[4] == "| b | 5 | 60.0 ± 24.8% | 60 B | 3 |"


def test_names_are_no_markup():
    record = small()
    record["rows"][0]["method"] = "a|b *c*\n<script>"
    assert r"a\|b \*c\*\\n\<script\>" in markdown_of(parse_record(record))
    assert "A [bold]small[/bold] one" in printed(record)


def test_terminal_shows_claim_data_and_table():
    text = printed(small())
    assert "The paper: Accuracy grows" in text
    assert "Scale small; made-up numbers, no measurement; 13 rows; 5 min 12 s." in text
    assert "60.0 ± 24.8%" in text


def test_a_long_name_is_folded_and_never_cut():
    record = samples.overlap()
    record["tables"] = [{"header": ["name"], "rows_verbatim": [["x" * 300]]}]
    assert printed(record).count("x") >= 300
    assert "…" not in printed(record)


def test_csv_holds_every_row(tmp_path):
    record = parse_record(small())
    (path,) = write_csv([record], tmp_path / "csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 13
    assert rows[0] == {
        "method": "b", "masks": "10", "task": "t0", "seed": "0", "accuracy": "0.5",
        "bytes_per_task": "120",
    }  # fmt: skip
    assert rows[-1]["masks"] == ""
