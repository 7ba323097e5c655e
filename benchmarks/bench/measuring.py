"""Times things against each other on a machine that others use too.

They run in turn, in short blocks of consecutive calls as a training loop makes them, and the
minimum of each counts: noise only ever adds time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

Action = Callable[[], object]
Record = dict[str, Any]
BLOCK = 5
COST, SPEEDUP = "value / reference", "reference / value"


def figure(
    name: str,
    value: float,
    reference: float | None,
    n: int,
    meaning: str = COST,
    unit: str = "ms",
) -> Record:
    """What was measured with the present number of threads, as plain values of four digits.

    value and reference in `unit`; n: repeats behind the figure; meaning: which ratio is of
    interest, COST (smaller is better), SPEEDUP (larger is better) or none without a reference.
    """
    ratio = reference and (value / reference if meaning == COST else reference / value)
    return {
        "name": name,
        "value": _rounded(value),
        "unit": unit,
        "reference": _rounded(reference),
        "ratio": _rounded(ratio),
        "meaning": "value alone" if reference is None else meaning,
        "threads": torch.get_num_threads(),
        "device": "cpu",
        "n": n,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def minima(
    actions: Sequence[Action], seconds: float = 3.0, least: int = 5
) -> tuple[list[float], int]:
    """The shortest time in ms of each action, in turns for about `seconds` altogether.

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
                best[place] = min(best[place], seconds_of(action))
        rounds += 1
    return [1e3 * each for each in best], rounds * BLOCK


def seconds_of(action: Action) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
