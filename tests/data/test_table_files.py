"""Tables of comma-separated values, as many programs write them, and what is wrong with others."""

import csv
import io
from unicodedata import normalize

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toys import read_examples, read_inputs

PLAIN = "width,height,label\n1,2,0\n3.5,-4e1,1\n5,6,0\n"
X = [[1, 2], [3.5, -40], [5, 6]]


def write(tmp_path, content, name="a.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.rstrip("\n"),
        PLAIN.replace("\n", "\r\n"),
        "\n" + PLAIN.replace("\n", "\n\n"),
        "\ufeff" + PLAIN,
        "\n".join(",".join(f'"{c}"' for c in line.split(",")) for line in PLAIN.split("\n")[:-1]),
        PLAIN.replace(",", ";"),
        "\ufeff\n" + PLAIN.replace(",", "\t"),
        "width,TARGET,height\n1,0,2\n3.5,1,-40\n5,0,6\n",
    ],
)
def test_a_table_in_many_hands(tmp_path, content):
    path = write(tmp_path, content)
    examples, named = read_examples(path), read_inputs(path)
    assert examples.inputs.tolist() == named.inputs.tolist() == X
    assert examples.inputs.dtype == torch.float32
    assert examples.labels.tolist() == [0, 1, 0]
    assert examples.labels.dtype == np.int64
    assert named.labels.tolist() == ["1", "2", "3"]


def test_a_named_label_column_may_be_missing_from_inputs(tmp_path):
    path = write(tmp_path, "x,y\n1,2\n3.5,-40\n5,6")
    assert read_inputs(path, label_column="kind").inputs.tolist() == X
    assert read_inputs(path).inputs.tolist() == [[1], [3.5], [5]]


@pytest.mark.parametrize(
    ("rows", "column", "labels"),
    [
        (["a,class", "1, Straße ", '2,"say ""hi"", twice"', "3,7", "4,nan"], None,
         ["Straße", 'say "hi", twice', "7", "nan"]),
        (["a,kind", "5.1,1e5", "4.9,x"], "kind", ["1e5", "x"]),
        (["a,label", f"1,{'9' * 30}", "2,1"], None, ["9" * 30, "1"]),  # too long for 64 bits
        (["a,label", "1,01", "2,1"], None, ["01", "1"]),  # codes are no numbers
        (["a,label", "1,1.0", "2,1", "3,+1"], None, ["1.0", "1", "+1"]),
        (["a,label", "1,-3.0", "2,0.0", "3,10"], None, [-3, 0, 10]),
        (["a,label", '1,"two\nlines"', "2,x"], None, ["two\nlines", "x"]),
    ],
)  # fmt: skip
def test_names_of_classes(tmp_path, rows, column, labels):
    examples = read_examples(write(tmp_path, "\n".join(rows)), label_column=column)
    assert examples.labels.tolist() == labels


def test_inputs_need_a_line_of_names(tmp_path):
    path = write(tmp_path, "1,2\n3,4")
    assert read_inputs(path, columns=["2", "1"]).inputs.tolist() == [[4, 3]]


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1)


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_tables_come_back_as_they_were_written(tmp_path_factory, data):
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    place = data.draw(st.integers(0, columns))
    row = st.lists(FLOATS, min_size=columns, max_size=columns)
    values = data.draw(st.lists(row, min_size=rows, max_size=rows))
    integers = st.integers(-(10**18) + 1, 10**18 - 1)
    kind = data.draw(
        st.sampled_from([integers, NAMES.map(lambda text: normalize("NFC", f"a{text}b"))])
    )
    labels = data.draw(st.lists(kind, min_size=rows, max_size=rows))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    names = [f"x{i}" for i in range(columns)]
    writer.writerow([*names[:place], "label", *names[place:]])
    for numbers, label in zip(values, labels, strict=True):
        writer.writerow([*numbers[:place], label, *numbers[place:]])
    path = write(tmp_path_factory.mktemp("table"), text.getvalue())
    examples = read_examples(path)
    assert examples.inputs.tolist() == values
    assert examples.labels.tolist() == labels
    assert read_inputs(path).inputs.tolist() == values
