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
    draw = random.Random(number)
    return KINDS[number % len(KINDS)](valid, draw)


def _bits(valid: bytes, draw: random.Random) -> bytes:
    changed = bytearray(valid)
    for _ in range(draw.choice((1, 1, 1, 2, 8, 64))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _run(valid: bytes, draw: random.Random) -> bytes:
    start, size = draw.randrange(len(valid)), draw.choice((1, 2, 4, 16, 100, 1000))
    noise = draw.choice((draw.randbytes(size), bytes(size), b"\xff" * size))
    return (valid[:start] + noise + valid[start + size :])[: len(valid)]


def _truncated(valid: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return valid[: PAGE * draw.randrange(len(valid) // PAGE)]
    return valid[: draw.randrange(len(valid))]


def _swapped(valid: bytes, draw: random.Random) -> bytes:
    pages = _pages(valid)
    one, other = draw.randrange(len(pages)), draw.randrange(len(pages))
    pages[one], pages[other] = pages[other], pages[one] if draw.random() < 0.7 else pages[other]
    return b"".join(pages)


def _blank(valid: bytes, draw: random.Random) -> bytes:
    pages = _pages(valid)
    fill = draw.choice((b"\0", b"\xff", b"\r"))
    pages[draw.randrange(len(pages))] = fill * PAGE
    return b"".join(pages)


def _header(valid: bytes, draw: random.Random) -> bytes:
    changed, place = bytearray(valid), draw.choice(HEADER_FIELDS)
    value = draw.choice((*HOSTILE, draw.randbytes(4)))[: draw.choice((1, 2, 4))]
    changed[place : place + len(value)] = value
    return bytes(changed)


def _sizes(valid: bytes, draw: random.Random) -> bytes:
    """A hostile number in the header of a page, its cell pointers, or the head of a cell."""
    changed = bytearray(valid)
    page = PAGE * draw.randrange(len(valid) // PAGE)
    start = page + (100 if page == 0 else 0)
    place = start + draw.randrange(40)
    if draw.random() < 0.5:
        cells = int.from_bytes(valid[start + 3 : start + 5], "big")
        if 0 < cells < 500:
            pointer = start + (8 if valid[start] in (10, 13) else 12) + 2 * draw.randrange(cells)
            place = page + int.from_bytes(valid[pointer : pointer + 2], "big") + draw.randrange(12)
    value = draw.choice(HOSTILE)
    changed[place : place + len(value)] = value
    return bytes(changed[: len(valid)])


def _doubled(valid: bytes, draw: random.Random) -> bytes:
    """Garbage behind the end, or a page moved up."""
    if draw.random() < 0.5:
        return valid + draw.randbytes(draw.choice((1, 512, PAGE, 10 * PAGE)))
    pages = _pages(valid)
    pages.insert(draw.randrange(len(pages)), pages[draw.randrange(len(pages))])
    return b"".join(pages)


def _pages(valid: bytes) -> list[bytes]:
    return [valid[start : start + PAGE] for start in range(0, len(valid), PAGE)]


KINDS = (_bits, _run, _sizes, _truncated, _bits, _swapped, _header, _blank, _sizes, _doubled)
