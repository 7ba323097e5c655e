"""Damaged copies of a store: bits flipped, bytes overwritten, ends cut off, pages swapped.

Half of the damage goes to places that mean something: the header, and the first bytes of pages,
where sizes and positions of cells are.
"""

from __future__ import annotations

import random

PAGE = 4096
HOSTILE = (b"\xff" * 9, b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80" * 9, b"\x00" * 4)
HEADER_FIELDS = (16, 18, 19, 20, 21, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 92, 96)


def mutant(valid: bytes, number: int) -> bytes:
    """Damaged copy `number` of a store; the same number gives the same damage."""
    return KINDS[number % len(KINDS)](bytearray(valid), random.Random(number))


def _bits(copy: bytearray, draw: random.Random) -> bytes:
    for _ in range(draw.choice((1, 1, 1, 2, 8, 64))):
        copy[draw.randrange(len(copy))] ^= 1 << draw.randrange(8)
    return bytes(copy)


def _run(copy: bytearray, draw: random.Random) -> bytes:
    size = draw.choice((1, 2, 4, 16, 100, 1000))
    noise = draw.choice((draw.randbytes(size), bytes(size), b"\xff" * size))
    return _put(copy, draw.randrange(len(copy)), noise)


def _truncated(copy: bytearray, draw: random.Random) -> bytes:
    whole_pages = PAGE * draw.randrange(len(copy) // PAGE)
    return bytes(copy[: draw.choice((whole_pages, draw.randrange(len(copy))))])


def _pages(copy: bytearray, draw: random.Random) -> bytes:
    """Two pages swapped, one put in another's place or moved up, or one blank."""
    pages = [bytes(copy[start : start + PAGE]) for start in range(0, len(copy), PAGE)]
    one, other = draw.randrange(len(pages)), draw.randrange(len(pages))
    kind = draw.randrange(4)
    if kind == 0:
        pages[one], pages[other] = pages[other], pages[one]
    elif kind == 1:
        pages[one] = pages[other]
    elif kind == 2:
        pages.insert(one, pages[other])
    else:
        pages[one] = draw.choice((b"\0", b"\xff", b"\r")) * PAGE
    return b"".join(pages)


def _header(copy: bytearray, draw: random.Random) -> bytes:
    value = draw.choice((*HOSTILE, draw.randbytes(4)))[: draw.choice((1, 2, 4))]
    return _put(copy, draw.choice(HEADER_FIELDS), value)


def _sizes(copy: bytearray, draw: random.Random) -> bytes:
    """A hostile number in the header of a page, its cell pointers, or the head of a cell."""
    page = PAGE * draw.randrange(len(copy) // PAGE)
    start = page + (100 if page == 0 else 0)
    place = start + draw.randrange(40)
    cells = int.from_bytes(copy[start + 3 : start + 5], "big")
    if draw.random() < 0.5 and 0 < cells < 500:
        pointer = start + (8 if copy[start] in (10, 13) else 12) + 2 * draw.randrange(cells)
        place = page + int.from_bytes(copy[pointer : pointer + 2], "big") + draw.randrange(12)
    return _put(copy, place, draw.choice(HOSTILE))


def _longer(copy: bytearray, draw: random.Random) -> bytes:
    return bytes(copy) + draw.randbytes(draw.choice((1, 512, PAGE, 10 * PAGE)))


def _put(copy: bytearray, place: int, value: bytes) -> bytes:
    size = len(copy)
    copy[place : place + len(value)] = value
    return bytes(copy[:size])


KINDS = (_bits, _run, _sizes, _truncated, _bits, _pages, _header, _pages, _sizes, _longer)
