"""Simulates a night of learning on machines that are taken away: `python -m benchmarks.fleet`.

Learning times are from docs/scale.md, measured on one machine with two cores. Prices and the rate
of interruptions are assumptions, which you can change by options.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

TASK_SECONDS = 0.0073  # on one core, for a readout of 64 features from 200 examples, with all costs
CHUNK = 64  # tasks that one core learns together, and loses if its machine is taken away
START_SECONDS = 120.0  # before a new machine learns: boot, install, download the base
CORES = 8  # per machine


def night(tasks: int, machines: int, hours_between: float, seed: int = 0) -> tuple[float, float]:
    """The hours until all tasks are learned, and the machine-hours to pay.

    - hours_between: the mean time until a machine is taken away. A new machine replaces it at once.
    """
    draws = np.random.default_rng(seed)
    chunk_seconds = CHUNK * TASK_SECONDS
    left = -(-tasks // CHUNK)  # chunks
    # The second in which each machine starts to learn, and the second in which it is taken away.
    begins = np.full(machines, START_SECONDS)
    ends = draws.exponential(3600 * hours_between, machines)
    finished = 0.0
    while left > 0:
        machine = int(ends.argmin())
        now = float(ends[machine])
        # All machines learn until the next machine is taken away.
        done_by = begins + chunk_seconds * np.ceil(left / (machines * CORES))
        if done_by.max() <= now:
            finished = float(done_by.max())
            break
        learned = np.floor(np.clip(now - begins, 0, None) / chunk_seconds) * CORES
        left -= int(learned.sum())
        # For simplicity all machines restart their present chunk; in fact only one machine does.
        begins = np.maximum(begins, now)
        begins[machine] = now + START_SECONDS
        ends[machine] = now + draws.exponential(3600 * hours_between)
        finished = now
    return finished / 3600, machines * finished / 3600


def main() -> None:
    """Prints hours and costs for several numbers of machines, and draws the chart."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tasks", type=int, default=10_000_000)
    parser.add_argument("--hours-between", type=float, default=4.0, help="interruptions, a machine")
    parser.add_argument("--price", type=float, default=0.10, help="dollars a machine-hour")
    parser.add_argument("--chart", type=Path, help="also draw hours by machines here")
    options = parser.parse_args()
    rows = []
    for machines in (1, 2, 4, 8, 16, 32, 64):
        for kind, between in (("no interruption", 1e9), ("spot", options.hours_between)):
            nights = [night(options.tasks, machines, between, seed) for seed in range(20)]
            hours, paid = np.mean(nights, axis=0)
            row = {"machines": machines, "kind": kind, "hours": hours}
            rows.append(row | {"dollars a month": 30 * paid * options.price})
    print(pd.DataFrame(rows).round(2).to_string(index=False))
    if options.chart:
        from impresslearn.plotting import line_chart, styled

        title = f"Hours to learn {options.tasks:,} tasks"
        chart = line_chart(rows, "machines", "hours", "kind", title=title, log_x=True)
        styled(chart).save(options.chart)


if __name__ == "__main__":
    main()
