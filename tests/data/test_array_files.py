import io
import struct
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
LABELS = [st.integers(-(2**63), 2**63 - 1), st.text("aé7 \n", max_size=4)]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_arrays_come_back_as_they_were_saved(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("arrays")
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    count = int(np.prod(shape))
    values = data.draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    inputs = np.array(values).astype(data.draw(NUMBERS)).reshape(shape)
    if data.draw(st.booleans()):
        inputs = np.asfortranarray(inputs)
    kind = data.draw(
        st.sampled_from([st.integers(-(2**63), 2**63 - 1), st.text("aé7 \n", max_size=4)])
    )
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


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        ("inputs", "labels"),
        ("images", "labels"),
        ("data", "targets"),
        ("X", "y"),
        ("x", "y"),
        ("x_train", "y_train"),
    ],
)
def test_names_of_arrays(tmp_path, inputs, labels):
    path = save(tmp_path / "a.npz", **{inputs: X, labels: Y, "x_test": -X, "other": Y})
    assert torch.equal(read_examples(path).inputs, torch.from_numpy(X))
    assert read_examples(path).labels.tolist() == Y.tolist()
    assert torch.equal(read_inputs(path).inputs, torch.from_numpy(X))


def test_the_first_pair_wins_and_halves_of_pairs_do_not_mix(tmp_path):
    path = save(tmp_path / "a.npz", inputs=-X, x=X, y=Y, x_train=-X, y_train=1 - Y)
    assert torch.equal(read_examples(path).inputs, torch.from_numpy(X))
    assert read_examples(path).labels.tolist() == Y.tolist()


def test_an_only_array_is_the_inputs(tmp_path):
    np.savez(tmp_path / "a.npz", X)
    assert torch.equal(read_inputs(tmp_path / "a.npz").inputs, torch.from_numpy(X))


def test_archives_without_a_pair_say_what_they_hold(tmp_path):
    path = save(tmp_path / "a.npz", inputs=X, targets=Y)
    refused(read_examples, path, match="a.npz holds 'inputs', 'targets'; expected a pair inputs/la")
    refused(read_inputs, save(path, p=X, q=X), match="holds 'p', 'q'; expected one of inputs, ima")
    refused(read_examples, zipped(path, {}), match="a.npz holds no array")
    refused(read_inputs, zipped(path, {"readme.txt": "x"}), match="a.npz holds no array")
    many = save(path, **{f"a{i}" + "x" * 50: X for i in range(9)})
    refused(read_inputs, many, match=r"'a0x+…', .*, …; expected one of")


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
        ("l.txt", b"0\n1\n", "a.npy: 10 inputs came with 2 labels"),
        ("l.csv", b"", "l.csv is empty"),
        ("l.csv", b"label\n", "l.csv holds no label"),
        ("l.csv", b"a,b\n1,2\n", "l.csv has no column label, target, class, y; it has 'a', 'b'"),
        ("l.csv", b"id,label\n1,\n", r"l.csv: row 1 \(line 2\) has no label"),
        ("l.csv", b"id,label\n\n1,4\n2\n", r"l.csv: row 2 \(line 4\) has no label"),
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
    refused(read_examples, path, tmp_path, match="is a folder; expected a .npy, .txt")
    refused(read_examples, path, 3, match="expected the path of a file or folder, got int")
    (tmp_path / "l.txt").write_text("1\n")
    refused(read_examples, path, tmp_path / "l.txt", label_column="x", match="means nothing for")


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (np.eye(10), r"a.npz: labels must be one per example, .* got shape \(10, 10\)"),
        (Y + 0.5, "a.npz: labels must be integers or strings, got 0.5"),
        (Y * np.nan, "a.npz: labels must be integers or strings"),
        (Y.astype(np.uint64) + np.uint64(2**63), "a.npz: labels must fit 64 bits"),
        (np.full(10, 1e300), "a.npz: labels as floats must be below"),
        (np.array([b"\xff"] * 10), "a.npz: labels of bytes must be UTF-8"),
        (Y[:4], "a.npz: 10 inputs came with 4 labels"),
        (np.array(3), r"got shape \(\)"),
    ],
)
def test_arrays_of_labels_that_cannot_be_used(tmp_path, labels, match):
    refused(read_examples, save(tmp_path / "a.npz", inputs=X, labels=labels), match=match)


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        (np.array([[1, np.nan]] * 10), "a.npz: inputs hold 10 NaN"),
        (np.full((10, 1), 1e300), "a.npz: inputs hold 10 NaN or infinite"),
        (np.array([["a"]] * 10), "a.npz: inputs must be a numeric"),
        (X + 1j, "a.npz: inputs must be real"),
        (X[:0], "a.npz: the data hold no example|a.npz: 0 inputs"),
        (np.float32(3), "a.npz: inputs must be one per example, .* a single number"),
        (X.astype("M8[s]"), "a.npz: expected an array of numbers or strings, got datetime64"),
        (np.zeros(10, dtype="i4,f4"), "a.npz: expected an array of numbers or strings, got"),
    ],
)
def test_arrays_of_inputs_that_cannot_be_used(tmp_path, inputs, match):
    refused(read_examples, save(tmp_path / "a.npz", inputs=inputs, labels=Y), match=match)
    if len(inputs.shape) and len(inputs):
        refused(read_inputs, tmp_path / "a.npz", match=match)


def test_no_inputs(tmp_path):
    for array, match in (
        (X[:0], "a.npy holds no input"),
        (np.float32(3), "a.npy: inputs must be one per example, .* a single number"),
        (X[:, :0], r"a.npy: inputs of shape \(10, 0\) hold no number"),
    ):
        np.save(tmp_path / "a.npy", array)
        refused(read_inputs, tmp_path / "a.npy", match=match)
    refused(
        read_examples, save(tmp_path / "a.npz", inputs=X[:0], labels=Y[:0]), match="hold no example"
    )


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
    ("content", "match"),
    [
        (declared((2**40,)), "cannot read"),
        (declared((2**33, 2**33)), "cannot read|more memory than the limit"),
        (declared((10**4000,)), "cannot read"),
        (declared((2**40,), "<U0"), "more memory than the limit|cannot read"),
        (declared((2**29,)), "cannot read"),
        (declared((-1, 3)), "cannot read"),
        (declared(()), "cannot read"),
        (declared((), data=b"\0" * 4), "got a single number"),
        (declared((3, 0)), r"inputs of shape \(3, 0\) hold no number"),
        (declared((2**62, 0)), "inputs of shape .* hold no number|cannot read"),
        (declared((0, 2**62)), "holds no input|cannot read"),
        (declared((3,), data=b"\0" * 11), "cannot read"),
        (declared((3,), "<q9"), "cannot read"),
        (declared((3,), "|V8", b"\0" * 24), "expected an array of numbers"),
        (declared("3"), "cannot read"),
        (npy_bytes("{"), "cannot read"),
        (npy_bytes("(" * 9000), "cannot read"),
        (npy_bytes("-" * 9000 + "1"), "cannot read"),
        (npy_bytes(" " * 70000, version=(2, 0)), "cannot read"),
        (npy_bytes("{}", version=(9, 9)), "cannot read"),
        (b"\x93NUMPY\x01\x00\xff", "cannot read"),
        (b"", "cannot read"),
        (b"PK\x03\x04 and no more", "cannot read"),
    ],
)
def test_headers_are_not_trusted(tmp_path, content, match):
    (tmp_path / "a.npy").write_bytes(content)
    refused(read_inputs, tmp_path / "a.npy", match=match)
    zipped(tmp_path / "a.npz", {"inputs.npy": content}, zipfile.ZIP_DEFLATED)
    refused(read_inputs, tmp_path / "a.npz", match=match)


def test_the_limit_counts_float32(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((25, 4), np.uint8))
    assert read_inputs(tmp_path / "a.npy", memory_limit=400).inputs.shape == (25, 4)
    refused(read_inputs, tmp_path / "a.npy", memory_limit=399, match="the limit of 399 bytes")
    np.savez_compressed(tmp_path / "a.npz", inputs=np.zeros((1000, 1000)), labels=np.zeros(1000))
    refused(read_examples, tmp_path / "a.npz", memory_limit=10**6, match="limit of 1,000,000 bytes")


def test_damaged_archives(tmp_path):
    path = save(tmp_path / "a.npz", inputs=X, labels=Y)
    whole = path.read_bytes()
    place = whole.index(X.tobytes())
    path.write_bytes(whole[:place] + b"\1" + whole[place + 1 :])
    refused(read_examples, path, match="cannot read .*a.npz: Bad CRC")
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        refused(read_examples, path, match="cannot read .*a.npz: ")
    np.savez_compressed(path, inputs=X, labels=Y)
    whole = bytearray(path.read_bytes())
    whole[60:80] = b"\xff" * 20
    path.write_bytes(whole)
    refused(read_examples, path, match="a.npz")
    content = io.BytesIO()
    np.save(content, X)
    zipped(path, {"inputs.npy": content.getvalue()}, zipfile.ZIP_BZIP2)
    refused(read_inputs, path, match="only archives written by numpy's")


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.sampled_from(["npy", "npz"]))
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


def test_paths_that_are_not_there_or_of_another_kind(tmp_path):
    for read in (read_examples, read_inputs):
        for name in ("no.npz", "no.csv", "no", "no/deeper.npy"):
            refused(
                read, tmp_path / name, match="there is no file or folder", error=MissingDataError
            )
        (tmp_path / "file.npz").write_bytes(b"")
        refused(
            read, tmp_path / "file.npz" / "x.npz", match="no file or folder", error=MissingDataError
        )
        for path in (3, None, X):
            refused(read, path, match="expected the path of a file or folder, got")
        refused(read, "a\0b.npz", match="cannot read")
        refused(read, "x" * 5000 + ".npz", match="cannot read x+")
        (tmp_path / "a.parquet").write_bytes(b"")
        refused(read, tmp_path / "a.parquet", match=r"a.parquet; expected an image.*\.npz.*\.csv")
        (tmp_path / "plain").write_bytes(b"")
        refused(read, tmp_path / "plain", match=r"plain; expected an image")
    refused(read_examples, "/dev/null", match="neither a file nor a folder")


def test_settings_without_a_meaning_are_refused(tmp_path):
    path = save(tmp_path / "a.npz", inputs=X, labels=Y)
    refused(read_examples, path, label_column="y", match="label_column means nothing for .npz")
    refused(read_examples, path, header=True, match="header means nothing for .npz")
    for read in (read_examples, read_inputs):
        refused(read, path, size=4, match="size means nothing for .npz")
        refused(read, tmp_path, header=True, match="header means nothing for an image folder")
    refused(read_examples, tmp_path, path, match="labels means nothing for an image folder")
