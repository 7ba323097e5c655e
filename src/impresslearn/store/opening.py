"""Opens, loads and describes stores.

`open_state` works on the file; `load_state` reads and verifies everything and lets go of it.
`writing` makes new files, `editing` changes what a file holds.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from impresslearn.masks.bank import MaskBank
from impresslearn.state.backends import MemoryBackend
from impresslearn.state.state import LearnerState
from impresslearn.store.backend import StoreBackend
from impresslearn.store.contents import Contents
from impresslearn.store.database import Database
from impresslearn.store.network import checked_head, network_of

CACHE_BYTES = 256 * 1024**2
"""Memory for the weights of the tasks predicted last, as in `ImpressLearner`."""


@dataclass(frozen=True)
class Opened:
    """A store, ready to work with: its state and the learner's settings as plain values."""

    state: LearnerState
    settings: dict[str, Any]


def open_state(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    readonly: bool = False,
    timeout: float = 60.0,
    cache_bytes: int = CACHE_BYTES,
) -> Opened:
    """A state whose commits go to the file. Tasks and masks are read when they are needed."""
    database = Database(path, readonly=readonly, timeout=timeout)
    try:
        return _opened(Contents(database), module, device, cache_bytes)
    except BaseException:
        database.close()
        raise


def load_state(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    cache_bytes: int = CACHE_BYTES,
) -> Opened:
    """Everything of a store in memory, verified; the file is not needed afterwards.

    A file of an older format is brought up to date in memory, and left as it is.
    """
    with closing(Database(path, readonly=True, copy_old=True)) as database, database.snapshot():
        contents = Contents(database)
        contents.check()
        opened = _opened(contents, module, device, cache_bytes)
        stored, backend = opened.state, MemoryBackend(opened.state.bank)
        state = LearnerState(stored.backbone, stored.bank, cache_bytes, backend)
        state.adopt_shared(stored.shared)
        for task in stored.tasks.all():
            state.check(task)
            backend.tasks[task.name] = task
        return Opened(state, opened.settings)


def describe_store(path: str | os.PathLike) -> dict[str, Any]:
    """What `store show` prints: network, settings, counts, and where the bytes are."""
    with closing(Database(path, readonly=True)) as database, database.snapshot():
        contents = Contents(database)
        head, state = checked_head(contents), contents.state()
        masks = database.row(
            "SELECT coalesce(sum(length(bits)), 0), count(bits), max(length(bits)) FROM masks"
        )
        tasks = database.row(
            "SELECT coalesce(sum(coalesce(length(coefficients), 0) + "
            "coalesce(length(statistics), 0) + coalesce(length(profile), 0)), 0) FROM tasks"
        )
        stored, trained, largest = masks or (0, 0, 0)
        return {
            "path": str(path),
            "uuid": head.uuid,
            "created_at": head.created_at,
            "library_version": head.library_version,
            "file_bytes": database.file.nbytes(),
            "network": head.backbone,
            "weights_bytes": contents.tensor_bytes(),
            "settings": head.settings,
            "masks": state.masks,
            "masks_as_seed": state.masks - trained,
            "masks_bytes": stored,
            "bytes_a_stored_mask": round(stored / trained) if trained else None,
            "largest_mask_bytes": largest,
            "tasks": state.tasks,
            "tasks_bytes": tasks[0] if tasks else 0,
        }


def _opened(
    contents: Contents, module: nn.Module | None, device: torch.device | str, cache_bytes: int
) -> Opened:
    head = checked_head(contents)
    backbone = network_of(contents, head, module, device)
    bank = MaskBank(backbone.layers, backbone.device)
    backend = StoreBackend(contents, backbone)
    return Opened(LearnerState(backbone, bank, cache_bytes, backend), head.settings)
