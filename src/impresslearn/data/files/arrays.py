"""Arrays out of .npy and .npz files, whose headers are checked before anything is allocated.

An array is read only if it holds plain numbers or strings, if it fits the memory limit as float32,
and if the file has as many bytes as its header declares. Python objects are never unpickled.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from impresslearn.data.files.paths import reading, shorten, some
from impresslearn.errors import InputError

PAIRS = (
    ("inputs", "labels"),
    ("images", "labels"),
    ("data", "targets"),
    ("X", "y"),
    ("x", "y"),
    ("x_train", "y_train"),
)
"""Names of inputs and labels in an archive, in the order in which they are looked for."""


def read_npy(path: Path, limit: int) -> np.ndarray:
    """The array of a .npy file, in C order and the machine's byte order."""
    with reading(path), path.open("rb") as stream:
        _check_header(stream, path.stat().st_size, limit)
        stream.seek(0)
        return _plain(np.lib.format.read_array(stream, allow_pickle=False))


def read_labelled_npz(path: Path, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of a .npz archive: the first of `PAIRS` that it holds."""
    with reading(path), ZipFile(path) as archive:
        members = _members(archive)
        for pair in PAIRS:
            if members.keys() >= set(pair):
                inputs, labels = (_read_member(archive, members[name], limit) for name in pair)
                return inputs, labels
        pairs = ", ".join("/".join(pair) for pair in PAIRS)
        raise InputError(
            f"{path} holds {some(list(members)) or 'no array'}; expected a pair {pairs}"
        )


def read_npz_inputs(path: Path, limit: int) -> np.ndarray:
    """The inputs of a .npz archive: by the names in `PAIRS`, or its only array."""
    with reading(path), ZipFile(path) as archive:
        members = _members(archive)
        names = [name for name, _ in PAIRS if name in members]
        if not names and len(members) == 1:
            names = list(members)
        if names:
            return _read_member(archive, members[names[0]], limit)
        expected = ", ".join(name for name, _ in PAIRS)
        raise InputError(
            f"{path} holds {some(list(members)) or 'no array'}; expected one of {expected}"
        )


def _members(archive: ZipFile) -> dict[str, ZipInfo]:
    return {
        info.filename.removesuffix(".npy"): info
        for info in archive.infolist()
        if info.filename.endswith(".npy")
    }


def _read_member(archive: ZipFile, member: ZipInfo, limit: int) -> np.ndarray:
    # numpy writes no other; the decoders of the others hand out a whole block at once.
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise InputError("only archives written by numpy's savez or savez_compressed can be read")
    with archive.open(member) as stream:
        _check_header(stream, member.file_size, limit)
    with archive.open(member) as stream:
        return _plain(np.lib.format.read_array(stream, allow_pickle=False))


def _check_header(stream: IO[bytes], available: int, limit: int) -> None:
    """Raises InputError for an array that is not plain, too large, or larger than its file."""
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):  # written for arrays with named fields only
        raise InputError(f"expected a plain array, got one with fields (version {version})")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise InputError(
            "the array holds Python objects, which are never unpickled; "
            "save it as numbers or strings"
        )
    if dtype.kind not in "biufcUS":
        raise InputError(f"expected an array of numbers or strings, got {shorten(str(dtype))}")
    if any(size < 0 for size in shape):
        raise InputError(f"the header declares the shape {shorten(str(shape))}")
    count = math.prod(shape)
    if count * max(dtype.itemsize, 4) > limit:
        raise InputError(
            f"the header declares the shape {shorten(str(shape))} of {dtype}, which takes more "
            f"memory than the limit of {limit:,} bytes"
        )
    declared, rest = count * dtype.itemsize, available - stream.tell()
    if declared > rest:
        raise InputError(f"cut short: its header declares {declared} bytes of data, {rest} follow")


def _plain(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
