"""Arrays and labels out of .npy, .npz and .txt files, whatever the files say of themselves."""

import io
import struct
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.data.files.arrays import PAIRS
from impresslearn.errors import InputError, MissingDataError
from toys import read_examples, read_inputs

X = np.arange(30, dtype=np.float32).reshape(10, 3)
Y = np.arange(10) % 2


def refused(read, *arguments, match, error=InputError, **settings):
    with pytest.raises(error, match=match) as caught:
        read(*arguments, **settings)
    assert "\n" not in str(caught.value)


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def npy_bytes(header, data=b"", version=(1, 0)):
    text = header.encode("latin1")
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def declared(shape, dtype="<f4", data=b""):
    return npy_bytes(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n", data)


def zipped(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


NUMBERS = st.sampled_from(["<f4", ">f4", "<f8", "<f2", "|i1", "<i4", ">i8", "<u2", "|u1", "|b1"])
LABELS = st.sampled_from([st.integers(-(2**63), 2**63 - 1), st.text("aé7 \n", max_size=4)])


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_arrays_come_back_as_they_were_saved(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("arrays")
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    count = int(np.prod(shape))
    values = data.draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    inputs = np.array(values).astype(data.draw(NUMBERS)).reshape(shape)
    if data.draw(st.booleans()):
        inputs = np.asfortranarray(inputs)
    kind = data.draw(LABELS)
    labels = np.array(data.draw(st.lists(kind, min_size=shape[0], max_size=shape[0])))
    expected = inputs.astype(np.float32) / (255 if inputs.dtype == np.uint8 else 1)
    np.savez_compressed(folder / "a.npz", inputs=inputs, labels=labels)
    np.save(folder / "a.npy", inputs)
    np.save(folder / "labels.npy", labels)
    for examples in (
        read_examples(folder / "a.npz"),
        read_examples(folder / "a.npy", labels=folder / "labels.npy"),
    ):
        torch.testing.assert_close(examples.inputs.float(), torch.from_numpy(expected.copy()))
        assert examples.inputs.is_contiguous()
        assert examples.labels.tolist() == labels.tolist()
    for name in ("a.npz", "a.npy"):
        named = read_inputs(folder / name)
        assert torch.equal(named.inputs, examples.inputs)
        assert named.names == tuple(str(row) for row in range(1, shape[0] + 1))
        assert len(named) == shape[0]


@pytest.mark.parametrize(("inputs", "labels"), PAIRS)
def test_names_of_arrays(tmp_path, inputs, labels):
    arrays = {"x_test": -X, "other": Y, "x_train": -X, "y_train": 1 - Y, inputs: X, labels: Y}
    path = save(tmp_path / "a.npz", **arrays)  # the first pair wins, halves do not mix
    assert torch.equal(read_examples(path).inputs, torch.from_numpy(X))
    assert read_examples(path).labels.tolist() == Y.tolist()
    assert torch.equal(read_inputs(path).inputs, torch.from_numpy(X))
    halves = save(path, inputs=-X, x=X, y=Y)
    assert torch.equal(read_examples(halves).inputs, torch.from_numpy(X))


def test_archives_without_a_pair_say_what_they_hold(tmp_path):
    path = save(tmp_path / "a.npz", inputs=X, targets=Y)
    refused(read_examples, path, match="a.npz holds 'inputs', 'targets'; expected a pair inputs/la")
    refused(read_inputs, save(path, p=X, q=X), match="holds 'p', 'q'; expected one of inputs, ima")
    refused(read_examples, zipped(path, {}), match="a.npz holds no array")
    refused(read_inputs, zipped(path, {"readme.txt": "x"}), match="a.npz holds no array")
    many = save(path, **{f"a{i}" + "x" * 50: X for i in range(9)})
    refused(read_inputs, many, match=r"'a0x+…', .*, …; expected one of")
    np.savez(path, X)
    assert torch.equal(read_inputs(path).inputs, torch.from_numpy(X))


def test_labels_in_a_file_of_their_own(tmp_path):
    np.save(tmp_path / "a.npy", X)
    archive = save(tmp_path / "a.npz", inputs=X)
    (tmp_path / "l.txt").write_text("\n".join(map(str, Y)) + "\n\n")
    (tmp_path / "names.txt").write_bytes(b"\xef\xbb\xbf" + "Größe\r\n7\r\n".encode() * 5)
    (tmp_path / "l.csv").write_text("Label\n" + "\n".join(map(str, Y)))
    (tmp_path / "bare.csv").write_text("\n".join(f'"{y}"' for y in Y))
    (tmp_path / "wide.csv").write_text("id,kind\n" + "".join(f"{i},{y}\n" for i, y in enumerate(Y)))
    for path in (tmp_path / "a.npy", archive):
        for name in ("l.txt", "l.csv", "bare.csv"):
            assert read_examples(path, labels=tmp_path / name).labels.tolist() == Y.tolist()
        wide = read_examples(path, str(tmp_path / "wide.csv"), label_column="kind")
        assert wide.labels.tolist() == Y.tolist()
        names = read_examples(path, labels=tmp_path / "names.txt")
        assert names.labels.tolist() == ["Größe", "7"] * 5


def test_a_header_can_be_denied(tmp_path):
    np.save(tmp_path / "a.npy", X[:3])
    (tmp_path / "l.csv").write_text("y\nn\ny\n")
    refused(read_examples, tmp_path / "a.npy", tmp_path / "l.csv", match="3 inputs came with 2")
    examples = read_examples(tmp_path / "a.npy", tmp_path / "l.csv", header=False)
    assert examples.labels.tolist() == ["y", "n", "y"]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("l.txt", b"0\n\n1\n", "l.txt: line 2 is empty"),
        ("l.txt", b"", "l.txt holds no label"),
        ("l.txt", b"\xff\xfe0", "l.txt is not UTF-8"),
        ("l.txt", b"0.5\n1\n", "l.txt: labels must be integers or names, got '0.5'"),
        ("l.txt", b"nan\n1\n", "l.txt: labels must be integers or names, got 'nan'"),
        ("l.txt", b"a\0\na\n", "l.txt: labels must not end in NUL"),
        ("l.txt", b"0\n1\n", "a.npy: 10 inputs came with 2 labels"),
        ("l.csv", b"", "l.csv is empty"),
        ("l.csv", b"label\n", "l.csv holds no label"),
        ("l.csv", b"a,b\n1,2\n", "l.csv: .* no column label, target, class, y; it has 'a', 'b'"),
        ("l.csv", b"id,label\n1,\n", r"l.csv: row 1 \(line 2\), column 'label' is empty"),
        ("l.csv", b"id,label\n\n1,4\n2\n", r"l.csv: row 2 \(line 4\), column 'label' is empty"),
        ("l.dat", b"0", "cannot read labels from .*l.dat; expected a .npy, .txt or .csv"),
        ("l.npy", b"0", "cannot read .*l.npy: "),
    ],
)
def test_files_of_labels_that_cannot_be_used(tmp_path, name, content, match):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / name).write_bytes(content)
    refused(read_examples, tmp_path / "a.npy", tmp_path / name, match=match)


def test_labels_that_are_elsewhere(tmp_path):
    np.save(tmp_path / "a.npy", X)
    path = tmp_path / "a.npy"
    refused(read_examples, path, match="a.npy holds inputs only; give .* with labels")
    refused(read_examples, path, tmp_path / "no.txt", match="no.txt", error=MissingDataError)
    refused(read_examples, path, tmp_path, match="cannot read labels .*; expected a .npy, .txt")
    refused(read_examples, path, 3, match="expected the path of a file or folder, got int")
    (tmp_path / "l.txt").write_text("1\n")
    refused(read_examples, path, tmp_path / "l.txt", label_column="x", match="means nothing for")


@pytest.mark.parametrize(
    ("inputs", "labels", "match"),
    [
        (X, np.eye(10), r"labels must be one per example, .* got shape \(10, 10\)"),
        (X, Y + 0.5, "labels must be integers or strings, got 0.5"),
        (X, np.array([b"\xff"] * 10), "labels of bytes must be UTF-8"),
        (X, np.array(["a", "\ud800"] * 5), "a label is no valid Unicode"),
        (X, Y[:4], "10 inputs came with 4 labels"),
        (X, np.array(3), r"got shape \(\)"),
        (np.array([[1, np.nan]] * 10), Y, "inputs hold 10 NaN"),
        (np.full((10, 1), 1e300), Y, "inputs hold 10 NaN or infinite"),
        (np.array([["a"]] * 10), Y, "inputs must be a numeric"),
        (X + 1j, Y, "inputs must be real"),
        (X[:0], Y, "0 inputs"),
        (X[:0], Y[:0], "hold no example"),
        (np.float32(3), Y, "inputs must be one per example, .* a single number"),
        (X.astype("M8[s]"), Y, "expected an array of numbers or strings, got datetime64"),
        (np.zeros(10, dtype="i4,f4"), Y, "expected an array of numbers or strings, got"),
    ],
)
def test_arrays_that_cannot_be_used(tmp_path, inputs, labels, match):
    path = save(tmp_path / "a.npz", inputs=inputs, labels=labels)
    refused(read_examples, path, match=f"a.npz: .*{match}")


def test_no_inputs(tmp_path):
    for array, match in (
        (X[:0], "a.npy holds no input"),
        (np.float32(3), "a.npy: inputs must be one per example, .* a single number"),
        (X[:, :0], r"a.npy: inputs of shape \(10, 0\) hold no number"),
    ):
        np.save(tmp_path / "a.npy", array)
        refused(read_inputs, tmp_path / "a.npy", match=match)


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_objects_are_never_unpickled(tmp_path):
    trap = np.array([Trap(), Trap()], dtype=object)
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "a.npz", inputs=X, labels=trap, allow_pickle=True)
    message = "Object arrays cannot be loaded when allow_pickle=False"
    refused(read_inputs, tmp_path / "a.npy", match=f"a.npy: .*{message}")
    refused(read_examples, tmp_path / "a.npz", match=f"a.npz: .*{message}")
    (tmp_path / "a.npy").write_bytes(b"\x80\x04N.")
    refused(read_inputs, tmp_path / "a.npy", match="cannot read .*a.npy: ")


@pytest.mark.parametrize(
    "content",
    [
        *(declared(shape) for shape in [(2**40,), (2**33, 2**33), (10**4000,), (2**29,), (-1, 3)]),
        *(declared(shape, data=b"\0" * 4) for shape in [(), (3, 0), (2**62, 0), (0, 2**62), "3"]),
        declared((3,), data=b"\0" * 11),
        declared((2**40,), "<U0"),
        declared((3,), "<q9"),
        declared((3,), "|V8", b"\0" * 24),
        npy_bytes("{"),
        npy_bytes("(" * 9000),
        npy_bytes("-" * 9000 + "1"),
        npy_bytes(" " * 70000, version=(2, 0)),
        npy_bytes("{}", version=(9, 9)),
        b"\x93NUMPY\x01\x00\xff",
        b"",
        b"PK\x03\x04 and no more",
    ],
)
def test_headers_are_not_trusted(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    refused(read_inputs, tmp_path / "a.npy", match="a.npy")
    zipped(tmp_path / "a.npz", {"inputs.npy": content}, zipfile.ZIP_DEFLATED)
    refused(read_inputs, tmp_path / "a.npz", match="a.npz")


def test_the_limit_counts_float32(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((25, 4), np.uint8))
    assert read_inputs(tmp_path / "a.npy", memory_limit=400).inputs.shape == (25, 4)
    refused(read_inputs, tmp_path / "a.npy", memory_limit=399, match="the limit of 399 bytes")
    np.savez_compressed(tmp_path / "a.npz", inputs=np.zeros((1000, 1000)), labels=np.zeros(1000))
    refused(read_examples, tmp_path / "a.npz", memory_limit=10**6, match="limit of 1,000,000 bytes")


def test_what_is_larger_than_the_limit_is_not_even_decompressed(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", inputs=np.zeros((10**6, 2)))
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("read"))
    refused(read_inputs, tmp_path / "a.npz", memory_limit=10**6, match="the limit of 1,000,000")


def test_damaged_archives(tmp_path):
    path = save(tmp_path / "a.npz", inputs=X, labels=Y)
    whole = path.read_bytes()
    place = whole.index(X.tobytes())
    path.write_bytes(whole[:place] + b"\1" + whole[place + 1 :])
    refused(read_examples, path, match="cannot read .*a.npz: Bad CRC")
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        refused(read_examples, path, match="cannot read .*a.npz: ")
    content = io.BytesIO()
    np.save(content, X)
    zipped(path, {"inputs.npy": content.getvalue()}, zipfile.ZIP_BZIP2)
    refused(read_inputs, path, match="only archives written by numpy's")


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.sampled_from(["npy", "npz"]))
@pytest.mark.filterwarnings("ignore")
def test_no_damage_escapes_as_another_error(tmp_path_factory, place, junk, suffix):
    path = tmp_path_factory.mktemp("damage") / f"a.{suffix}"
    if suffix == "npy":
        np.save(path, X)
    else:
        np.savez_compressed(path, inputs=X, labels=Y)
    content = bytearray(path.read_bytes())
    place %= len(content)
    content[place : place + len(junk)] = junk
    path.write_bytes(content)
    try:
        read_inputs(path)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("read", [read_examples, read_inputs])
def test_paths_that_are_not_there_or_of_another_kind(tmp_path, read):
    (tmp_path / "file.npz").write_bytes(b"")
    for name in ("no.npz", "no.csv", "no", "no/deeper.npy", "file.npz/x.npz"):
        refused(read, tmp_path / name, match="there is no file or folder", error=MissingDataError)
    for path in (3, None, X):
        refused(read, path, match="expected the path of a file or folder, got")
    refused(read, "a\0b.npz", match="cannot read")
    refused(read, "x" * 5000 + ".npz", match="cannot read x+")
    for name in ("a.parquet", "plain"):
        (tmp_path / name).write_bytes(b"")
        refused(read, tmp_path / name, match=rf"{name}; expected an image.*\.npz.*\.csv")
    refused(read_examples, "/dev/null", match="neither a file nor a folder")


def test_settings_without_a_meaning_are_refused(tmp_path):
    path = save(tmp_path / "a.npz", inputs=X, labels=Y)
    refused(read_examples, path, label_column="y", match="label_column means nothing for .npz")
    refused(read_examples, path, header=True, match="header means nothing for .npz")
    for read in (read_examples, read_inputs):
        refused(read, path, size=4, match="size means nothing for .npz")
        refused(read, tmp_path, header=True, match="header means nothing for an image folder")
    refused(read_examples, tmp_path, path, match="labels means nothing for an image folder")
