"""What a store holds, changed from outside a learner: tasks removed or copied, room given back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from impresslearn.errors import InputError
from impresslearn.store.contents import Contents
from impresslearn.store.database import Database
from impresslearn.store.file import file_bytes
from impresslearn.store.writing import distinct

SAME = ("fingerprint", "layers", "num_classes", "norm")
"""What must be equal in the heads of two stores that exchange tasks."""


def remove_tasks(path: str | os.PathLike, names: Sequence[str], timeout: float = 60.0) -> None:
    """Takes tasks out of a store, all or none. Their masks stay: other tasks may combine them.

    Raises InputError for a name that is not there.
    """
    wanted = distinct(names)
    database = Database(path, timeout=timeout)
    try:
        contents = Contents(database)
        with database.transaction():
            for name in wanted:
                if contents.task(name) is None:
                    raise InputError(f"no task named {name!r} in {path}; nothing was removed")
                contents.remove_task(name)
    finally:
        database.close()


def compact_store(path: str | os.PathLike, timeout: float = 60.0) -> tuple[int, int]:
    """Gives back the room of removed tasks and folds the log in. Returns bytes before and after.

    Raises StoreError while another process has the file open.
    """
    database = Database(path, timeout=timeout)
    try:
        before = file_bytes(database)
        with database.transaction():
            Contents(database).drop_unused()
        database.vacuum()
    finally:
        database.close()
    return before, file_bytes(database)


def import_tasks(
    path: str | os.PathLike, source: str | os.PathLike, names: Sequence[str] | None = None
) -> list[str]:
    """Copies tasks, all by default, from another store of the same network; returns their names.

    Masks that the store does not have yet are copied too. Its own masks must be the first ones of
    the source, or the source's the first ones of its own. All tasks are copied or none. Raises
    InputError for another network or bank, and for names that are taken or missing.
    """
    wanted = None if names is None else distinct(names)
    with _opened(path, False) as target, _opened(source, True) as origin:
        to, of = Contents(target), Contents(origin)
        with target.transaction(), origin.snapshot():
            _check_network(to, of, path, source)
            _import_masks(to, of, path, source)
            shared = of.shared()
            if shared is not None:
                to.share(shared)
            chosen = list(of.task_names()) if wanted is None else wanted
            for name in chosen:
                found = of.task(name)
                if found is None:
                    raise InputError(f"no task named {name!r} in {source}; nothing was imported")
                if to.has_task(name):
                    raise InputError(f"{path} has a task {name!r} already; nothing was imported")
                to.add_task(found[1])
        return chosen


def _opened(path: str | os.PathLike, readonly: bool) -> closing[Database]:
    return closing(Database(path, readonly=readonly, copy_old=readonly))


def _check_network(to: Contents, of: Contents, path: Any, source: Any) -> None:
    ours, theirs = to.head().backbone, of.head().backbone
    if any(ours.get(each) != theirs.get(each) for each in SAME):
        raise InputError(f"{source} holds tasks of another network than {path}")


def _import_masks(to: Contents, of: Contents, path: Any, source: Any) -> None:
    """Appends the masks that only the source has, after checking that the others are the same."""
    count = to.state().masks
    for ours, other in zip(to.masks(), of.masks(), strict=False):
        if (ours.name, ours.digest) != (other.name, other.digest):
            raise InputError(
                f"mask {other.name!r} of {source} is not mask {ours.name!r} of {path}; tasks can "
                "only be copied between stores that began with the same masks"
            )
    for position, mask in enumerate(of.masks(count), count):
        to.add_mask(position, mask)
