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
    draw = random.Random(number)
    pages = [valid[start : start + PAGE] for start in range(0, len(valid), PAGE)]
    page, other = (PAGE * draw.randrange(len(pages)) for _ in range(2))
    anywhere = draw.randrange(len(valid))
    kind = number % 10
    if kind < 2:
        copy = bytearray(valid)
        for _ in range(draw.choice((1, 1, 2, 8, 64))):
            copy[draw.randrange(len(copy))] ^= 1 << draw.randrange(8)
        return bytes(copy)
    if kind == 2:
        size = draw.choice((1, 4, 16, 100, 1000))
        return _put(valid, anywhere, draw.choice((draw.randbytes(size), bytes(size))))
    if kind == 3:
        return _put(valid, draw.randrange(16, 100), draw.choice(HOSTILE)[: draw.choice((1, 2, 4))])
    if kind < 6:
        return _put(valid, _size_in(valid, page, draw), draw.choice(HOSTILE))
    if kind == 6:
        return valid[: draw.choice((page, anywhere))]
    if kind == 7:
        return valid + draw.randbytes(draw.choice((1, 512, PAGE, 10 * PAGE)))
    one, two = valid[page : page + PAGE], valid[other : other + PAGE]
    if kind == 8:  # swapped
        return _put(_put(valid, page, two), other, one)
    blank = draw.choice((b"\0", b"\xff", b"\r")) * PAGE
    return draw.choice((_put(valid, page, blank), valid[:page] + two + valid[page:]))


def _size_in(valid: bytes, page: int, draw: random.Random) -> int:
    """A place in the header of a page, in its cell pointers, or at the head of a cell."""
    start = page + (100 if page == 0 else 0)
    cells = int.from_bytes(valid[start + 3 : start + 5], "big")
    if draw.random() < 0.5 and 0 < cells < 500:
        pointer = start + (8 if valid[start] in (10, 13) else 12) + 2 * draw.randrange(cells)
        return page + int.from_bytes(valid[pointer : pointer + 2], "big") + draw.randrange(12)
    return start + draw.randrange(40)


def _put(valid: bytes, place: int, value: bytes) -> bytes:
    return (valid[:place] + value + valid[place + len(value) :])[: len(valid)]
