import csv
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.errors import InputError
from toys import read_examples, read_inputs

PLAIN = "width,height,label\n1,2,0\n3.5,-4e1,1\n5,6,0\n"
X = [[1, 2], [3.5, -40], [5, 6]]


def write(tmp_path, content, name="a.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(read, path, match, **settings):
    with pytest.raises(InputError, match=match) as caught:
        read(path, **settings)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(path.name) == 1


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.rstrip("\n"),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace("\n", "\n\n"),
        "\n" + PLAIN,
        b"\xef\xbb\xbf" + PLAIN.encode(),
        b"\xef\xbb\xbflabel,a,b\n0,1,2\n1,3.5,-40\n0,5,6\n",
        PLAIN.replace(",", " , "),
        "\n".join(",".join(f'"{c}"' for c in line.split(",")) for line in PLAIN.split("\n")[:-1]),
        "width,TARGET,height\n1,0,2\n3.5,1,-40\n5,0.0,6\n",
        "y,a,b\n00,1,2\n+1,3.5,-40\n-0,5,6\n",
    ],
)
def test_a_table_in_many_hands(tmp_path, content):
    path = write(tmp_path, content)
    examples = read_examples(path)
    assert examples.inputs.tolist() == X
    assert examples.inputs.dtype == torch.float32
    assert examples.labels.tolist() == [0, 1, 0]
    assert examples.labels.dtype == np.int64
    named = read_inputs(path)
    assert named.inputs.tolist() == X
    assert named.names == ("1", "2", "3")


def test_a_table_without_labels(tmp_path):
    for content in ("a,b\n1,2\n3.5,-40\n5,6", "1,2\n3.5,-40\n5,6", "\ufeff1,2\n3.5,-40\n5,6"):
        path = write(tmp_path, content)
        assert read_inputs(path).inputs.tolist() == X
        labels = write(tmp_path, "cat\ndog\ncat", "l.txt")
        examples = read_examples(path, labels)
        assert examples.inputs.tolist() == X
        assert examples.labels.tolist() == ["cat", "dog", "cat"]


def test_the_label_column_by_name_or_position(tmp_path):
    named = write(tmp_path, "kind,y,x\n0,1,2\n1,3.5,-40\n0,5,6")
    bare = write(tmp_path, "0,1,2\n1,3.5,-40\n0,5,6", "bare.csv")
    for path, columns in ((named, ("kind", 0, "0", -3)), (bare, (0, "0", -3, "-3"))):
        for column in columns:
            for header in (None, path is named):
                settings = {"label_column": column, "header": header}
                assert read_examples(path, **settings).inputs.tolist() == X
                assert read_examples(path, **settings).labels.tolist() == [0, 1, 0]
                assert read_inputs(path, **settings).inputs.tolist() == X
    numbered = write(tmp_path, "0,1,2,3\n1,2,3,4", "numbered.csv")
    settings = {"label_column": "2", "header": True}
    assert read_examples(numbered, **settings).labels.tolist() == [3]


def test_a_named_label_column_may_be_missing_from_inputs(tmp_path):
    path = write(tmp_path, "x,y\n1,2\n3.5,-40\n5,6")
    assert read_inputs(path, label_column="kind").inputs.tolist() == X
    assert read_inputs(path).inputs.tolist() == [[1], [3.5], [5]]
    refused(read_examples, path, r"no column 'kind'; it has 'x', 'y'", label_column="kind")


@pytest.mark.parametrize(
    ("rows", "column", "labels"),
    [
        (["a,class", "1, Straße ", '2,"say ""hi"", twice"', "3,7", "4,nan"], None,
         ["Straße", 'say "hi", twice', "7", "nan"]),
        (["5.1,setosa", "4.9,other"], -1, ["setosa", "other"]),
        (["a,label", f"1,{'9' * 30}", "2,1"], None, ["9" * 30, "1"]),  # too long for 64 bits
        (["a,label", '1,"two\nlines"', "2,x"], None, ["two\nlines", "x"]),
    ],
)  # fmt: skip
def test_names_of_classes(tmp_path, rows, column, labels):
    examples = read_examples(write(tmp_path, "\n".join(rows)), label_column=column)
    assert examples.labels.tolist() == labels


def test_pixel_tables_keep_their_numbers_and_take_a_shape(tmp_path):
    path = write(tmp_path, "label,0,1,2,3,4,5\n4,0,51,102,153,204,255")
    assert read_examples(path).inputs.tolist() == [[0, 51, 102, 153, 204, 255]]
    examples = read_examples(path, shape=(1, 2, 3), mean=0, std=255)
    torch.testing.assert_close(examples.inputs, torch.arange(6).reshape(1, 1, 2, 3) / 5)
    assert examples.labels.tolist() == [4]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "a.csv is empty"),
        ("\n\r\n\n", "a.csv is empty"),
        ("a,label\n", "holds a header and no row"),
        ("a,label\n\n\n", "holds a header and no row"),
        ("label\n1\n2\n", "no column besides that of the labels"),
        ("a,b\n1,2\n", "no column label, target, class, y; it has 'a', 'b'; say with label_column"),
        ("a;b;label\n1;2;3\n", "it has 'a;b;label'; say"),
        ("1,2\n3,4\n", "has no header; say with label_column which column holds the labels"),
        (",a,label\n0,1,2\n", "column 1 of the header has no name"),
        ("a,label,\n0,1,\n", "column 3 of the header has no name"),
        ("a,label,Target\n1,2,3", "several columns could hold the label, 'label', 'Target'"),
        ("a,label,label\n1,2,3", "several columns could hold the label, 'label', 'label'"),
        ("5.1,3.5,setosa\n1,2,x", "cannot tell whether the first line .* '5.1', '3.5', 'setosa'"),
        ("5,y\n1,n", "cannot tell whether the first line names the columns"),
        ("a,1,c\n1,2,3", "cannot tell"),
        ("0,1,2\n7,8,9", "cannot tell"),
        ("a,label\n1,0\n,1", r"row 2 \(line 3\), column 'a' is empty"),
        ("a,label\n\n1,0\n\n1, ", r"row 2 \(line 5\), column 'label' is empty"),
        ("a,label\n1,0\nNaN,1", r"row 2 \(line 3\), column 'a' holds 'NaN', expected a finite"),
        ("a,label\n1,0\n-inf,1", r"row 2 \(line 3\), column 'a' holds '-inf', expected a finite"),
        ("a,label\n1e39,0\n2,1", r"row 1 \(line 2\), column 'a' holds '1e39', too large for fl"),
        ("a,label\n1,0\ndog,1", r"row 2 \(line 3\), column 'a' holds 'dog', expected a number"),
        ("a,label\n1_0,0", r"row 1 \(line 2\), column 'a' holds '1_0', expected a number"),
        ("a,label\n1;5,0", r"row 1 \(line 2\), column 'a' holds '1;5', expected a number"),
        (f"a,label\n{'x' * 99},0", r"column 'a' holds 'x{39}…', expected a number"),
        ("a,label\n1,0\n1", r"row 2 \(line 3\) has 1 cells, expected 2"),
        ("a,label\n1,0,2\n1,0,2", r"row 1 \(line 2\) has 3 cells, expected 2"),
        ("a,label\n1,0.5\n2,1", "labels must be integers or names, got '0.5'"),
        ("a,label\n1,nan\n2,1", "labels must be integers or names, got 'nan'"),
        ("a,label\n1,Größe".encode("latin1"), "a.csv is not UTF-8 text"),
        (("a,label\n" + "1,2\n" * 9999 + "1,ö").encode("latin1"), "a.csv is not UTF-8 text"),
        (PLAIN.encode("utf-16"), "a.csv is not UTF-8 text"),
        ("a,label\n1\0,2", "a.csv"),
        (b"\x89PNG\r\n\x1a\n\0\0", "a.csv"),
        (f"a,label\n{'1' * 200_000},2", "a.csv"),
        ("a" * 200_000, "cannot read .*a.csv: field larger"),
        ('a,label\n1,"two\nlines"\nz,x\n', r"row 2 \(line 4\), column 'a' holds 'z'"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, content, match):
    refused(read_examples, write(tmp_path, content), match)


@pytest.mark.parametrize(
    ("content", "settings", "match"),
    [
        (PLAIN, {"label_column": 3}, "has 3 columns, there is no column 3"),
        (PLAIN, {"label_column": "-4"}, "has 3 columns, there is no column -4"),
        (PLAIN, {"header": False}, "has no header"),
        ("1,2\n3,4", {"label_column": "kind"}, "has no header"),
        ("1,a\nx,b", {"label_column": -1}, r"row 2 \(line 2\), column 1 holds 'x'"),
        ("1,2\nx,4", {"label_column": 1}, r"row 2 \(line 2\), column 1 holds 'x'"),
        (PLAIN, {"std": 1e-40}, "inputs hold 6 NaN or infinite values"),
        (PLAIN, {"memory_limit": 20}, "42 bytes of text, more than the limit of 20"),
        (PLAIN, {"shape": (1, 28, 28)}, r"inputs of shape \(2,\) cannot be given"),
        (PLAIN, {"mean": [1, 2, 3]}, r"mean needs one number.*got 3"),
    ],
)
def test_settings_that_do_not_fit_the_table(tmp_path, content, settings, match):
    refused(read_examples, write(tmp_path, content), match, **settings)


@pytest.mark.parametrize("column", [1.0, True, ["label"], b"label"])
def test_label_columns_that_are_neither_name_nor_position(tmp_path, column):
    with pytest.raises(InputError, match="label_column must be a name or a position"):
        read_examples(write(tmp_path, PLAIN), label_column=column)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("a,b\n1,2\n3,x", r"row 2 \(line 3\), column 'b' holds 'x'"),
        ("a,b\n", "holds a header and no row"),
        ("1,,3\n", r"row 1 \(line 1\), column 2 is empty"),
    ],
)
def test_what_inputs_are_refused_for(tmp_path, content, match):
    refused(read_inputs, write(tmp_path, content), match)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1)


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_tables_come_back_as_they_were_written(tmp_path_factory, data):
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    place = data.draw(st.integers(0, columns))
    values = data.draw(
        st.lists(st.lists(FLOATS, min_size=columns, max_size=columns), min_size=rows, max_size=rows)
    )
    integers = data.draw(st.booleans())
    kind = st.integers(-(10**18) + 1, 10**18 - 1) if integers else NAMES.map(lambda t: f"a{t}b")
    labels = data.draw(st.lists(kind, min_size=rows, max_size=rows))
    header = data.draw(st.booleans())
    text = io.StringIO(newline="")
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    ends = data.draw(st.sampled_from(["\n", "\r\n"]))
    writer = csv.writer(text, lineterminator=ends, quoting=quoting)
    if header:
        names = [f"x{i}" for i in range(columns)]
        writer.writerow([*names[:place], "label", *names[place:]])
    for row, label in zip(values, labels, strict=True):
        writer.writerow([*row[:place], label, *row[place:]])
    path = tmp_path_factory.mktemp("table") / "a.csv"
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    settings = {"header": header, "label_column": None if header else place}
    examples = read_examples(path, **settings)
    assert examples.inputs.tolist() == values
    assert examples.labels.tolist() == labels
    assert read_inputs(path, **settings).inputs.tolist() == values
