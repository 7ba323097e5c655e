"""Checksums of rows, and of all rows together.

Every row carries 64 bits of BLAKE2b over its columns, so that a damaged page never gives other
numbers than were written. The sum of a table's checksums modulo 2^64 is kept beside it: a lost,
doubled or foreign row changes it, and adding or removing a row costs one addition. This is against
damage, not against forgery.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

Value = int | float | str | bytes | None
"""What a column may hold; damage can turn an integer into a float, which is told apart."""
SIZE = 8


def row_checksum(table: str, values: Sequence[Value]) -> bytes:
    """The checksum of a row's columns, in their order."""
    digest = hashlib.blake2b(table.encode(), digest_size=SIZE)
    for value in values:
        kind, content = _encoded(value)
        digest.update(struct.pack("<cQ", kind, len(content)))
        digest.update(content)
    return digest.digest()


def total_after(total: bytes, added: bytes) -> bytes:
    """The sum with one more row."""
    return _sum(_number(total) + _number(added))


def total_without(total: bytes, removed: bytes) -> bytes:
    """The sum with one row less."""
    return _sum(_number(total) - _number(removed))


ZERO = bytes(SIZE)
"""The sum of no rows."""


def _encoded(value: Value) -> tuple[bytes, bytes]:
    if value is None:
        return b"n", b""
    if isinstance(value, bytes):
        return b"b", value
    if isinstance(value, str):
        return b"t", value.encode("utf-8", "surrogatepass")
    return (b"f" if isinstance(value, float) else b"i"), repr(value).encode()


def _number(checksum: bytes) -> int:
    return int.from_bytes(checksum, "little")


def _sum(number: int) -> bytes:
    return (number % 2 ** (8 * SIZE)).to_bytes(SIZE, "little")
