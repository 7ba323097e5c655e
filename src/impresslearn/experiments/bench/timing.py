"""Timing two things against each other on a machine that others use too.

Both run in turn, in short blocks of consecutive calls as a training loop makes them, and the
minimum of each counts: noise only ever adds time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

Action = Callable[[], object]
BLOCK = 5


@dataclass(frozen=True)
class Record:
    """One measured figure.

    value and reference in `unit`; ratio: what the bar is about, value / reference for costs and
    reference / value for speed-ups (`meaning` says which); n: repeats behind the figure.
    """

    name: str
    value: float
    unit: str
    reference: float | None
    ratio: float | None
    meaning: str
    threads: int
    device: str
    n: int

    def plain(self) -> dict[str, Any]:
        """As plain values, rounded to four digits."""
        return {
            key: float(f"{value:.4g}") if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


def minima(
    actions: Sequence[Action], seconds: float = 3.0, least: int = 5
) -> tuple[list[float], int]:
    """The shortest time in seconds of each action, in turns for about `seconds` altogether.

    Returns the minima and the number of calls of each (at least `least` blocks of `BLOCK`); a first
    call is not counted.
    """
    for action in actions:
        action()
    best = [float("inf")] * len(actions)
    rounds, started = 0, time.perf_counter()
    while rounds < least or time.perf_counter() - started < seconds:
        for place, action in enumerate(actions):
            for _ in range(BLOCK):
                begin = time.perf_counter()
                action()
                best[place] = min(best[place], time.perf_counter() - begin)
        rounds += 1
    return best, rounds * BLOCK


def cost(name: str, value: float, reference: float, n: int, unit: str = "ms") -> Record:
    """A record whose ratio is value / reference: smaller is better."""
    return _record(name, value, unit, reference, value / reference, "value / reference", n)


def speedup(name: str, value: float, reference: float, n: int, unit: str = "ms") -> Record:
    """A record whose ratio is reference / value: larger is better."""
    return _record(name, value, unit, reference, reference / value, "reference / value", n)


def single(name: str, value: float, unit: str, n: int) -> Record:
    """A record without a reference."""
    return _record(name, value, unit, None, None, "value alone", n)


def _record(
    name: str,
    value: float,
    unit: str,
    reference: float | None,
    ratio: float | None,
    meaning: str,
    n: int,
) -> Record:
    threads = torch.get_num_threads()
    return Record(name, value, unit, reference, ratio, meaning, threads, "cpu", n)
