"""The numbers in the verdicts of docs/reproduction.md are those of the committed records."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_extensions"))

import records  # noqa: E402

PAGE = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
CLAIMS = [
    ("a few masks combine well: rotated MNIST", "rotated-mnist", "heterogeneous", 20),
    ("the same on permuted MNIST", "permuted-mnist", "heterogeneous", 100),
    ("the same on permuted MNIST", "permuted-mnist", "supsup", None),
    ("the same on Split-CIFAR-100", "split-cifar100", "heterogeneous", 15),
    ("the same on Split-CIFAR-100", "split-cifar100", "supsup", None),
    ("five masks suffice", "rotated-mnist", "heterogeneous", 5),
    ("a mask of another task alone", "permuted-mnist", "X", 1),
    ("a mask of another task alone", "rotated-mnist", "X", 1),
    ("homogeneous masks match", "permuted-mnist", "homogeneous", 100),
    ("the same on rotations", "rotated-mnist", "homogeneous", 20),
    ("one-shot inference, N = 10", "gn-comparison", "SupSup-GN", 10),
]


@pytest.mark.parametrize(("claim", "record", "method", "masks"), CLAIMS)
def test_a_verdict_has_the_number_of_its_record(claim, record, method, masks):
    rows = records.read_rows(ROOT / "paper" / "results" / f"{record}.json")
    number = records.accuracy(records.having(rows, method=method, masks=masks))
    (line,) = [line for line in PAGE.splitlines() if line.startswith("|") and claim in line]
    assert number in line


def test_nothing_is_forgotten_in_the_record():
    rows = records.read_rows(ROOT / "paper" / "results" / "forgetting.json")
    learned = records.having(rows, method="ImpressLearn")
    same = records.having(learned, identical=1.0)
    assert f"logits of {len(same)} of {len(learned)} tasks" in PAGE


@pytest.mark.parametrize("name", records.TABLES)
def test_every_table_can_be_made(name):
    path, table = records.TABLES[name]
    head, *rows = table(records.ROOT / path)
    assert rows
    assert all(len(row) == len(head) for row in rows)
