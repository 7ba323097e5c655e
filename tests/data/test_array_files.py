"""Arrays and labels from .npy and .npz files."""

import struct
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.data.file_reader import PAIRS
from impresslearn.errors import InputError
from toys import read_examples, read_inputs, refused

X = np.arange(30, dtype=np.float32).reshape(10, 3)
Y = np.arange(10) % 2


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "a.npy", X)
    return tmp_path / "a.npy"


def declared(shape, dtype="<f4", data=b""):
    """A .npy file whose header declares a shape, whatever data follow."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data


NUMBERS = st.sampled_from(["<f4", "<f8", "<f2", "|i1", "<i4", "<u2", "|u1", "|b1"])
LABELS = st.sampled_from([st.integers(-(2**63), 2**63 - 1), st.text("aé7 \n", max_size=4)])


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_arrays_come_back_as_they_were_saved(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("arrays")
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    values = data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=9))
    inputs = np.resize(values, shape).astype(data.draw(NUMBERS))
    if data.draw(st.booleans()):
        inputs = np.asfortranarray(inputs)
    kind = data.draw(LABELS)
    labels = np.array(data.draw(st.lists(kind, min_size=shape[0], max_size=shape[0])))
    expected = inputs.astype(np.float32) / (255 if inputs.dtype == np.uint8 else 1)
    np.savez_compressed(folder / "a.npz", inputs=inputs, labels=labels)
    np.save(folder / "a.npy", inputs)
    examples = read_examples(folder / "a.npz")
    torch.testing.assert_close(examples.inputs.float(), torch.from_numpy(expected.copy()))
    assert examples.labels.tolist() == labels.tolist()
    named = read_inputs(folder / "a.npy")
    assert torch.equal(named.inputs, examples.inputs)
    assert named.labels.tolist() == [str(row) for row in range(1, shape[0] + 1)]


@pytest.mark.parametrize(("inputs", "labels"), PAIRS)
def test_names_of_arrays(tmp_path, inputs, labels):
    arrays = {"x_test": -X, "other": Y, "x_train": -X, "y_train": 1 - Y, inputs: X, labels: Y}
    path = save(tmp_path / "a.npz", **arrays)  # the first pair wins, halves do not mix
    assert torch.equal(read_examples(path).inputs, torch.from_numpy(X))
    assert read_examples(path).labels.tolist() == Y.tolist()
    assert torch.equal(read_inputs(path).inputs, torch.from_numpy(X))
    halves = save(path, inputs=-X, x=X, y=Y)
    assert torch.equal(read_examples(halves).inputs, torch.from_numpy(X))
    for others in ({}, {"labels": Y}):
        assert torch.equal(read_inputs(save(path, only=X, **others)).inputs, torch.from_numpy(X))
        several = read_inputs(save(path, ids=X, mask=Y, **others)).inputs
        assert several.named.keys() == {"ids", "mask"}
    assert read_examples(path).inputs.named["ids"].shape == X.shape
    assert read_examples(path).labels.tolist() == Y.tolist()


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_objects_are_never_unpickled(tmp_path, npy):
    trap = np.array([Trap(), Trap()], dtype=object)
    np.save(npy, trap, allow_pickle=True)
    save(tmp_path / "a.npz", inputs=X, labels=trap)
    refused("cannot read .*a.npy: Python objects could run code", read_inputs, npy)
    refused("cannot read .*a.npz: Python objects could", read_examples, tmp_path / "a.npz")
    npy.write_bytes(b"\x80\x04N.")
    refused("cannot read .*a.npy: Python objects could", read_inputs, npy)


@pytest.mark.parametrize(
    "content",
    [
        *(declared(shape) for shape in [(2**40,), (2**33, 2**33), (-1, 3)]),
        *(declared(shape, data=b"\0" * 4) for shape in [(), (3, 0), "3"]),
        declared((3,), data=b"\0" * 11),
        b"PK\x03\x04 and no more",
    ],
)
def test_headers_are_not_trusted(tmp_path, npy, content):
    npy.write_bytes(content)
    refused("a.npy", read_inputs, npy)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("inputs.npy", content)
    refused("a.npz", read_inputs, tmp_path / "a.npz")


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.sampled_from(["npy", "npz"]))
@pytest.mark.filterwarnings("ignore")
def test_no_damage_escapes_as_another_error(tmp_path_factory, place, junk, suffix):
    path = tmp_path_factory.mktemp("damage") / f"a.{suffix}"
    with path.open("wb") as stream:
        np.save(stream, X) if suffix == "npy" else np.savez_compressed(stream, inputs=X, labels=Y)
    content = bytearray(path.read_bytes())
    place %= len(content)
    content[place : place + (len(junk) if junk[0] % 2 else 10**6)] = junk
    path.write_bytes(content)
    try:
        read_inputs(path)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
