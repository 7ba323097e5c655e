"""Times things against each other on a machine that others use too.

They run in turn, in short blocks of consecutive calls as a training loop makes them, and the
minimum of each counts: noise only ever adds time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from os import environ
from typing import Any

import torch

from impresslearn.errors import ImpressLearnError

Action = Callable[[], object]
BLOCK = 5
COST, SPEEDUP, ALONE = "value / reference", "reference / value", "value alone"


@dataclass(frozen=True)
class Record:
    """One measured figure.

    value and reference in `unit`; n: repeats behind the figure; meaning: which ratio is of
    interest, COST (smaller is better), SPEEDUP (larger is better) or none without a reference.
    """

    name: str
    value: float
    unit: str
    reference: float | None
    meaning: str
    threads: int
    n: int
    device: str = "cpu"

    @property
    def ratio(self) -> float | None:
        """As `meaning` says."""
        if self.reference is None:
            return None
        ratio = self.value / self.reference
        return ratio if self.meaning == COST else 1 / ratio

    def plain(self) -> dict[str, Any]:
        """As plain values, rounded to four digits."""
        return {
            key: float(f"{value:.4g}") if isinstance(value, float) else value
            for key, value in (asdict(self) | {"ratio": self.ratio}).items()
        }


def figure(
    name: str,
    value: float,
    reference: float | None,
    n: int,
    meaning: str = COST,
    unit: str = "ms",
) -> Record:
    """A record of what was measured with the present number of threads."""
    meaning = ALONE if reference is None else meaning
    return Record(name, value, unit, reference, meaning, torch.get_num_threads(), n)


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


def printed_by(code: str, *arguments: str, **environment: str) -> float:
    """The number that a Python program prints last, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ImpressLearnError(f"a measuring process failed: {done.stderr.strip()[-200:]}")
    return float(done.stdout.strip().splitlines()[-1])
