"""Saves a store to a file (whole or not at all); opens, describes, copies and compacts files."""

import errno
import json
import os
import sqlite3
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from impresslearn import __version__
from impresslearn.checks import check_choice, check_integer, composed
from impresslearn.data.preprocessing import shown_settings
from impresslearn.errors import InputError, StoreBusyError, StoreError, StoreFullError
from impresslearn.files import check_place, new_file, reason_of
from impresslearn.kernels.compiling import forkable_lock
from impresslearn.masks.bank import MaskBank
from impresslearn.store.database import Database
from impresslearn.store.network import add_tensors, describe, network_of
from impresslearn.store.rows import Rows, read_rows, task_names
from impresslearn.store.store import Store
from impresslearn.store.tasks import TaskInfo, unknown_task

WeightStorage = Literal["stored", "seed"]
_UNUSED_DOCUMENTS = "DELETE FROM documents WHERE id NOT IN (SELECT form FROM tasks)"
_FORMER_VERSIONS = """
    DELETE FROM tasks WHERE current IS NULL AND version <= (
        SELECT present.version FROM tasks AS present
        WHERE present.current AND present.name = tasks.name
    ) - ?
"""
_TASK_BYTES = """
    SELECT sum(coalesce(length(coefficients), 0) + coalesce(length(statistics), 0) +
               coalesce(length(profile), 0)) FROM tasks WHERE current
"""
_TOTALS = {
    "weights_bytes": "SELECT sum(length(content)) FROM tensors",
    "masks": "SELECT count(*) FROM masks",
    "masks_as_seed": "SELECT count(*) FROM masks WHERE bits IS NULL",
    "masks_bytes": "SELECT sum(length(bits)) FROM masks",
    "bytes_a_stored_mask": "SELECT round(avg(length(bits))) FROM masks",
    "largest_mask_bytes": "SELECT max(length(bits)) FROM masks",
    "projections": "SELECT count(*) FROM projections",
    "projections_bytes": "SELECT sum(length(content)) FROM projections",
    "class_map_bytes": "SELECT sum(length(content)) FROM meta WHERE name = 'class map'",
    "tasks": "SELECT count(*) FROM tasks WHERE current",
    "tasks_bytes": _TASK_BYTES,
    "former_versions_bytes": f"{_TASK_BYTES} IS NULL",
}
_replacing = forkable_lock()  # two threads that open the old file would block each other


def open_file(
    path: str | os.PathLike,
    *,
    module: nn.Module | None,
    device: torch.device | str,
    readonly: bool,
    cache_bytes: int,
    timeout: float = 60.0,
    in_memory: bool = False,
) -> tuple[Store, dict[str, Any]]:
    """Opens a store, whose commits go to the file; returns it with the learner's settings.

    Tasks and masks are read when they are needed. in_memory: read everything and check every page
    and row at once; the file is not needed afterwards.
    """
    database = Database(path, readonly, timeout)
    try:
        if in_memory:
            with closing(database) as file:
                database = Database(copy_of=file)
            if database.rows("PRAGMA integrity_check(1)")[0][0] != "ok":
                raise database.damaged("SQLite finds faults in it")
        head = json.loads(database.content("meta", "head"))
        backbone = network_of(database, head["network"], module, device)
        store = Store(backbone, MaskBank(backbone.layers, backbone.device), cache_bytes, database)
        if in_memory:
            store.catch_up()
            for row in store.rows.task_rows():
                store.check_masks_of(row)
            for table, column in (("meta", "name"), ("projections", "number")):
                for (key,) in database.rows(f"SELECT {column} FROM {table}"):
                    database.content(table, key)
            with database.transaction():
                database.write("DELETE FROM tensors")  # now in the network
        return store, head["settings"]
    except BaseException:
        database.close()
        raise


def save_file(
    store: Store,
    settings: Mapping[str, Any],
    path: str | os.PathLike,
    *,
    weights: WeightStorage = "stored",
    overwrite: bool = False,
    names: Collection[str] | None = None,
) -> None:
    """Writes everything that a store holds to one new file, whole or not at all.

    - settings: the learner's settings as plain values.
    - path, weights, overwrite: as in `ImpressLearner.save`; names: its `tasks`. So are errors.
    """
    check_choice("weights", weights, get_args(WeightStorage))
    if weights == "seed" and (store.backbone.spec is None or store.backbone.pretrained):
        line = "needs a network of create_backbone as it was drawn; yours was adapted"
        raise InputError(f"weights='seed' {line}")
    if isinstance(names, (str, bytes)):
        raise InputError(f"tasks must be a list of names, got {names!r}; write [{names!r}]")
    chosen = None
    if names is not None:
        chosen = list(dict.fromkeys(store.tasks.stored(name).name for name in names))
    place = check_place(path)
    with store.committing:
        copy, form = Database(copy_of=store.database), store.rows.form()
    rows = Rows(copy, store.backbone)
    head = {
        "uuid": uuid.uuid4().hex,
        "created_at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "library_version": __version__,
        "network": describe(store.backbone),
        "settings": dict(settings),
    }
    with copy.transaction():
        store.write_masks(rows)
        if chosen is not None:
            # Delete all other tasks, and the masks and projections that need further masks.
            rows.remove_tasks(set(task_names(copy)) - set(chosen))
            copy.write(_UNUSED_DOCUMENTS)
        if chosen:  # a store without tasks keeps all masks, for tasks to come
            (needed,) = copy.rows("SELECT coalesce(max(num_masks), 0) FROM tasks")[0]
            copy.write("DELETE FROM masks WHERE position >= ?", needed)
            copy.write("DELETE FROM projections WHERE num_masks > ?", needed)
        if form and rows.task(None) is None:  # holds for the tasks to come, as masks do
            head["form"] = form
        rows.write_meta("head", json.dumps(head, allow_nan=False).encode())
        copy.write("DELETE FROM tensors")
        if weights == "stored":
            add_tensors(copy, store.backbone)
    if chosen is not None:
        copy.vacuum()  # leaves nothing of the other tasks in unused pages
    _write(copy, path, place, overwrite)


def describe_store(path: str | os.PathLike) -> dict[str, Any]:
    """What `impresslearn info` prints: network, settings, counts, and the bytes of each part."""
    with closing(Database(path, readonly=True)) as database:
        totals = {name: int(database.rows(sql)[0][0] or 0) for name, sql in _TOTALS.items()}
        head = json.loads(database.content("meta", "head"))
        head["settings"]["preprocessing"] = shown_settings(head["settings"]["preprocessing"])
        return {"path": str(path), **head, "file_bytes": os.path.getsize(path), **totals}


def list_tasks(path: str | os.PathLike, name: str | None = None) -> Iterator[TaskInfo]:
    """The tasks of a store, or the versions of one task. Does not load the network.

    Raises UnknownTaskError for an unknown name, and StoreError for a damaged row.
    """
    with closing(Database(path, readonly=True)) as database:
        condition = ("t.current",) if name is None else ("t.name = ?", composed(name))
        row = None
        for row in read_rows(database, *condition):
            with database.decoding(f"task {row.name[:80]!r}"):
                info = row.info()
            yield info
        if name is not None and row is None:
            raise unknown_task(name, task_names(database))


def diff_stores(first: str | os.PathLike, second: str | os.PathLike) -> dict[str, list[str]]:
    """Names of tasks that only one of two stores has, or whose current versions differ."""
    stores = []
    for path in (first, second):
        with closing(Database(path, readonly=True)) as database:
            stores.append({row.name: row for row in read_rows(database, "t.current")})
    ours, theirs = stores
    both = [name for name in ours if name in theirs]
    return {
        "only_first": [name for name in ours if name not in theirs],
        "only_second": [name for name in theirs if name not in ours],
        "different": [name for name in both if not ours[name].same_numbers(theirs[name])],
    }


def backup_store(
    path: str | os.PathLike, copy: str | os.PathLike, *, overwrite: bool = False
) -> None:
    """Copies a store to a new file, whole or not at all, while others may use and change it.

    To restore a store, copy the backup over it with `overwrite`. Raises InputError if the new file
    exists, and StoreError if it cannot be written or an old file to overwrite is open.
    """
    place = check_place(copy)
    with closing(Database(path, readonly=True)) as database:
        if overwrite and place.exists() and os.path.samefile(path, place):
            raise InputError(f"{copy} is the store itself; choose another name")
        _write(database, copy, place, overwrite)


def _write(database: Database, path: str | os.PathLike, place: Path, overwrite: bool) -> None:
    """Copies a database to a new file at `path`, once nobody has an old file there open."""
    try:
        if place.exists() and not overwrite:
            raise FileExistsError
        with ExitStack() as stack, new_file(place, overwrite=overwrite) as temporary:
            with closing(sqlite3.connect(temporary)) as connection:
                database.copy_to(connection)
            stack.enter_context(_replacing)
            stack.enter_context(_closed_old_file(path, place))  # until it is replaced
    except FileExistsError as error:
        advice = "exists already; choose another name, or overwrite=True (--overwrite)"
        if error.args:  # by `new_file`
            advice = "was made by another process meanwhile; use it, or choose another name"
        raise InputError(f"{path} {advice}") from None
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC or "disk is full" in str(error):
            raise StoreFullError(f"cannot write {path}: the disk is full") from None
        raise StoreError(f"cannot write {path}: {reason_of(error)}") from None


def compact_store(path: str | os.PathLike, versions: int | None = None) -> tuple[int, int]:
    """Frees the space of removed tasks. Returns the file's size in bytes before and after.

    - versions: how many versions of each task to keep, counting the current one; None for all.

    Raises StoreError while another process has the file open, and if the disk has no room for the
    temporary copies that SQLite needs, about twice the size of the file.
    """
    with closing(Database(path)) as database:
        before = os.path.getsize(path)
        with database.transaction():
            if versions is not None:
                database.write(_FORMER_VERSIONS, check_integer("versions", versions, 1))
            database.write(_UNUSED_DOCUMENTS)
        database.vacuum()
        return before, os.path.getsize(path)


@contextmanager
def _closed_old_file(path: str | os.PathLike, place: Path) -> Iterator[None]:
    """Makes sure that nobody has the old file open and that its log is gone.

    SQLite would apply an old log to the new file. Raises StoreError while the old file is open.
    """
    if not place.exists():
        for suffix in ("-wal", "-journal", "-shm"):
            place.with_name(f"{place.name}{suffix}").unlink(missing_ok=True)
        yield
        return
    uri = f"{place.as_uri()}?mode=rw"
    # Another process may be closing or replacing the same file: wait two seconds for it.
    with closing(sqlite3.connect(uri, uri=True, timeout=2.0)) as old:
        try:
            old.execute("PRAGMA journal_mode = DELETE").fetchone()
            old.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if "locked" in str(error):  # a file of another kind has no log
                raise StoreBusyError(f"{path} is open elsewhere; close it there first") from None
        yield
