"""What the tests of the store share: small stores, digests of logits, quick workers.

`Workers` is a process of one thread that has imported and compiled everything; it forks a worker a
command, which therefore starts in milliseconds and can be killed at any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

import impresslearn as il
from toys import FEATURES, blobs, quick_learner

HERE = Path(__file__).parent
PATHS = [str(HERE), str(HERE.parent), *filter(None, sys.path)]
FULL = bool(os.environ.get("IMPRESSLEARN_FULL_STORE_TESTS"))
"""Whether to run the long versions: 1,000 lives that end in a kill, 10,000 damaged copies."""

HASTY = il.Recipe(lr=0.03, epochs=0, min_steps=2, batch_size=32)
QUICKLY: dict[str, Any] = {"basis_recipe": HASTY, "task_recipe": HASTY}
INPUTS = torch.randn(5, FEATURES, generator=torch.Generator().manual_seed(99))


def digest(learner: il.ImpressLearner, task: str) -> str:
    """A digest of the bits of a task's logits on `INPUTS`, computed by one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the workers: the order of additions is part of the bits
    try:
        return _digest(learner.logits(INPUTS, task))
    finally:
        torch.set_num_threads(threads)


def _digest(logits: torch.Tensor) -> str:
    return hashlib.sha256(logits.contiguous().numpy().tobytes()).hexdigest()[:16]


def digests(store: il.ImpressLearner | Path) -> dict[str, str]:
    """The digest of every task of a learner, or of a store as it is loaded."""
    learner = store if isinstance(store, il.ImpressLearner) else il.load(store, progress=False)
    return {name: digest(learner, name) for name in learner.tasks_}


def version_digests(learner: il.ImpressLearner) -> dict[str, list[str]]:
    """The digests of all versions of every task, the present one last."""
    found = {}
    for name in learner.tasks_:
        views = [learner._store.view(each) for each in learner._store.versions(name)]
        found[name] = [_digest(view.logits(learner.backbone, INPUTS)) for view in views]
    return found


def small_learner(**settings: Any) -> il.ImpressLearner:
    """Two trained and two random masks; tasks basis-0, basis-1 and first."""
    learner = quick_learner(**QUICKLY, **settings)
    for number in range(2):
        learner.learn_basis(f"basis-{number}", blobs(number))
    return learner.add_random_masks(2).learn_task("first", blobs(2))


def hasty(path: Path, **settings: Any) -> il.ImpressLearner:
    """A store, opened to learn in two steps per task."""
    return il.open_store(path, progress=False, **QUICKLY, **settings)


def files(folder: Path) -> list[str]:
    """The names in a folder, sorted."""
    return sorted(file.name for file in folder.iterdir())


class Workers:
    """Forks processes that run a function of `worker_jobs` with keyword arguments."""

    def __enter__(self) -> Workers:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "worker_jobs.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(PATHS), "OMP_NUM_THREADS": "1"},
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def start(self, job: str, out: Path, **arguments: Any) -> int:
        """The process that runs a job; what it reports goes to `out`, one JSON value per line."""
        return self._ask({"job": job, "out": str(out), "arguments": arguments})

    def wait(self, pid: int) -> int:
        """The exit status of a process, negative for a signal."""
        return self._ask({"wait": pid})

    def reported(self, pid: int, out: Path) -> list[Any]:
        """What a process reported that must have ended well."""
        assert self.wait(pid) == 0, reports(out)[-1]
        return reports(out)

    def learned(self, path: Path, *outs: Path, **how: Any) -> list[list[Any]]:
        """What processes reported that learned into a store at the same time."""
        pids = [self.start("learn", out, path=path, **{"prefix": out.name} | how) for out in outs]
        return [self.reported(*pair)[1:] for pair in zip(pids, outs, strict=True)]

    def _ask(self, command: dict[str, Any]) -> int:
        self._process.stdin.write(json.dumps(command, default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that forks workers has died"
        return int(line)


def reports(out: Path) -> list[Any]:
    """What a worker has reported so far; a line that was cut off by its death does not count."""
    whole = out.read_text().rpartition("\n")[0] if out.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def until(condition: Any, seconds: float = 60.0) -> None:
    """Waits until a condition holds; fails after this time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


@contextmanager
def sql(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection, which commits and is closed at the end."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection
