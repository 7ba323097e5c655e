"""Reads the body of a request, JSON or .npy, into plain values or an array; trusts nothing.

JSON is strict: UTF-8, no NaN, no infinity, no name twice in an object. Of .npy files only arrays of
real numbers are read; Python objects are never unpickled.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException

from impresslearn.errors import InputError

JSON = "application/json"
NPY = ("application/x-npy", "application/octet-stream")
LONGEST_HEADER = 1024
MOST_DIMENSIONS = 8
MOST_LISTS = 250_000
MOST_EXACT = 2**53
"""Up to here every integer is a float64 too."""

# numpy reads a header with Python's parser, which in 3.11 may fail in two threads at once.
_parsing = threading.Lock()


def media_type(headers: Mapping[str, str]) -> str:
    """One of `JSON` and `NPY`. HTTPException (415) for other and for compressed contents."""
    encoding = headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        line = f"compressed bodies are not read, got Content-Encoding: {encoding}"
        raise HTTPException(415, line)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, *NPY):
        expected = ", ".join((JSON, *NPY))
        raise HTTPException(415, f"Content-Type must be one of {expected}, got {kind or 'none'}")
    return kind


def parse_json(body: bytes) -> Any:
    """The value of a JSON text. HTTPException: 400 for any other, 413 for too many lists.

    A list takes some thirty times the memory of its two brackets, and as long to make.
    """
    if body.count(b"[") + body.count(b"{") > MOST_LISTS:
        raise HTTPException(413, f"more than {MOST_LISTS:,} lists in a body; send inputs as .npy")
    try:
        return json.loads(
            body.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_object
        )
    except RecursionError:
        raise HTTPException(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise HTTPException(400, f"the body is no JSON: {error}") from None


def parse_npy(body: bytes) -> np.ndarray:
    """The array of an .npy file. HTTPException (400) for anything but real numbers of a size."""
    stream = io.BytesIO(body)
    try:
        array = np.lib.format.read_array(stream, allow_pickle=False, max_header_size=LONGEST_HEADER)
    except Exception as error:  # whatever numpy finds wrong, a header beyond all memory too
        raise HTTPException(400, f"the body is no .npy file that can be read: {error}") from None
    if rest := len(body) - stream.tell():
        raise HTTPException(400, f"{rest} bytes follow the array of the .npy file")
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        line = f"the .npy array must hold real numbers of up to 64 bits, not {array.dtype}"
        raise HTTPException(400, line)
    if not 1 <= array.ndim <= MOST_DIMENSIONS or not array.size:
        sizes = f"1 to {MOST_DIMENSIONS} dimensions, none empty, got {array.shape}"
        raise HTTPException(400, f"the .npy array must have {sizes}")
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def as_array(nested: Any) -> np.ndarray:
    """Nested lists of numbers as an array: int64 if all are integers that a float64 can hold, else
    float64. InputError for ragged lists and for other values; an array stays as it is.

    Strings and booleans are refused, which numpy would turn into numbers.
    """
    if isinstance(nested, np.ndarray):
        return nested
    values = np.array(nested, dtype=object)  # where lists are not of equal length, they stay lists
    if not 1 <= values.ndim <= MOST_DIMENSIONS or not values.size:
        raise InputError(f"must be lists that hold numbers, got shape {values.shape}")
    kinds = set(map(type, values.flat))
    if strange := kinds - {int, float}:
        found = min(kind.__name__ for kind in strange)
        raise InputError(f"must be numbers in equally nested lists, got a {found}")
    whole = kinds == {int} and values.min() >= -MOST_EXACT and values.max() <= MOST_EXACT
    try:
        return values.astype(np.int64 if whole else np.float64)
    except OverflowError:
        raise InputError("there is a number that no float can hold") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")
