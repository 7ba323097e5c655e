"""Changes a store without a learner: removes and copies tasks, gives back unused room."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count as count_from
from itertools import takewhile
from typing import Any

from torch import nn

from impresslearn.errors import InputError
from impresslearn.store.backend import StoreBackend, StoredTasks
from impresslearn.store.contents import Contents
from impresslearn.store.file import StoreFile
from impresslearn.store.network import checked_head, network_of
from impresslearn.store.rows import TaskRow
from impresslearn.store.writing import distinct

SAME = ("fingerprint", "layers", "num_classes", "norm", "head")
"""What must be equal in the heads of two stores that exchange tasks."""


def remove_tasks(
    path: str | os.PathLike, names: Sequence[str], timeout: float = 60.0
) -> dict[str, int]:
    """Takes tasks out of a store, all or none, with their masks where no other task needs them.

    Their former versions go with them; those of other tasks still need their masks. A name may also
    be that of a mask that belongs to no task. Returns the masks that stay, with how many tasks
    combine each. Raises InputError for a name that is not there, and for a mask of no task that
    cannot go.
    """
    wanted = distinct(names)
    with _changing(path, timeout) as contents, contents.database.transaction():
        positions = contents.mask_positions()
        owned: list[str] = []
        alone: list[str] = []
        for name in wanted:
            task = contents.task(name)
            if task is not None:
                contents.remove_task(task)
                owned += _learned_with(task, contents, positions)
            elif name in positions:
                alone.append(name)
            else:
                raise InputError(f"no task named {name!r} in {path}; nothing was removed")
        users = _users(contents, {name: positions[name] for name in (*owned, *alone)})
        for name in alone:
            if users[name]:
                raise InputError(
                    f"mask {name!r} cannot go, as {users[name]:,} of the tasks in {path} combine "
                    "it; nothing was removed"
                )
        going = {positions[name] for name, count in users.items() if not count}
        if going:
            contents.remove_masks(going)
        return {name: count for name, count in users.items() if count}


def _learned_with(task: TaskRow, contents: Contents, positions: Mapping[str, int]) -> Iterator[str]:
    """The masks that were learned with a basis task: its own, and those of the other seeds."""
    if task.mask in positions:
        others = (f"{task.mask}/{number}" for number in count_from(1))
        yield str(task.mask)
        yield from takewhile(lambda each: each in positions and not contents.has_task(each), others)


def _users(contents: Contents, positions: Mapping[str, int]) -> dict[str, int]:
    """How many tasks need each mask: those whose own it is, and those of which any version
    combines so many.
    """
    users = dict.fromkeys(positions, 0)
    for task in contents.tasks() if positions else ():
        versions = (*contents.former_versions(task), task)
        num_masks = max(each.num_masks for each in versions)
        for name, position in positions.items():
            users[name] += task.mask == name if task.mask else num_masks > position
    return users


def compact_store(path: str | os.PathLike, timeout: float = 60.0) -> tuple[int, int]:
    """Gives back the room of removed tasks and folds the log in. Returns bytes before and after.

    Raises StoreError while another process has the file open.
    """
    with _changing(path, timeout) as contents:
        before = contents.file.nbytes()
        with contents.database.transaction():
            contents.drop_unused()
        contents.database.vacuum()
    return before, contents.file.nbytes()


def import_tasks(
    path: str | os.PathLike,
    source: str | os.PathLike,
    names: Sequence[str] | None = None,
    *,
    module: nn.Module | None = None,
) -> list[str]:
    """Copies tasks, all by default, from another store of the same network; returns their names.

    Their former versions come along.

    Masks that the store does not have yet are copied too. Its own masks must be the first ones of
    the source, or the source's the first ones of its own. All tasks are copied or none, each only
    after it was decoded: no source can spoil the store. module: as in `load`. Raises InputError for
    another network or bank, and for names that are taken or missing; StoreError for a source that
    is damaged.
    """
    wanted = None if names is None else distinct(names)
    with _changing(path) as to, closing(Contents(StoreFile.at(source, readonly=True))) as of:
        with to.database.transaction(), of.database.snapshot():
            head, other = checked_head(to), of.head()
            networks = [{"head": "shared", **each.backbone} for each in (head, other)]
            if any(len({str(each.get(key)) for each in networks}) > 1 for key in SAME):
                raise InputError(f"{source} holds tasks of another network than {path}")
            _check_preprocessing(*(each.settings.get("preprocessing") for each in (head, other)))
            backend = StoreBackend(of, network_of(to, head, module))
            _check_scale(StoredTasks(to, backend.backbone), backend.tasks)
            _import_masks(to, of, backend)
            _import_projections(to, of, backend)
            if backend.shared() is not None:
                to.share(of.shared() or b"")
            chosen = list(of.task_names()) if wanted is None else wanted
            positions, tasks = of.mask_positions(), StoredTasks(of, backend.backbone)
            for name in chosen:
                task = of.task(name)
                if task is None:
                    raise InputError(f"no task named {name!r} in {source}; nothing was imported")
                if to.has_task(name):
                    raise InputError(f"{path} has a task {name!r} already; nothing was imported")
                if task.mask and positions.get(task.mask, task.num_masks) >= task.num_masks:
                    raise of.file.damaged(f"task {name!r} has a mask that is not there")
                for version in (*of.former_versions(task), task):
                    tasks.decoded(version)
                    (to.replace_task if to.has_task(name) else to.add_task)(version)
        return chosen


def _import_masks(to: Contents, of: Contents, backend: StoreBackend) -> None:
    """Appends the masks that only the source has, after checking that the others are the same."""
    count = to.state().masks
    for ours, other in zip(to.masks(), of.masks(), strict=False):
        if (ours.name, ours.digest) != (other.name, other.digest):
            raise InputError(
                f"mask {other.name!r} of {of.file.path} is not mask {ours.name!r} of "
                f"{to.file.path}; tasks can only be copied between stores that began with the same "
                "masks"
            )
    for mask in of.masks(count):
        backend.decoded_mask(mask)
        to.add_mask(mask)


def _import_projections(to: Contents, of: Contents, backend: StoreBackend) -> None:
    """Appends the projections of features that only the source has; the others must be the same."""
    for number in range(1, of.projections() + 1):
        backend.projection(number)
        if number > to.projections():
            to.add_projection(of.projection(number))
        elif of.projection(number) != to.projection(number):
            raise InputError(
                f"projection {number} of {of.file.path} is not that of {to.file.path}; tasks can "
                "only be copied between stores whose features were learned alike"
            )


def _changing(path: str | os.PathLike, timeout: float = 60.0) -> closing[Contents]:
    return closing(Contents(StoreFile.at(path, timeout=timeout)))


def _check_preprocessing(ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> None:
    """Raises InputError where tasks would see other inputs than they were learned from."""
    one, other = ({"preprocessing": bool(each), **(each or {})} for each in (ours, theirs))
    if not (one.get("columns") and other.get("columns")):  # one of them goes by position
        one["columns"] = other["columns"] = None
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            raise InputError(
                f"the stores differ in the preprocessing of inputs, in {name}: tasks would see "
                "other inputs than they were learned from"
            )


def _check_scale(ours: StoredTasks, theirs: StoredTasks) -> None:
    """Raises InputError where inputs are scaled as the first task's, and those differ."""
    firsts = (next(iter(each.values()), None) for each in (ours, theirs))
    one, other = (each and each.history.get("metrics", {}).get("pixels") for each in firsts)
    if len(ours) and other is not None and one != other:
        raise InputError(
            "the stores scale inputs differently, as their first tasks' were: one of them uint8 as "
            "pixels; tasks would see other inputs than they were learned from"
        )
