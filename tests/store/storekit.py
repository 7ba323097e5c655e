"""What the tests of the store share: small stores, and digests of logits."""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

import impresslearn as il
from toys import FEATURES, blobs, quick_learner, threads

FULL = bool(os.environ.get("IMPRESSLEARN_FULL_STORE_TESTS"))
"""Whether to run the long versions: 1,000 lives that end in a kill, 10,000 damaged copies."""

HASTY = il.Recipe(lr=0.03, epochs=0, min_steps=2, batch_size=32)
QUICKLY: dict[str, Any] = {"basis_recipe": HASTY, "task_recipe": HASTY}
INPUTS = torch.randn(5, FEATURES, generator=torch.Generator().manual_seed(99))


def digest(learner: il.ImpressLearner, task: str) -> str:
    """A digest of the bits of a task's logits on `INPUTS`, computed by one thread."""
    with threads(1):  # as in the workers: the order of additions is part of the bits
        return _digest(learner.logits(INPUTS, task))


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
