"""Labels that differ are never made one class, and those that are one are found again."""

import enum

import numpy as np
import pytest
import torch

from impresslearn.data import (
    Examples,
    as_examples,
    classes_of,
    encode_labels,
    label_array,
    task_classes,
)
from impresslearn.errors import InputError


class Number(enum.IntEnum):
    ONE = 1


class Name(str, enum.Enum):
    CAT = "cat"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        (torch.tensor([3, 4], dtype=torch.uint8), [3, 4]),
        (np.array([[3], [4]], dtype=np.int16), [3, 4]),
        ([3.0, 4.0], [3, 4]),
        ([2**53 + 1, 1.0], [2**53 + 1, 1]),
        (np.array([2**24 - 1, -0.0], np.float32), [2**24 - 1, 0]),
        (torch.tensor([255.0, 0.0], dtype=torch.bfloat16), [255, 0]),
        (torch.tensor([3, 4], dtype=torch.uint64), [3, 4]),
        (torch.tensor([True, False]), [1, 0]),
        ([torch.tensor(2**60 + 1), np.int8(3), [4], np.array([5])], [2**60 + 1, 3, 4, 5]),
        (np.array([[1], [2]], dtype=object), [1, 2]),
        ([np.str_("a"), "b"], ["a", "b"]),
        ([Number.ONE, 2], [1, 2]),
        ([Name.CAT, "dog"], ["cat", "dog"]),
        (["Straße".encode(), b"dog"], ["Straße", "dog"]),
        (["a\nb\t", "", " a", "a\0b"], ["a\nb\t", "", " a", "a\0b"]),
    ],
)
def test_labels_keep_their_values(labels, expected):
    array = label_array(labels)
    assert array.tolist() == expected
    assert array.dtype == np.int64 or array.dtype.kind == "U"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, "1"], "must be all integers or all strings, got 1, '1'"),
        ([True, 2, 1], "must be all integers or all strings, got True, "),
        ([True, 1.0], "must be all integers or all strings"),
        ([b"a", "a"], "must be all integers or all strings, got b'a', 'a'"),
        (np.array([1, "1"], dtype=object), "must be all integers or all strings"),
        ([None, "a"], "must be all integers or all strings, got None, 'a'"),
        (["a\0", "a"], r"must not end in NUL, .* got 'a.x00'"),
        ([b"a\0", b"a"], "must not end in NUL"),
        ([b"\xff", b"\xfe"], r"must be UTF-8, got b'.xff'"),
        (["\ud800", "a"], r"no valid Unicode, .*: '.ud800'"),
        (np.array(["a", "\udcff"]), "no valid Unicode"),
        (["a" * 10**6, *["b"] * 1000], "1,001 labels of up to 1,000,000 characters take"),
        ([2**63, 1], "must fit 64 bits with a sign, got 9223372036854775808"),
        ([-(2**63) - 1, 1], "must fit 64 bits with a sign, got -9223372036854775809"),
        (np.array([2**63, 1], np.uint64), "must fit 64 bits with a sign"),
        (torch.tensor([2**63, 1], dtype=torch.uint64), "must fit 64 bits with a sign"),
        (np.array([1e300, 1]), "as floats must be below 9,007,199,254,740,992, .* got 1e.300"),
        ([-(2.0**53), 1], "as floats must be below"),
        (np.array([2**24, 1], np.float32), "as floats must be below 16,777,216"),
        (torch.tensor([256.0, 1.0], dtype=torch.bfloat16), "as floats must be below 256,"),
        ([[1, 0], [0, 1]], r"got shape \(2, 2\); of one-hot rows give .* labels.argmax\(1\)"),
        (torch.eye(2), r"got shape \(2, 2\); of one-hot rows"),
        ([torch.tensor([0, 1])] * 2, r"got shape \(2, 2\); of one-hot rows"),
        ([[1, 2], [3]], r"got shape \(2, 2\)$"),
        ([1j, 2j], "integers or strings, got 1j"),
        ([0.5, 1.0], "integers or strings, got 0.5"),
        ([np.nan, 1.0], "integers or strings, got nan"),
        (np.array([None, None], dtype=object), "integers or strings, got None"),
        (3, r"got shape \(\)"),
    ],
)
def test_labels_that_would_merge_or_cannot_be_kept_are_refused(labels, message):
    with pytest.raises(InputError, match=message) as caught:
        as_examples((torch.zeros(2, 3), labels))
    line = str(caught.value)
    assert "\n" not in line
    line.encode()  # an error about half a surrogate pair can itself be printed


def test_a_label_is_found_by_its_value_and_kind():
    index_of = {1: 0, 2: 1}
    for label in (1, 1.0, np.int8(1), np.float32(1), torch.tensor(1), True):
        assert encode_labels(label_array([label]), index_of).tolist() == [0]
    with pytest.raises(InputError, match="label '1' was never seen by this task"):
        encode_labels(label_array(["1"]), index_of)


def test_examples_are_held_to_the_same():
    with pytest.raises(InputError, match="all integers or all strings"):
        as_examples(Examples(torch.zeros(2, 3), np.array([1, "1"], dtype=object)))


def test_classes_are_sorted_plain_values():
    assert classes_of(np.array([5, -1, 5])) == (-1, 5)
    assert all(type(label) is int for label in classes_of(np.array([5, -1])))
    assert classes_of(np.array(["b", "a"])) == ("a", "b")
    assert type(classes_of(np.array(["b"]))[0]) is str
    assert task_classes(np.array([5, -1]), outputs=2) == (-1, 5)


def test_labels_are_encoded_by_position():
    assert encode_labels(np.array([9, 4, 9]), {4: 0, 9: 1}).tolist() == [1, 0, 1]
    with pytest.raises(InputError, match=r"^label 'x' was never seen by this task; it knows 'a'$"):
        encode_labels(np.array(["a", "x"]), {"a": 0})
    many = {label: label for label in range(100)}
    with pytest.raises(InputError, match=r"it knows 0, 1, 2, 3, 4, 5, 6, 7, …$"):
        encode_labels(np.array([100]), many)
