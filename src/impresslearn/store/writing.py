"""New stores, whole or not at all.

A store is written beside its final name, in one piece and without a log, made certain on the disk
and then put in place in one step. An older store of that name is kept closed meanwhile: a log of it
that was left beside the new file would be applied to it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from impresslearn.errors import InputError, StoreError
from impresslearn.state.state import LearnerState
from impresslearn.state.tasks import LearnedTask
from impresslearn.store.contents import Contents
from impresslearn.store.database import Database
from impresslearn.store.masks import encode_packed
from impresslearn.store.networks import LARGEST_UNSTORED, describe, tensor_records
from impresslearn.store.records import encode_statistics, encode_task
from impresslearn.store.target import LOGS, Target

WEIGHTS = ("stored", "seed")
PATIENCE = 2.0
"""Seconds to wait for whoever is just closing or replacing the same file."""


def write_store(
    state: LearnerState,
    settings: Mapping[str, Any],
    path: str | os.PathLike,
    *,
    weights: str = "stored",
    overwrite: bool = False,
    names: Collection[str] | None = None,
) -> Path:
    """Writes everything that a state holds to one new file, whole or not at all.

    weights: "stored", or "seed" where the network can be drawn again from its settings. names: the
    tasks to write, with the masks up to the last one that they combine; by default everything.
    Raises InputError for a path that is taken, unless `overwrite`, UnknownTaskError for a name that
    was never learned, and StoreError where the file cannot be written.
    """
    _check_weights(state, weights)
    chosen = None if names is None else distinct(names)
    with _replacing(Target.of(path, readonly=False, timeout=0.0), overwrite) as temporary:
        database = Database.create(temporary)
        try:
            with state.still(), database.transaction():
                _write(Contents(database), state, settings, weights == "stored", chosen)
        finally:
            database.close()
    return Path(path)


def distinct(names: Iterable[str]) -> list[str]:
    """Task names, each once, in their order. Raises InputError for a single string."""
    if isinstance(names, (str, bytes)):
        raise InputError(f"tasks are a sequence of names, got the single name {names!r}")
    return list(dict.fromkeys(names))


def _check_weights(state: LearnerState, weights: str) -> None:
    if weights not in WEIGHTS:
        raise InputError(f"weights must be {' or '.join(WEIGHTS)}, got {weights!r}")
    if weights == "seed" and state.backbone.spec is None:
        raise InputError("weights='seed' needs a network of create_backbone; yours was adapted")
    if weights == "seed" and state.backbone.num_parameters > LARGEST_UNSTORED:
        raise InputError(
            f"weights='seed' is for networks of at most {LARGEST_UNSTORED:,} parameters; yours has "
            f"{state.backbone.num_parameters:,}"
        )


def _write(
    contents: Contents,
    state: LearnerState,
    settings: Mapping[str, Any],
    with_weights: bool,
    names: list[str] | None,
) -> None:
    contents.write_head(describe(state.backbone), settings, _version())
    if with_weights:
        for record in tensor_records(state.backbone):
            contents.add_tensor(*record)
    bank, layers = state.bank, state.backbone.layers
    count = len(bank)
    if names is not None:
        count = max((state.tasks.learned(name).num_masks for name in names), default=0)
    for position in range(count):
        contents.add_mask(position, encode_packed(bank.packed(position), layers))
    if state.shared is not None:
        contents.share(encode_statistics(state.shared))
    for task in _chosen(state, names):
        state.check(task)
        contents.add_task(encode_task(task, state.backbone))


def _chosen(state: LearnerState, names: list[str] | None) -> Iterator[LearnedTask]:
    return state.tasks.all() if names is None else map(state.tasks.learned, names)


@contextmanager
def _replacing(target: Target, overwrite: bool) -> Iterator[Path]:
    """A temporary name in the same folder, which takes the target's name at the end."""
    place = target.place
    _check_place(target, overwrite)
    temporary = place.with_name(f".impresslearn-{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        _synchronise(temporary)
        with _retired(target):
            _put(temporary, target, overwrite)
        _synchronise(place.parent)
    except OSError as error:
        raise StoreError(f"cannot write {target.path}: {error.strerror or error}") from None
    except StoreError as error:  # names the temporary file
        line = str(error).replace(str(temporary), str(target.path))
        raise StoreError(line) from None
    finally:
        for suffix in ("", *LOGS):
            with suppress(OSError):
                temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)


def _check_place(target: Target, overwrite: bool) -> None:
    try:
        if target.place.is_dir():
            raise InputError(f"{target.path} is a folder; name a file")
        if target.place.exists() and not target.place.is_file():
            raise InputError(f"{target.path} is no ordinary file; choose another name")
        if target.place.exists() and not overwrite:
            raise _taken(target)
        if not target.place.parent.is_dir():
            raise StoreError(f"cannot write {target.path}: there is no folder {target.path.parent}")
    except OSError as error:
        raise StoreError(f"cannot write {target.path}: {error.strerror or error}") from None


def _taken(target: Target) -> InputError:
    return InputError(f"{target.path} exists already; choose another name or pass overwrite=True")


def _put(temporary: Path, target: Target, overwrite: bool) -> None:
    """Moves the new file to its name, and over another file only where that is allowed."""
    if overwrite:
        with suppress(FileNotFoundError):
            os.chmod(temporary, target.place.stat().st_mode & 0o777)
        os.replace(temporary, target.place)
        return
    try:
        os.link(temporary, target.place)
    except FileExistsError:
        raise _taken(target) from None
    except OSError:  # this file system has no links
        if target.place.exists():
            raise _taken(target) from None
        os.replace(temporary, target.place)


@contextmanager
def _retired(target: Target) -> Iterator[None]:
    """Inside, nobody has the old store open, and no log of it is left.

    Raises StoreError while somebody has it open.
    """
    old = None
    if target.place.exists():
        with suppress(StoreError):  # no store: nothing but its own bytes goes away
            old = Database(target.path, timeout=PATIENCE)
    else:  # logs without their file are good for nothing
        for suffix in LOGS:
            target.log(suffix).unlink(missing_ok=True)
    if old is None:
        for suffix in ("-wal", "-journal"):
            if target.log(suffix).exists():
                raise StoreError(
                    f"{target.path} cannot be opened and is in use, as its log "
                    f"{target.log(suffix).name} says; close it there, or move both away"
                )
        yield
        return
    with closing(old), ExitStack() as alone:
        try:
            alone.enter_context(old.alone())
        except StoreError:
            raise StoreError(f"{target.path} is open elsewhere; close it there first") from None
        yield


def _synchronise(path: Path) -> None:
    """Waits until a file, or on POSIX the names in a folder, are on the disk."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _version() -> str:
    from impresslearn import __version__

    return __version__
