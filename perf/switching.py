"""What switching between tasks costs as their number grows: bytes, memory and time.

    python perf/switching.py [--tasks 10 100 10000] [--out perf/switching.json]

Every store holds LeNet-300-100 for 784 inputs, 20 random masks and so many tasks of ten classes,
60 coefficients each in five bits. A task is learned in one step from random numbers: neither its
bytes nor the time to switch to it depend on what it learned. Each store is read in a process of its
own with one thread and without a cache of weights, so that every prediction of another task reads
the task from the file and mixes its masks; beside it stands the same prediction without a switch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

THREADS = "1"
os.environ |= {"OMP_NUM_THREADS": THREADS, "NUMBA_NUM_THREADS": THREADS}

import torch  # noqa: E402

import impresslearn as il  # noqa: E402

MASKS, INPUTS, CLASSES, ROWS = 20, 784, 10, 16
REPEATS, OPENINGS = 500, 7
LEARNED_AT_ONCE = 500


def build(path: Path, tasks: int) -> None:
    """A store with so many tasks."""
    backbone = il.create_backbone("lenet_300_100", CLASSES, in_features=INPUTS)
    quick = il.Recipe(epochs=0, min_steps=1)
    learner = il.ImpressLearner(backbone, precision="int5", task_recipe=quick, progress=False)
    learner.add_random_masks(MASKS).save(path)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(4 * CLASSES, INPUTS, generator=generator)
    data = inputs, torch.arange(CLASSES).repeat(4)
    with il.open_store(path, progress=False) as learner:
        for start in range(0, tasks, LEARNED_AT_ONCE):
            names = range(start, min(tasks, start + LEARNED_AT_ONCE))
            learner.learn_tasks({f"task {name}": data for name in names})


def read(path: Path) -> dict[str, Any]:
    """One store, measured."""
    torch.set_num_threads(int(THREADS))
    opening = [_seconds(partial(_open, path)) for _ in range(OPENINGS)]
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(ROWS, INPUTS, generator=generator)
    with il.open_store(path, readonly=True, cache_bytes=0, progress=False) as learner:
        names = list(learner.tasks_)
        order = torch.randint(len(names), (REPEATS,), generator=generator).tolist()
        learner.predict(inputs, names[0])
        switched = [_seconds(partial(learner.predict, inputs, names[each])) for each in order]
        size = learner.tasks_[names[0]].bytes
    with il.open_store(path, readonly=True, progress=False) as learner:
        learner.predict(inputs, names[0])
        stayed = [_seconds(partial(learner.predict, inputs, names[0])) for _ in range(REPEATS)]
    return {
        "tasks": len(names),
        "bytes_per_task": size,
        "file_bytes": path.stat().st_size,
        "open_ms": round(1e3 * median(opening), 2),
        "switch_ms": round(1e3 * median(switched), 3),
        "same_task_ms": round(1e3 * median(stayed), 3),
        "peak_memory_MiB": round(_megabytes()),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 100, 10_000])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("switching.json"))
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.read:
        print(json.dumps(read(given.read)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for tasks in given.tasks:
            path = Path(folder) / f"{tasks}.impress"
            build(path, tasks)
            program = [sys.executable, __file__, "--read", str(path)]
            done = subprocess.run(program, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    record = {
        "threads": int(THREADS),
        "machine": f"{os.cpu_count()} CPU cores, shared with other work while this was measured",
        "versions": {"impresslearn": il.__version__, "torch": torch.__version__},
        "network": f"LeNet-300-100 for {INPUTS} inputs, {MASKS} random masks, int5",
        "predicted": f"{ROWS} inputs at a time; medians of {REPEATS} predictions",
        "rows": rows,
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _open(path: Path) -> None:
    il.open_store(path, readonly=True).close()


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _megabytes() -> float:
    """The most memory that this process has held so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2


if __name__ == "__main__":
    main(sys.argv[1:])
