"""The rows of a store: their columns, their checksums, and JSON that is checked strictly.

Every row carries 64 bits of BLAKE2b over its columns, so that a damaged page never gives other
numbers than were written. The sum of a table's checksums modulo 2^64 is kept beside it: a lost,
doubled or foreign row changes it. This is against damage, not against forgery, so whatever is
decoded is checked again.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from impresslearn.errors import InputError

Value = int | float | str | bytes | None
"""What a column may hold; damage can turn an integer into a float, which is told apart."""
SIZE = 8
UNREADABLE = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError),
    *(OverflowError, RecursionError, struct.error),
)
"""What decoding a row raises that cannot be one."""


class Row:
    """A row's columns, in the order of its checksum."""

    def values(self) -> tuple[Value, ...]:
        """The columns as they are checked and written."""
        return tuple(vars(self).values())


@dataclass(frozen=True)
class Head:
    """What is written once: the network, the learner's settings, and where the file comes from."""

    uuid: str
    created_at: str
    library_version: str
    backbone: dict[str, Any]
    settings: dict[str, Any]


@dataclass(frozen=True)
class State(Row):
    """What has been committed: numbers of rows, and sums of their checksums.

    shared: the checksum of the norm statistics that all tasks share, None where there are none.
    """

    masks: int = 0
    tasks: int = 0
    masks_sum: bytes = bytes(SIZE)
    tasks_sum: bytes = bytes(SIZE)
    shared: bytes | None = None


@dataclass(frozen=True)
class MaskRow(Row):
    """A mask.

    bits: None where the recipe draws it again; digest: 16 bytes of BLAKE2b over the packed bits,
    which tells whether it drew the same.
    """

    name: str
    source: str
    recipe: str
    bits: bytes | None
    digest: bytes


@dataclass(frozen=True)
class TaskRow(Row):
    """A task; texts stand for document numbers.

    number: of the row, never given twice; mask_bytes: what its mask takes in the table of masks.
    Both are no part of the checksum.
    """

    number: int
    name: str
    mask: str | None
    num_masks: int
    classes: str
    form: str | None
    coefficients: bytes | None
    statistics: bytes | None
    profile: bytes | None
    recipe: str
    metrics: str
    created_at: str
    mask_bytes: int | None = None

    def values(self) -> tuple[Value, ...]:
        """All but the number and the bytes of the mask."""
        return super().values()[1:-1]


def joined_row(row: TaskRow) -> bytes:
    """A task's columns as one value: their JSON, with lengths in place of bytes, and these."""
    values = row.values()
    blobs = [value for value in values if isinstance(value, bytes)]
    sizes = [[len(value)] if isinstance(value, bytes) else value for value in values]
    head = to_json(sizes).encode()
    return b"".join([struct.pack("<Q", len(head)), head, *blobs])


def split_row(content: bytes, number: int) -> TaskRow:
    """The row that `joined_row` got. Raises one of UNREADABLE for what is none."""
    place = 8 + struct.unpack("<Q", content[:8])[0]
    values = from_json(list, content[8:place].decode())
    for position, value in enumerate(values):
        if isinstance(value, list):
            (size,) = value
            values[position] = content[place : place + size]
            place += size
    if place != len(content):
        raise ValueError("a version of another length")
    return TaskRow(number, *values)


def row_checksum(table: str, values: Sequence[Value]) -> bytes:
    """The checksum of a row's columns, in their order."""
    digest = hashlib.blake2b(table.encode(), digest_size=SIZE)
    for value in values:
        kind, content = _encoded(value)
        digest.update(struct.pack("<cQ", kind, len(content)))
        digest.update(content)
    return digest.digest()


def _encoded(value: Value) -> tuple[bytes, bytes]:
    if isinstance(value, bytes):
        return b"b", value
    if isinstance(value, str):
        return b"t", value.encode("utf-8", "surrogatepass")
    if value is None:
        return b"n", b""
    return (b"f" if isinstance(value, float) else b"i"), repr(value).encode()


def new_sum(total: bytes, added: Iterable[bytes] = (), removed: Iterable[bytes] = ()) -> bytes:
    """The sum of a table's checksums after rows were added and removed."""
    number = int.from_bytes(total, "little")
    number += sum(int.from_bytes(each, "little") for each in added)
    number -= sum(int.from_bytes(each, "little") for each in removed)
    return (number % 2 ** (8 * SIZE)).to_bytes(SIZE, "little")


def to_json(value: Any) -> str:
    """Plain values as one compact line. Raises InputError for NaN and for what JSON has no word."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a store keeps plain JSON values only: {error}") from None


def from_json(kind: type, text: Any) -> Any:
    """The JSON value of a text.

    Raises ValueError for another kind of value, infinite numbers and halves of characters.
    """
    value = None
    if isinstance(text, str):
        value = _DECODER.decode(text)
        if "\\u" in text:
            to_json(value).encode()
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _finite(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"the number {text}")
    return value


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)
