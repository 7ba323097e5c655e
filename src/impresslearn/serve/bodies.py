"""The bytes of a request's body as plain values or an array, with nothing trusted.

JSON is strict: UTF-8, no NaN, no infinity. An .npy body is a view of the bytes that came, so its
header cannot ask for memory; Python objects are never unpickled.
"""

from __future__ import annotations

import ast
import json
import re
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from impresslearn.errors import InputError
from impresslearn.serve.refusals import RequestError

JSON = "application/json"
NPY = ("application/x-npy", "application/octet-stream")
MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 1024
MOST_DIMENSIONS = 8
MOST_LISTS = 250_000
_NUMBERS = re.compile(r"\|[iu]1|[<>=][iu][248]|[<>=]f[248]")


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
        return json.loads(body.decode("utf-8"), parse_constant=_no_number)
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise RequestError(400, f"the body is no JSON: {error}") from None


def array_of(nested: list[Any]) -> np.ndarray:
    """Nested lists of numbers as a float64 array. InputError for ragged ones and other values.

    Strings and booleans are refused, which numpy would turn into numbers.
    """
    shape, level = [len(nested)], nested
    while level and type(level[0]) is list and len(shape) < MOST_DIMENSIONS:
        width = len(level[0])
        if any(type(part) is not list or len(part) != width for part in level):
            raise InputError("inputs must be lists of equal length at every depth")
        shape.append(width)
        level = list(chain.from_iterable(level))
    strange = set(map(type, level)) - {int, float}
    if strange:
        found = min(kind.__name__ for kind in strange)
        raise InputError(f"inputs must be numbers in equally nested lists, got a {found}")
    try:
        return np.array(level, dtype=np.float64).reshape(shape)
    except OverflowError:
        raise InputError("inputs hold a number that no float can hold") from None


def parse_npy(body: bytearray) -> np.ndarray:
    """The array of an .npy file, a view of `body`. RequestError (400) for anything else.

    Only real numbers are read, and only if exactly as many bytes follow as the header declares.
    """
    start, header = _npy_header(body)
    shape, kind, fortran = _npy_fields(header)
    dtype = np.dtype(kind)
    declared, found = prod(shape) * dtype.itemsize, len(body) - start
    if declared != found:
        raise RequestError(400, f"the .npy header declares {declared} bytes of data, {found} came")
    values = np.frombuffer(body, dtype, offset=start)
    array = values.reshape(shape, order="F" if fortran else "C")
    return np.asarray(array, dtype=dtype.newbyteorder("="), order="C")


def _npy_header(body: bytearray) -> tuple[int, str]:
    if body[:6] != MAGIC or len(body) < 12 or body[6:8] not in (b"\x01\x00", b"\x02\x00"):
        raise RequestError(400, "the body is no .npy file of format 1 or 2")
    width = 2 if body[6] == 1 else 4
    start = 8 + width
    length = int.from_bytes(body[8:start], "little")
    if length > LONGEST_HEADER or start + length > len(body):
        raise RequestError(400, "the .npy header is cut short or too long")
    return start + length, body[start : start + length].decode("latin1")


def _npy_fields(header: str) -> tuple[tuple[int, ...], str, bool]:
    try:
        fields = ast.literal_eval(header.strip())
        shape, kind, fortran = (fields[name] for name in ("shape", "descr", "fortran_order"))
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        raise RequestError(400, "the .npy header is not one") from None
    plain = type(shape) is tuple and 1 <= len(shape) <= MOST_DIMENSIONS
    if not plain or any(type(size) is not int or not 0 <= size < 2**32 for size in shape):
        raise RequestError(400, "the .npy header has no shape of 1 to 8 dimensions")
    if type(kind) is not str or not _NUMBERS.fullmatch(kind):
        raise RequestError(400, "the .npy array must hold real numbers of up to 64 bits")
    return shape, kind, fortran is True


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")
