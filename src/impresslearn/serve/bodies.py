"""The bytes of a request's body as plain values or an array, with nothing trusted.

JSON is strict: UTF-8, no NaN, no infinity, no name twice in an object. An .npy body is a view of
the bytes that came, so its header cannot ask for memory; Python objects are never unpickled.
"""

from __future__ import annotations

import io
import json
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from impresslearn.errors import InputError
from impresslearn.serve.errors import RequestError

JSON = "application/json"
NPY = ("application/x-npy", "application/octet-stream")
HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
LONGEST_HEADER = 1024
MOST_DIMENSIONS = 8
MOST_LISTS = 250_000
MOST_EXACT = 2**53
"""Up to here every integer is a float64 too."""


def media_type(content_type: str, encoding: str) -> str:
    """`JSON` or the first of `NPY`. RequestError (415) for other and for compressed contents."""
    kind = content_type.partition(";")[0].strip().lower()
    if encoding.strip().lower() not in ("", "identity"):
        raise RequestError(415, f"compressed bodies are not read, got Content-Encoding: {encoding}")
    if kind == JSON:
        return JSON
    if kind in NPY:
        return NPY[0]
    expected = ", ".join((JSON, *NPY))
    raise RequestError(415, f"Content-Type must be one of {expected}, got {kind or 'none'}")


def parse_json(body: bytes | bytearray) -> Any:
    """The value of a JSON text. RequestError: 400 for any other, 413 for too many lists.

    A list takes some thirty times the memory of its two brackets, and as long to make.
    """
    if body.count(b"[") + body.count(b"{") > MOST_LISTS:
        raise RequestError(413, f"more than {MOST_LISTS:,} lists in a body; send inputs as .npy")
    try:
        return json.loads(
            body.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_object
        )
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise RequestError(400, f"the body is no JSON: {error}") from None


def array_of(nested: list[Any]) -> np.ndarray:
    """Nested lists of numbers as an array: int64 if all are integers that a float64 can hold, else
    float64. InputError for ragged lists and for other values.

    Strings and booleans are refused, which numpy would turn into numbers.
    """
    shape, level = [len(nested)], nested
    while level and type(level[0]) is list and len(shape) < MOST_DIMENSIONS:
        width = len(level[0])
        if any(type(part) is not list or len(part) != width for part in level):
            raise InputError("inputs must be lists of equal length at every depth")
        shape.append(width)
        level = list(chain.from_iterable(level))
    kinds = set(map(type, level))
    if strange := kinds - {int, float}:
        found = min(kind.__name__ for kind in strange)
        raise InputError(f"inputs must be numbers in equally nested lists, got a {found}")
    if not level:
        raise InputError(f"inputs must hold numbers, got none in shape {tuple(shape)}")
    whole = kinds == {int} and min(level) >= -MOST_EXACT and max(level) <= MOST_EXACT
    try:
        return np.array(level, dtype=np.int64 if whole else np.float64).reshape(shape)
    except OverflowError:
        raise InputError("inputs hold a number that no float can hold") from None


def parse_npy(body: bytearray) -> np.ndarray:
    """The array of an .npy file, a view of `body`. RequestError (400) for anything else.

    Only real numbers are read, and only if exactly as many bytes follow as the header declares.
    """
    shape, fortran, dtype, start = _npy_header(body)
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise RequestError(
            400, f"the .npy array must hold real numbers of up to 64 bits, not {dtype}"
        )
    whole = all(type(size) is int and size >= 1 for size in shape)
    if not 1 <= len(shape) <= MOST_DIMENSIONS or not whole:
        line = (
            f"the .npy array must have 1 to {MOST_DIMENSIONS} dimensions, none empty, got {shape}"
        )
        raise RequestError(400, line)
    declared, found = prod(shape) * dtype.itemsize, len(body) - start
    if declared != found:
        raise RequestError(400, f"the .npy header declares {declared} bytes of data, {found} came")
    values = np.frombuffer(body, dtype, offset=start)
    array = values.reshape(shape, order="F" if fortran else "C")
    return np.asarray(array, dtype=dtype.newbyteorder("="), order="C")


def _npy_header(body: bytearray) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, whether in Fortran's order, dtype, and where the data start."""
    stream = io.BytesIO(body[: LONGEST_HEADER + 12])
    try:
        read = HEADER_READERS[np.lib.format.read_magic(stream)]
        shape, fortran, dtype = read(stream, max_header_size=LONGEST_HEADER)
    except Exception:  # whatever numpy finds wrong in it
        raise RequestError(400, "the body is no .npy file of format 1 or 2") from None
    return shape, fortran, dtype, stream.tell()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")
