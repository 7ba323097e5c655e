"""Opens, loads and describes stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from impresslearn.masks.bank import MaskBank
from impresslearn.state.backends import MemoryBackend
from impresslearn.state.state import LearnerState
from impresslearn.store.backend import StoreBackend
from impresslearn.store.contents import Contents
from impresslearn.store.file import StoreFile
from impresslearn.store.network import checked_head, network_of

CACHE_BYTES = 256 * 1024**2
"""Memory for the weights of the tasks predicted last, as in `ImpressLearner`."""


@dataclass(frozen=True)
class Opened:
    """The state in a store and the learner's settings as plain values."""

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
    contents = Contents(StoreFile.at(path, readonly, timeout))
    try:
        return _opened(contents, module, device, cache_bytes)
    except BaseException:
        contents.close()
        raise


def load_state(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    cache_bytes: int = CACHE_BYTES,
) -> Opened:
    """Everything of a store in memory, verified; the file is not needed afterwards."""
    with _reading(path) as contents:
        contents.check()
        opened = _opened(contents, module, device, cache_bytes)
        stored, bank = opened.state, opened.state.bank
        tasks = {task.name: task for task in stored.tasks.all()}
        kept = map(stored.backend.projection, range(1, stored.backend.projections() + 1))
        projections = [each for each in kept if each is not None]
        updated = [name for name, task in tasks.items() if task.version > 1]
        former = {name: stored.backend.former_versions(name) for name in updated}
        backend = MemoryBackend(bank, tasks, stored.shared, projections, former)
        state = LearnerState(stored.backbone, bank, cache_bytes, backend)
        for task in chain(tasks.values(), *former.values()):
            state.check(task)
        return Opened(state, opened.settings)


def describe_store(path: str | os.PathLike) -> dict[str, Any]:
    """What `store show` prints: network, settings, counts, and where the bytes are."""
    with _reading(path) as contents:
        head, state = checked_head(contents), contents.state()
        ((stored, trained, largest, tasks, projections),) = contents.database.rows(
            "SELECT coalesce(sum(length(bits)), 0), count(bits), max(length(bits)), "
            "(SELECT coalesce(sum(coalesce(length(coefficients), 0) + "
            "coalesce(length(statistics), 0) + coalesce(length(profile), 0)), 0) FROM tasks), "
            "(SELECT coalesce(sum(length(data)), 0) FROM tensors WHERE name LIKE '.projection.%') "
            "FROM masks"
        )
        return {
            "path": str(path),
            "uuid": head.uuid,
            "created_at": head.created_at,
            "library_version": head.library_version,
            "file_bytes": contents.file.nbytes(),
            "network": head.backbone,
            "weights_bytes": contents.tensor_bytes(),
            "settings": head.settings,
            "masks": state.masks,
            "masks_as_seed": state.masks - trained,
            "masks_bytes": stored,
            "bytes_a_stored_mask": round(stored / trained) if trained else None,
            "largest_mask_bytes": largest,
            "projections": contents.projections(),
            "projections_bytes": projections,
            "tasks": state.tasks,
            "tasks_bytes": tasks,
            "former_versions_bytes": contents.former_bytes(),
        }


@contextmanager
def _reading(path: str | os.PathLike) -> Iterator[Contents]:
    """What a store holds at one moment."""
    contents = Contents(StoreFile.at(path, readonly=True))
    with closing(contents), contents.database.snapshot():
        yield contents


def _opened(
    contents: Contents, module: nn.Module | None, device: torch.device | str, cache_bytes: int
) -> Opened:
    head = checked_head(contents)
    backbone = network_of(contents, head, module, device)
    bank = MaskBank(backbone.layers, backbone.device)
    backend = StoreBackend(contents, backbone)
    return Opened(LearnerState(backbone, bank, cache_bytes, backend), head.settings)
