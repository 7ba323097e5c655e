"""Whole stores: opened, loaded and verified, described.

`open_state` works on the file; `load_state` reads and verifies everything and lets go of it.
`writing` makes new files, `editing` changes what a file holds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from impresslearn.errors import ImpressLearnError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.state.backends import MemoryBackend
from impresslearn.state.settings import restored_settings
from impresslearn.state.state import LearnerState
from impresslearn.store.backend import StoreBackend
from impresslearn.store.contents import Contents, Head
from impresslearn.store.database import Database
from impresslearn.store.networks import check_description, rebuild
from impresslearn.store.values import UNREADABLE

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
        return _opened(database, module, device, cache_bytes)
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
    database = Database(path, readonly=True, copy_old=True)
    try:
        with database.snapshot():
            _check_pages(database)
            Contents(database).check_sums()
            opened = _opened(database, module, device, cache_bytes)
            stored, backend = opened.state, MemoryBackend(opened.state.bank)
            state = LearnerState(stored.backbone, stored.bank, cache_bytes, backend)
            state.adopt_shared(stored.shared)
            for task in stored.tasks.all():
                state.check(task)
                backend.tasks[task.name] = task
        return Opened(state, opened.settings)
    finally:
        database.close()


def describe_store(path: str | os.PathLike) -> dict[str, Any]:
    """What `store show` prints: network, settings, counts, and where the bytes are."""
    database = Database(path, readonly=True)
    try:
        contents = Contents(database)
        with database.snapshot():
            head, state, weights = checked_head(contents), contents.state(), contents.tensor_bytes()
            sizes = database.row(
                "SELECT coalesce(sum(length(bits)), 0), count(bits), max(length(bits)) FROM masks"
            )
            task_sizes = database.row(
                "SELECT coalesce(sum(coalesce(length(coefficients), 0) + "
                "coalesce(length(statistics), 0) + coalesce(length(profile), 0)), 0) FROM tasks"
            )
        stored, trained, largest = sizes or (0, 0, 0)
        return {
            "path": str(path),
            "uuid": head.uuid,
            "created_at": head.created_at,
            "library_version": head.library_version,
            "file_bytes": file_bytes(database),
            "network": head.backbone,
            "weights_bytes": weights,
            "settings": head.settings,
            "masks": state.masks,
            "masks_as_seed": state.masks - trained,
            "masks_bytes": stored,
            "bytes_a_stored_mask": round(stored / trained) if trained else None,
            "largest_mask_bytes": largest,
            "tasks": state.tasks,
            "tasks_bytes": task_sizes[0] if task_sizes else 0,
        }
    finally:
        database.close()


def file_bytes(database: Database) -> int:
    """Bytes of a store's file and of its log."""
    files = (database.target.place, database.target.log())
    return sum(each.stat().st_size for each in files if each.exists())


def _opened(
    database: Database, module: nn.Module | None, device: torch.device | str, cache_bytes: int
) -> Opened:
    contents = Contents(database)
    head = checked_head(contents)
    backbone = network_of(contents, head, module, device)
    bank = MaskBank(backbone.layers, backbone.device)
    backend = StoreBackend(contents, backbone)
    return Opened(LearnerState(backbone, bank, cache_bytes, backend), head.settings)


def checked_head(contents: Contents) -> Head:
    """The head, with every value of the kind that belongs there, whoever wrote it."""
    head = contents.head()
    for what, value, check in (
        ("network", head.backbone, check_description),
        ("settings", head.settings, restored_settings),
    ):
        try:
            check(value)
        except (*UNREADABLE, AttributeError) as error:
            raise contents.database.damaged(f"its {what} cannot be: {error!r}") from None
    return head


def network_of(
    contents: Contents,
    head: Head,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
) -> Backbone:
    """The network of a store. Raises StoreError where it cannot be built again."""
    where, size = str(contents.database.path), contents.tensor_bytes()
    try:
        backbone = rebuild(head.backbone, contents.tensors(), size, module, where)
    except ImpressLearnError:
        raise
    except Exception as error:  # a file may describe anything, and a caller's builder raise it
        raise contents.database.damaged(f"its network: {error}") from None
    return backbone if str(device) == str(backbone.device) else backbone.to(device)


def _check_pages(database: Database) -> None:
    found = database.row("PRAGMA integrity_check(1)")
    if found != ("ok",):
        raise database.damaged(str(found[0] if found else "no answer to an integrity check"))
