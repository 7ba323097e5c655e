"""Damaged copies of a store: bits flipped, bytes overwritten, ends cut off, pages swapped.

Half of the damage goes to places that mean something: the header, and the first bytes of pages,
where sizes and positions of cells are.
"""

from __future__ import annotations

import random

PAGE = 4096
HOSTILE = (b"\xff" * 9, b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80" * 9, b"\x00" * 4)


def mutant(valid: bytes, number: int) -> bytes:
    """Damaged copy `number` of a store; the same number gives the same damage."""
    kinds = (_bits, _noise, _sizes, _length, _bits, _pages, _header, _pages, _sizes, _length)
    return kinds[number % len(kinds)](valid, random.Random(number))


def _bits(valid: bytes, draw: random.Random) -> bytes:
    copy = bytearray(valid)
    for _ in range(draw.choice((1, 1, 1, 2, 8, 64))):
        copy[draw.randrange(len(copy))] ^= 1 << draw.randrange(8)
    return bytes(copy)


def _noise(valid: bytes, draw: random.Random) -> bytes:
    size = draw.choice((1, 2, 4, 16, 100, 1000))
    noise = draw.choice((draw.randbytes(size), bytes(size), b"\xff" * size))
    return _put(valid, draw.randrange(len(valid)), noise)


def _length(valid: bytes, draw: random.Random) -> bytes:
    """Cut off, at a page or within one, or longer."""
    pages = PAGE * draw.randrange(len(valid) // PAGE)
    longer = valid + draw.randbytes(draw.choice((1, 512, PAGE, 10 * PAGE)))
    return draw.choice((valid[:pages], valid[: draw.randrange(len(valid))], longer))


def _pages(valid: bytes, draw: random.Random) -> bytes:
    """Two pages swapped, one put in another's place or moved up, or one blank."""
    pages = [valid[start : start + PAGE] for start in range(0, len(valid), PAGE)]
    one, other = draw.randrange(len(pages)), draw.randrange(len(pages))
    kind = draw.randrange(4)
    if kind == 0:
        pages[one], pages[other] = pages[other], pages[one]
    elif kind == 1:
        pages.insert(one, pages[other])
    else:
        blank = draw.choice((b"\0", b"\xff", b"\r")) * PAGE
        pages[one] = pages[other] if kind == 2 else blank
    return b"".join(pages)


def _header(valid: bytes, draw: random.Random) -> bytes:
    fields = (16, 18, 19, 20, 21, *range(24, 72, 4), 92, 96)
    value = draw.choice((*HOSTILE, draw.randbytes(4)))[: draw.choice((1, 2, 4))]
    return _put(valid, draw.choice(fields), value)


def _sizes(valid: bytes, draw: random.Random) -> bytes:
    """A hostile number in the header of a page, its cell pointers, or the head of a cell."""
    page = PAGE * draw.randrange(len(valid) // PAGE)
    start = page + (100 if page == 0 else 0)
    place = start + draw.randrange(40)
    cells = int.from_bytes(valid[start + 3 : start + 5], "big")
    if draw.random() < 0.5 and 0 < cells < 500:
        pointer = start + (8 if valid[start] in (10, 13) else 12) + 2 * draw.randrange(cells)
        place = page + int.from_bytes(valid[pointer : pointer + 2], "big") + draw.randrange(12)
    return _put(valid, place, draw.choice(HOSTILE))


def _put(valid: bytes, place: int, value: bytes) -> bytes:
    return (valid[:place] + value + valid[place + len(value) :])[: len(valid)]
