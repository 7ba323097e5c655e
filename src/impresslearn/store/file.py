"""Whole stores: written, opened, loaded into memory, verified, compacted, merged.

A new store is written beside its final name and put there in one step, so a half-written one never
bears the name. `open_ledger` works on the file; `load_ledger` reads and verifies everything and
lets go of it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from impresslearn.backbones import Backbone
from impresslearn.bank import MaskBank
from impresslearn.errors import InputError, StoreError
from impresslearn.journal import MemoryJournal
from impresslearn.ledger import Ledger
from impresslearn.store.contents import Contents, Head
from impresslearn.store.database import Database
from impresslearn.store.journal import StoreJournal
from impresslearn.store.networks import describe, rebuild, tensor_records
from impresslearn.store.records import encode_packed, encode_statistics, encode_task
from impresslearn.tasks import LearnedTask

WEIGHTS = ("stored", "seed")


@dataclass(frozen=True)
class Opened:
    """A store, ready to work with: its ledger and the learner's settings as plain values."""

    ledger: Ledger
    settings: dict[str, Any]


def write_store(
    ledger: Ledger,
    settings: Mapping[str, Any],
    path: str | os.PathLike,
    *,
    weights: str = "stored",
    overwrite: bool = False,
    names: Collection[str] | None = None,
) -> Path:
    """Writes everything that a ledger holds to one new file, whole or not at all.

    weights: "stored", or "seed" where the network can be drawn again from its settings. names: the
    tasks to write, with the masks up to the last one that they combine; by default everything.
    Raises InputError for a path that is taken, unless `overwrite`, UnknownTaskError for a name that
    was never learned, and StoreError where the file cannot be written.
    """
    if weights not in WEIGHTS:
        raise InputError(f"weights must be {' or '.join(WEIGHTS)}, got {weights!r}")
    if weights == "seed" and ledger.backbone.spec is None:
        raise InputError("weights='seed' needs a network of create_backbone; yours was adapted")
    for name in names or ():
        ledger.tasks.learned(name)
    with _replacing(Path(path), overwrite) as temporary:
        database = Database.create(temporary)
        contents = Contents(database)
        try:
            with database.transaction():
                contents.write_head(describe(ledger.backbone), settings, _version())
                if weights == "stored":
                    for record in tensor_records(ledger.backbone):
                        contents.add_tensor(*record)
                bank, layers = ledger.bank, ledger.backbone.layers
                for position in range(_needed_masks(ledger, names)):
                    contents.add_mask(position, encode_packed(bank.packed(position), layers))
                if ledger.shared is not None:
                    contents.share(encode_statistics(ledger.shared))
                for task in _chosen(ledger, names):
                    contents.add_task(encode_task(task))
        finally:
            database.close()
    return Path(path)


def open_ledger(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    readonly: bool = False,
    timeout: float = 60.0,
    cache_bytes: int = 256 * 1024**2,
) -> Opened:
    """A ledger whose commits go to the file. Tasks and masks are read when they are needed."""
    database = Database(path, readonly=readonly, timeout=timeout)
    try:
        contents = Contents(database)
        head = contents.head()
        backbone = _backbone(contents, head, module).to(device)
        journal = StoreJournal(contents, backbone)
        bank = MaskBank(backbone.layers, backbone.device)
        return Opened(Ledger(backbone, bank, cache_bytes, journal), head.settings)
    except BaseException:
        database.close()
        raise


def load_ledger(
    path: str | os.PathLike,
    *,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    cache_bytes: int = 256 * 1024**2,
) -> Opened:
    """Everything of a store in memory, verified; the file is not needed afterwards."""
    opened = open_ledger(path, module=module, device=device, readonly=True)
    stored = opened.ledger
    database = stored.journal.contents.database  # type: ignore[attr-defined]
    try:
        with database.snapshot():
            _check_pages(database)
            Contents(database).check_sums()
            journal = MemoryJournal()
            ledger = Ledger(stored.backbone, stored.bank, cache_bytes, journal)
            ledger.adopt_shared(stored.shared)
            for task in stored.journal.tasks.values():
                journal.tasks[task.name] = task
        return Opened(ledger, opened.settings)
    finally:
        database.close()


def verify_store(path: str | os.PathLike, module: nn.Module | None = None) -> dict[str, int]:
    """Reads and checks every page, row, mask and weight. Returns how many of each were right.

    Raises StoreError at the first thing that is not as it was written.
    """
    loaded = load_ledger(path, module=module).ledger
    for name in loaded.tasks:
        loaded.coefficients(loaded.tasks.learned(name))
    return {"tasks": len(loaded.tasks), "masks": len(loaded.bank)}


def remove_tasks(path: str | os.PathLike, names: Sequence[str], timeout: float = 60.0) -> None:
    """Takes tasks out of a store, all or none. Their masks stay: other tasks may combine them.

    Raises InputError for a name that is not there.
    """
    database = Database(path, timeout=timeout)
    try:
        contents = Contents(database)
        with database.transaction():
            for name in names:
                if not contents.has_task(name):
                    raise InputError(f"no task named {name!r} in {path}; nothing was removed")
                contents.remove_task(name)
    finally:
        database.close()


def compact_store(path: str | os.PathLike) -> tuple[int, int]:
    """Gives back the room of removed tasks and folds the log in. Returns bytes before and after."""
    database = Database(path)
    before = _size(database.path)
    try:
        with database.transaction():
            used = (
                "SELECT classes FROM tasks UNION SELECT recipe FROM tasks UNION "
                "SELECT form FROM tasks WHERE form IS NOT NULL"
            )
            database.rows(f"DELETE FROM documents WHERE id NOT IN ({used})")
        database.rows("REINDEX")
        database.exclusive()
        database.rows("VACUUM")
    finally:
        database.close()
    return before, _size(database.path)


def import_tasks(
    path: str | os.PathLike, source: str | os.PathLike, names: Sequence[str] | None = None
) -> list[str]:
    """Copies tasks, all by default, from another store of the same network; returns their names.

    Masks that the store does not have yet are copied too. Its own masks must be the first ones of
    the source, or the source's the first ones of its own. All tasks are copied or none. Raises
    InputError for another network or bank, and for names that are taken or missing.
    """
    target, origin = Database(path), Database(source, readonly=True)
    try:
        to, of = Contents(target), Contents(origin)
        if to.head().backbone["fingerprint"] != of.head().backbone["fingerprint"]:
            raise InputError(f"{source} holds tasks of another network than {path}")
        with target.transaction(), origin.snapshot():
            _import_masks(to, of, path, source)
            shared = of.state().shared
            if shared is not None:
                to.share(shared)
            chosen = of.task_names() if names is None else list(names)
            for name in chosen:
                found = of.task(name)
                if found is None:
                    raise InputError(f"no task named {name!r} in {source}; nothing was imported")
                if to.has_task(name):
                    raise InputError(f"{path} has a task {name!r} already; nothing was imported")
                to.add_task(found[1])
        return chosen
    finally:
        target.close()
        origin.close()


def describe_store(path: str | os.PathLike) -> dict[str, Any]:
    """What `store show` prints: network, settings, counts, and where the bytes are."""
    database = Database(path, readonly=True)
    try:
        contents = Contents(database)
        with database.snapshot():
            head, state = contents.head(), contents.state()
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
            "file_bytes": _size(database.path),
            "network": head.backbone,
            "weights_bytes": contents.tensor_bytes(),
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


def _import_masks(to: Contents, of: Contents, path: Any, source: Any) -> None:
    """Appends the masks that only the source has, after checking that the others are the same."""
    own, theirs = list(to.masks()), list(of.masks())
    for ours, other in zip(own, theirs, strict=False):
        if (ours.name, ours.digest) != (other.name, other.digest):
            raise InputError(
                f"mask {other.name!r} of {source} is not mask {ours.name!r} of {path}; tasks can "
                "only be copied between stores that began with the same masks"
            )
    for position, mask in enumerate(theirs[len(own) :], len(own)):
        to.add_mask(position, mask)


def _backbone(contents: Contents, head: Head, module: nn.Module | None) -> Backbone:
    where = str(contents.database.path)
    try:
        return rebuild(head.backbone, contents.tensors(), contents.tensor_bytes(), module, where)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, StoreError):
            raise
        raise contents.database.damaged(f"its network: {error}") from None


def _chosen(ledger: Ledger, names: Collection[str] | None) -> Iterator[LearnedTask]:
    return ledger.tasks.all() if names is None else map(ledger.tasks.learned, names)


def _needed_masks(ledger: Ledger, names: Collection[str] | None) -> int:
    if names is None:
        return len(ledger.bank)
    return max((ledger.tasks.learned(name).num_masks for name in names), default=0)


def _check_pages(database: Database) -> None:
    found = database.row("PRAGMA integrity_check(1)")
    if found != ("ok",):
        raise database.damaged(str(found[0] if found else "no answer to an integrity check"))


@contextmanager
def _replacing(path: Path, overwrite: bool) -> Iterator[Path]:
    """A temporary name in the same folder, which becomes `path` at the end."""
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another name or pass overwrite=True")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        if path.exists():
            _retire(path)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)


def _retire(path: Path) -> None:
    """Makes sure that no log of an old store is left that would be applied to the new one."""
    with suppress(StoreError):  # not a store: nothing but its own bytes goes away
        old = Database(path, timeout=0)
        try:
            old.exclusive()
        finally:
            old.close()
    if path.with_name(path.name + "-wal").exists():
        raise StoreError(f"{path} is in use by another process; close it there first")


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _size(path: Path) -> int:
    logs = (path.with_name(path.name + suffix) for suffix in ("", "-wal"))
    return sum(each.stat().st_size for each in logs if each.exists())


def _version() -> str:
    from impresslearn import __version__

    return __version__
