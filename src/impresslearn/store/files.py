"""Files that hold a store: saved whole or not at all, opened, described, checked and edited."""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from impresslearn import __version__
from impresslearn.checks import check_choice
from impresslearn.errors import InputError, StoreError
from impresslearn.files import check_place, new_file, reason_of
from impresslearn.kernels.forking import ForkableLock
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.store.database import Database, create
from impresslearn.store.encoding import checksum, decode_mask
from impresslearn.store.network import (
    LARGEST_UNSTORED,
    add_tensors,
    describe,
    network_of,
)
from impresslearn.store.rows import Rows
from impresslearn.store.store import CACHE_BYTES, Store

Weights = Literal["stored", "seed"]
MUST_MATCH = ("fingerprint", "layers", "num_classes", "norm", "head")
"""What must be equal in two stores that exchange tasks."""
CLOSING_TIMEOUT = 2.0
"""Seconds to wait for whoever is just closing or replacing the same file."""
_replacing = ForkableLock()  # two threads with the old file open would keep each other from it


@dataclass(frozen=True)
class Opened:
    """A store with the learner's settings as plain values."""

    store: Store
    settings: dict[str, Any]


def open_file(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    readonly: bool = False,
    timeout: float = 60.0,
    cache_bytes: int = CACHE_BYTES,
) -> Opened:
    """A store whose commits go to the file; tasks and masks are read when they are needed."""
    database = Database(path, readonly, timeout)
    try:
        head = read_head(database)
        backbone = network_of(database, head["network"], module, device)
        bank = MaskBank(backbone.layers, backbone.device)
        return Opened(Store(backbone, bank, cache_bytes, database), head["settings"])
    except BaseException:
        database.close()
        raise


def load_file(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    cache_bytes: int = CACHE_BYTES,
) -> Opened:
    """Everything of a store in memory, with every page and row checked; the file can go."""
    opened = open_file(path, module=module, device=device, readonly=True, cache_bytes=cache_bytes)
    with closing(opened.store.database) as database, database.snapshot():
        database.check_integrity()
        bank = opened.store.bank
        memory = Database()
        database.copy_to(memory.writing.connection)  # type: ignore[arg-type]  # just created
    with memory.transaction():
        memory.write("DELETE FROM tensors")  # the network has them
    store = Store(opened.store.backbone, bank, cache_bytes, memory)
    names = set(bank.names)
    for row in store.rows.task_rows():
        if row.num_masks > len(bank) or (row.mask is not None and row.mask not in names):
            raise database.damaged(f"task {row.name[:80]!r} combines masks that are not there")
    return Opened(store, opened.settings)


def save_file(
    store: Store,
    settings: Mapping[str, Any],
    path: str | os.PathLike,
    *,
    weights: Weights = "stored",
    overwrite: bool = False,
    names: Collection[str] | None = None,
) -> Path:
    """Writes everything that a store holds to one new file, whole or not at all.

    - settings: of the learner, as plain values.
    - weights: "stored", or "seed" where the network can be drawn again from its settings.
    - overwrite: whether a file of that name may be replaced.
    - names: the tasks to write, with the masks up to the last one that they combine; None for all.

    Raises InputError for a path that is taken, UnknownTaskError for an unknown name, and StoreError
    where the file cannot be written.
    """
    _check_weights(store.backbone, weights)
    chosen = None if names is None else distinct(names)
    for name in chosen or ():
        store.tasks.learned(name)
    try:
        place = check_place(path)
    except InputError as error:
        raise StoreError(str(error)) from None
    try:
        if place.exists() and not overwrite:
            raise FileExistsError
        # The new file is complete before the old one is touched.
        with ExitStack() as stack, new_file(place, overwrite=overwrite) as temporary:
            with store.committing():
                _write(store, settings, temporary, str(path), weights, chosen)
            stack.enter_context(_replacing)
            stack.enter_context(_closed_old_file(path, place))  # until the new one is in place
    except FileExistsError:
        line = f"{path} exists already; choose another name or pass overwrite=True"
        raise InputError(line) from None
    except sqlite3.Error as error:
        full = "the disk is full" if "full" in str(error) else str(error)
        raise StoreError(f"cannot write {path}: {full}") from None
    except OSError as error:
        raise StoreError(f"cannot write {path}: {reason_of(error)}") from None
    return Path(path)


def describe_store(path: str | os.PathLike) -> dict[str, Any]:
    """What `impresslearn show` prints: network, settings, counts, and where the bytes are."""
    with closing(Database(path, readonly=True)) as database, database.snapshot():
        head = read_head(database)

        def total(query: str) -> int:
            return int(database.rows(query)[0][0] or 0)

        task_bytes = (
            "SELECT sum(coalesce(length(coefficients), 0) + coalesce(length(statistics), 0) + "
            "coalesce(length(profile), 0)) FROM tasks WHERE current"
        )
        masks, stored = total("SELECT count(*) FROM masks"), total("SELECT count(bits) FROM masks")
        mask_bytes = total("SELECT sum(length(bits)) FROM masks")
        return {
            "path": str(path),
            "uuid": head["uuid"],
            "created_at": head["created_at"],
            "library_version": head["library_version"],
            "file_bytes": database.nbytes(),
            "network": head["network"],
            "weights_bytes": total("SELECT sum(length(content)) FROM tensors"),
            "settings": head["settings"],
            "masks": masks,
            "masks_as_seed": masks - stored,
            "masks_bytes": mask_bytes,
            "bytes_a_stored_mask": round(mask_bytes / stored) if stored else None,
            "largest_mask_bytes": total("SELECT max(length(bits)) FROM masks") or None,
            "projections": total("SELECT count(*) FROM projections"),
            "projections_bytes": total("SELECT sum(length(content)) FROM projections"),
            "tasks": total("SELECT count(*) FROM tasks WHERE current"),
            "tasks_bytes": total(task_bytes),
            "former_versions_bytes": total(task_bytes.replace("current", "current IS NULL")),
        }


def remove_tasks(
    path: str | os.PathLike, names: Sequence[str], timeout: float = 60.0
) -> dict[str, int]:
    """Takes tasks out of a file, all or none, with their masks where no other task needs them.

    A name may also be that of a mask that belongs to no task. Returns the masks that stay, with the
    number of tasks that combine each. Raises InputError for a name that is not there, and for a
    mask that cannot go.
    """
    wanted = distinct(names)
    with _edited(path, timeout) as rows, rows.database.transaction():
        places = {name: n for n, (name,) in enumerate(_mask_names(rows))}
        owned: list[str] = []
        alone: list[str] = []
        for name in wanted:
            versions = list(rows.task_rows([name]))
            if versions:
                rows.remove_task(name)
                owned += _masks_learned_with(versions[-1].mask, places, rows)
            elif name in places:
                alone.append(name)
            else:
                raise InputError(f"no task named {name!r} in {path}; nothing was removed")
        users = _users(rows, {name: places[name] for name in (*owned, *alone)})
        for name in alone:
            if users[name]:
                raise InputError(
                    f"mask {name!r} cannot go, as {users[name]:,} of the tasks in {path} combine "
                    "it; nothing was removed"
                )
        if going := {places[name] for name, count in users.items() if not count}:
            rows.remove_masks(going)
        return {name: count for name, count in users.items() if count}


def compact_store(path: str | os.PathLike, timeout: float = 60.0) -> tuple[int, int]:
    """Gives back the room of removed tasks and folds the log in. Returns bytes before and after.

    Raises StoreError while another process has the file open.
    """
    with _edited(path, timeout) as rows:
        database = rows.database
        before = database.nbytes()
        with database.transaction():
            database.write("DELETE FROM documents WHERE id NOT IN (SELECT form FROM tasks)")
        database.vacuum()
        return before, database.nbytes()


def import_tasks(
    path: str | os.PathLike,
    source: str | os.PathLike,
    names: Sequence[str] | None = None,
    *,
    module: nn.Module | None = None,
) -> list[str]:
    """Copies tasks with their versions, all by default, from another store of the same network.

    Masks and projections that the store does not have yet are copied too: its own must be the first
    ones of the source, or the source's the first ones of its own. All tasks are copied or none.
    Returns the names. Raises InputError for another network or bank, and for names that are taken
    or missing; StoreError for a source that is damaged.
    """
    wanted = None if names is None else distinct(names)
    with _edited(path) as to, closing(Database(source, readonly=True)) as other:
        with to.database.transaction(), other.snapshot():
            head, theirs = read_head(to.database), read_head(other)
            if any(head["network"].get(key) != theirs["network"].get(key) for key in MUST_MATCH):
                raise InputError(f"{source} holds tasks of another network than {path}")
            backbone = network_of(to.database, head["network"], module)
            to, of = Rows(to.database, backbone), Rows(other, backbone)
            _check_inputs(to, of, head["settings"], theirs["settings"])
            _import_masks(to, of)
            _import_projections(to, of)
            _import_shared(to, of)
            chosen = list(of.names()) if wanted is None else wanted
            present = set(to.names())
            for name in chosen:
                versions = list(of.task_rows([name]))
                if not versions:
                    raise InputError(f"no task named {name!r} in {source}; nothing was imported")
                if name in present:
                    raise InputError(f"{path} has a task {name!r} already; nothing was imported")
                with of.readable(f"task {name[:80]!r}"):
                    for task in to.add_tasks(versions):
                        if task.coefficients is not None:
                            task.coefficients.restore(backbone)
        return chosen


def read_head(database: Database) -> dict[str, Any]:
    """What a store is: uuid, created_at, library_version, network and settings."""
    row = database.row("SELECT content, checksum FROM meta WHERE name = 'head'")
    if row is None or checksum(row[0]) != row[1]:
        raise database.damaged("its head is not what was written")
    return json.loads(row[0])


def distinct(names: Iterable[str]) -> list[str]:
    """Task names, each once, in their order. Raises InputError for a single string."""
    if isinstance(names, (str, bytes)):
        raise InputError(f"tasks are a sequence of names, got the single name {names!r}")
    return list(dict.fromkeys(names))


def _check_weights(backbone: Backbone, weights: str) -> None:
    check_choice("weights", weights, get_args(Weights))
    if weights == "seed" and backbone.spec is None:
        raise InputError("weights='seed' needs a network of create_backbone; yours was adapted")
    if weights == "seed" and backbone.num_parameters > LARGEST_UNSTORED:
        raise InputError(
            f"weights='seed' is for networks of at most {LARGEST_UNSTORED:,} parameters; yours has "
            f"{backbone.num_parameters:,}"
        )


def _write(
    store: Store,
    settings: Mapping[str, Any],
    temporary: Path,
    shown: str,
    weights: Weights,
    names: list[str] | None,
) -> None:
    """A new file with all rows of a store, or those of some tasks, and no log."""
    with closing(create(temporary)) as connection:
        store.database.copy_to(connection)
        connection.execute("PRAGMA journal_mode = DELETE")
    with closing(Database(temporary, shown=shown)) as database:
        rows = Rows(database, store.backbone)
        with database.transaction():
            store.write_masks(rows)
            if names is not None:
                _keep_only(rows, names)
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            head = {
                "uuid": uuid.uuid4().hex,
                "created_at": now,
                "library_version": __version__,
                "network": describe(store.backbone),
                "settings": dict(settings),
            }
            rows.write_meta("head", json.dumps(head, allow_nan=False).encode())
            if rows.meta("bank") is None:
                rows.write_meta("bank", uuid.uuid4().hex.encode())
            database.write("DELETE FROM tensors")
            if weights == "stored":
                add_tensors(database, store.backbone)
        if names is not None:
            database.vacuum()  # leaves nothing of the other tasks in unused pages


def _keep_only(rows: Rows, names: list[str]) -> None:
    """Deletes all other tasks, and the masks and projections behind the last one needed."""
    write = rows.database.write
    for name in set(rows.names()) - set(names):
        write("DELETE FROM tasks WHERE name = ?", name)
    write("DELETE FROM documents WHERE id NOT IN (SELECT form FROM tasks)")
    (needed,) = rows.database.rows("SELECT coalesce(max(num_masks), 0) FROM tasks")[0]
    write("DELETE FROM masks WHERE position >= ?", needed)
    first = "SELECT coalesce(min(number), 0) FROM projections WHERE num_masks > ?"
    if (number := rows.database.rows(first, needed)[0][0]) > 0:
        write("DELETE FROM projections WHERE number >= ?", number)


@contextmanager
def _closed_old_file(path: str | os.PathLike, place: Path) -> Iterator[None]:
    """Makes sure that nobody has the old file open and that no log of it is left.

    SQLite would apply an old log to the new file. Raises StoreError while somebody has it open.
    """
    old = None
    if place.exists():
        with suppress(StoreError):  # not a store: nothing but its own bytes goes away
            old = Database(place, timeout=CLOSING_TIMEOUT)
    if old is not None:
        with closing(old):
            try:
                with old.exclusive():
                    yield
            except StoreError:
                raise StoreError(f"{path} is open elsewhere; close it there first") from None
        return
    for suffix in ("-wal", "-journal", "-shm"):
        log = place.with_name(f"{place.name}{suffix}")
        if place.exists() and log.exists():
            raise StoreError(
                f"{path} cannot be opened and is in use, as its log {log.name} says; close it "
                "there, or move both away"
            )
        log.unlink(missing_ok=True)  # a log without its file is good for nothing
    yield


@contextmanager
def _edited(path: str | os.PathLike, timeout: float = 60.0) -> Iterator[Rows]:
    """The rows of a file, without its network: nothing in them is decoded."""
    with closing(Database(path, timeout=timeout)) as database:
        yield Rows(database, None)  # type: ignore[arg-type]


def _mask_names(rows: Rows) -> list[tuple]:
    return rows.database.rows("SELECT name FROM masks ORDER BY position")


def _masks_learned_with(mask: str | None, places: Mapping[str, int], rows: Rows) -> list[str]:
    """A basis task's own mask, and those of the other seeds that were learned with it."""
    if mask not in places:
        return []
    masks, names = [str(mask)], set(rows.names())
    while (other := f"{mask}/{len(masks)}") in places and other not in names:
        masks.append(other)
    return masks


def _users(rows: Rows, places: Mapping[str, int]) -> dict[str, int]:
    """For each mask the number of tasks that need it, in any version."""
    users: dict[str, set[str]] = {name: set() for name in places}
    for row in rows.task_rows() if places else ():
        for name, place in places.items():
            if row.mask == name or (row.mask is None and row.num_masks > place):
                users[name].add(row.name)
    return {name: len(tasks) for name, tasks in users.items()}


def _import_masks(to: Rows, of: Rows) -> None:
    """Appends the masks that only the source has, after checking that the others are the same."""
    ours, theirs = list(to.masks()), list(of.masks())
    for mine, other in zip(ours, theirs, strict=False):
        if (mine.name, mine.digest) != (other.name, other.digest):
            raise InputError(
                f"mask {other.name!r} of {of.database.where} is not mask {mine.name!r} of "
                f"{to.database.where}; tasks can only be copied between stores that began with the "
                "same masks"
            )
    for mask in theirs[len(ours) :]:
        with of.readable(f"mask {mask.name[:80]!r}"):
            decode_mask(mask, to.backbone.layers)
    to.add_masks(len(ours), theirs[len(ours) :])


def _import_projections(to: Rows, of: Rows) -> None:
    """Appends the projections of features that only the source has; the others must be equal."""
    query = "SELECT content FROM projections WHERE number = ?"
    for number in range(1, of.projections() + 1):
        projection = of.projection(number)
        if projection is not None and number > to.projections():
            to.add_projection(projection)
        elif of.database.row(query, number) != to.database.row(query, number):
            raise InputError(
                f"projection {number} of {of.database.where} is not that of {to.database.where}; "
                "tasks can only be copied between stores whose features were learned alike"
            )


def _import_shared(to: Rows, of: Rows) -> None:
    ours, theirs = to.meta("shared"), of.meta("shared")
    if ours is None and theirs is not None:
        to.write_meta("shared", theirs)
    elif theirs is not None and ours != theirs:
        line = f"{to.database.where} has other norm statistics that all its tasks share"
        raise InputError(line)


def _check_inputs(to: Rows, of: Rows, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raises InputError where tasks would see other inputs than they were learned from."""
    one, other = (
        {"preprocessing": bool(settings["preprocessing"]), **(settings["preprocessing"] or {})}
        for settings in (ours, theirs)
    )
    if not (one.get("columns") and other.get("columns")):  # one of them goes by position
        one["columns"] = other["columns"] = None
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            raise InputError(
                f"the stores differ in the preprocessing of inputs, in {name}: tasks would see "
                "other inputs than they were learned from"
            )
    firsts = [rows.first() for rows in (to, of)]
    scales = [task and task.history.get("metrics", {}).get("pixels") for task in firsts]
    if firsts[0] is not None and scales[1] is not None and scales[0] != scales[1]:
        raise InputError(
            "the stores scale inputs differently, as their first tasks' were: one of them uint8 as "
            "pixels; tasks would see other inputs than they were learned from"
        )
