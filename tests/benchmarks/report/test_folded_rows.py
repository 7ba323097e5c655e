"""Rows of a record, folded in its file, are the same rows when they are read."""

import json
from pathlib import Path

import pytest
import samples
from benchmarks.record import write_record
from benchmarks.report.records import parse_record, read_record
from benchmarks.report.rows import folded, unfolded

from impresslearn.errors import InputError

RESULTS = Path(__file__).parents[2] / "paper" / "results"
ROWS = [
    {"method": "a", "seed": 0, "task": "x", "accuracy": 0.5, "sparsity": 0.9},
    {"method": "a", "seed": 0, "task": "y", "accuracy": 0.6, "sparsity": 0.9},
    {"method": "a", "seed": 1, "task": "y", "accuracy": 0.6, "sparsity": 0.9},
    {"method": "a", "seed": 1, "task": "z", "sparsity": 0.9},
    {"seen": True},
    {"seen": 1},
    {"method": "b", "accuracy": 0.5},
    {"method": "b", "accuracy": 0.5},
]
RESULTS_THERE = sorted(file for file in RESULTS.glob("*.json") if file.name != "findings.json")


def there_and_back(rows):
    return list(unfolded(json.loads(json.dumps(list(folded(rows))))))


def test_nothing_is_lost_and_neighbours_join():
    assert there_and_back(ROWS) == ROWS
    assert [type(row["seen"]) for row in there_and_back(ROWS)[4:6]] == [bool, int]
    first = next(folded(ROWS))
    assert first["task"] == ["x", "y"]
    assert first["sparsity"] == 0.9
    assert len(list(folded(ROWS))) == 7


@pytest.mark.parametrize("file", RESULTS_THERE, ids=lambda file: file.stem)
def test_records_keep_their_rows(file):
    rows = [dict(row) for row in read_record(file).rows]
    assert there_and_back(rows) == rows


def test_a_file_of_either_kind_gives_the_same_record(tmp_path):
    record = samples.comparison()
    files = [tmp_path / name / f"{record['target']}.json" for name in ("folded", "plain")]
    for file in files:
        write_record(record | {"format": 2}, file, fold=file.parent.name == "folded")
    one, other = map(read_record, files)
    assert one == other == parse_record(record | {"format": 2})
    assert files[0].stat().st_size < files[1].stat().st_size


def test_lists_of_several_lengths_are_refused():
    with pytest.raises(InputError, match=r"rows\[0\] has lists of \[1, 2\] values"):
        parse_record(samples.comparison() | {"rows": [{"task": ["a"], "accuracy": [0.1, 0.2]}]})
