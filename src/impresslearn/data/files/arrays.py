"""Reads arrays of numbers or strings from .npy and .npz files.

Python objects are never unpickled, and no more memory is filled than a limit: NumPy allocates what
a header declares, but touches only what the file really holds, and the file is measured first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from impresslearn.data.paths import naming, shorten, some
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

LONGEST_HEADER = 2**16


def read_npy(path: Path, limit: int) -> np.ndarray:
    """The array of a .npy file, in C order and the machine's byte order."""
    with naming(path), path.open("rb") as stream:
        _check_size(os.fstat(stream.fileno()).st_size - LONGEST_HEADER, limit)
        return _plain(np.lib.format.read_array(stream, allow_pickle=False), limit)


def read_npz(path: Path, limit: int, labelled: bool) -> list[np.ndarray]:
    """Inputs and labels of a .npz archive, by the first of `PAIRS` that it holds.

    Without labels the inputs alone: by the names in `PAIRS`, or the only array.
    """
    wanted: Sequence[tuple[str, ...]] = PAIRS if labelled else [(name,) for name, _ in PAIRS]
    with naming(path), ZipFile(path) as archive:
        files = {info.filename: info for info in archive.infolist()}
        held = [name.removesuffix(".npy") for name in files if name.endswith(".npy")]
        names = next((names for names in wanted if set(names) <= set(held)), None)
        if names is None and not labelled and len(held) == 1:
            names = tuple(held)
        if names is None:
            raise InputError(
                f"{path} holds {some(held) or 'no array'}; expected "
                f"{'a pair' if labelled else 'one of'} {', '.join(map('/'.join, wanted))}"
            )
        arrays = []
        for member in (files[f"{name}.npy"] for name in names):
            # numpy writes no other; the decoders of the others hand out a whole block at once.
            if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise InputError(
                    "only archives written by numpy's savez or savez_compressed can be read"
                )
            _check_size(member.file_size - LONGEST_HEADER, limit)
            with archive.open(member) as stream:
                arrays.append(_plain(np.lib.format.read_array(stream, allow_pickle=False), limit))
        return arrays


def _plain(array: np.ndarray, limit: int) -> np.ndarray:
    if array.dtype.kind not in "biufcUS":
        raise InputError(
            f"expected an array of numbers or strings, got {shorten(str(array.dtype))}"
        )
    _check_size(array.size * max(array.dtype.itemsize, 4), limit)
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise InputError(f"the array takes more memory than the limit of {limit:,} bytes")
