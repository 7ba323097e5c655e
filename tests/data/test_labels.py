"""Labels that differ are never made one class, and those that are one are found again."""

import enum

import numpy as np
import pytest
import torch

from impresslearn.data import classes_of, encode_labels, label_array, task_classes
from toys import refused


class Number(enum.IntEnum):
    ONE = 1


class Name(str, enum.Enum):
    CAT = "cat"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        (np.array([[3], [4]], dtype=np.int16), [3, 4]),
        ([2**53 + 1, 1.0], [2**53 + 1, 1]),
        (np.array([2**24 - 1, -0.0], np.float32), [2**24 - 1, 0]),
        (torch.tensor([3, 4], dtype=torch.uint64), [3, 4]),
        (torch.tensor([True, False]), [1, 0]),
        ([torch.tensor(2**60 + 1), np.int8(3), [4], np.array([5])], [2**60 + 1, 3, 4, 5]),
        ([np.str_("a"), "b"], ["a", "b"]),
        ([Number.ONE, 2], [1, 2]),
        ([Name.CAT, "dog"], ["cat", "dog"]),
        (["a\nb\t", "", " a", "a\0b"], ["a\nb\t", "", " a", "a\0b"]),
    ],
)
def test_labels_keep_their_values(labels, expected):
    array = label_array(labels)
    assert array.tolist() == expected
    assert array.dtype == np.int64 or array.dtype.kind == "U"


def test_classes_are_sorted_plain_values():
    assert classes_of(np.array([5, -1, 5])) == task_classes(np.array([5, -1]), 2) == (-1, 5)
    assert classes_of(np.array(["b", "a"])) == ("a", "b")
    assert type(classes_of(np.array([5, -1]))[0]) is int
    refused("no valid Unicode", label_array, ["e\ud800", "a"])


def test_a_label_is_found_by_its_value_and_kind():
    index_of = {4: 0, 9: 1}
    for label in (9, 9.0, np.int8(9), np.float32(9), torch.tensor(9)):
        assert encode_labels(label_array([label, 4]), index_of).tolist() == [1, 0]
    many = {label: label for label in range(100)}
    for label, known, shown in (
        ("9", index_of, "label '9' is not among the known classes 4, 9"),
        ("x", {"a": 0}, "label 'x' is not among the known classes 'a'"),
        (100, many, "label 100 .* 0, 1, 2, 3, 4, 5, 6, 7, …"),
    ):
        refused(f"^{shown}$", encode_labels, np.array([label]), known)
