"""Writes a new store, whole or not at all.

A store is written beside its final name, in one piece and without a log, and then put in place in
one step. An older store of that name is kept closed meanwhile: a log of it that was left beside the
new file would be applied to it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from impresslearn.coefficients.norm_statistics import statistics_bytes
from impresslearn.errors import InputError, StoreError
from impresslearn.files import check_place, new_file, reason_of
from impresslearn.kernels.forking import ForkableLock
from impresslearn.state.state import LearnerState
from impresslearn.store.contents import Contents
from impresslearn.store.database import Database
from impresslearn.store.encoding import (
    encode_mask,
    encode_projection,
    encode_task,
)
from impresslearn.store.file import LOGS, StoreFile
from impresslearn.store.network import LARGEST_UNSTORED, describe, tensor_records

Weights = Literal["stored", "seed"]
_replacing = ForkableLock()  # two threads with the old file open would keep each other from it
PATIENCE = 2.0
"""Seconds to wait for whoever is just closing or replacing the same file."""


def write_store(
    state: LearnerState,
    settings: Mapping[str, Any],
    path: str | os.PathLike,
    *,
    weights: Weights = "stored",
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
    file = StoreFile.at(path, timeout=0.0)
    try:
        place = check_place(path)
    except InputError as error:
        raise StoreError(str(error)) from None
    try:
        if place.exists() and not overwrite:
            raise FileExistsError
        with ExitStack() as stack, new_file(place, overwrite=overwrite) as temporary:
            contents = Contents(replace(file, place=temporary), new=True)
            with closing(contents), state.still(), contents.database.transaction():
                _write(contents, state, settings, weights, chosen)
            stack.enter_context(_replacing)
            stack.enter_context(_retired(file))
    except FileExistsError:
        line = f"{path} exists already; choose another name or pass overwrite=True"
        raise InputError(line) from None
    except OSError as error:
        raise StoreError(f"cannot write {path}: {reason_of(error)}") from None
    return Path(path)


def distinct(names: Iterable[str]) -> list[str]:
    """Task names, each once, in their order. Raises InputError for a single string."""
    if isinstance(names, (str, bytes)):
        raise InputError(f"tasks are a sequence of names, got the single name {names!r}")
    return list(dict.fromkeys(names))


def _check_weights(state: LearnerState, weights: str) -> None:
    if weights not in get_args(Weights):
        raise InputError(f"weights must be {' or '.join(get_args(Weights))}, got {weights!r}")
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
    weights: Weights,
    names: list[str] | None,
) -> None:
    contents.write_head(describe(state.backbone), settings)
    for record in tensor_records(state.backbone) if weights == "stored" else ():
        contents.add_tensor(*record)
    bank, layers, learned = state.bank, state.backbone.layers, state.tasks.learned
    count = len(bank)
    if names is not None:
        chosen = [learned(name) for name in names]
        versions = (each for task in chosen for each in (*state.former_versions(task), task))
        count = max((each.num_masks for each in versions), default=0)
    for position in range(count):
        contents.add_mask(encode_mask(bank.packed(position), layers))
    if state.shared is not None:
        contents.share(statistics_bytes(state.shared))
    for number in range(1, state.backend.projections() + 1):
        projection = state.backend.projection(number)
        if projection is None or projection.num_masks > count:
            break  # no task that is written needs it, nor any after it
        contents.add_projection(encode_projection(projection))
    for task in state.tasks.all() if names is None else map(learned, names):
        first, *later = [*state.former_versions(task), task]
        state.check(first)
        contents.add_task(encode_task(first, state.backbone))
        for each in later:
            state.check(each)
            contents.replace_task(encode_task(each, state.backbone))


@contextmanager
def _retired(file: StoreFile) -> Iterator[None]:
    """Inside, nobody has the old store open, and no log of it is left.

    Raises StoreError while somebody has it open.
    """
    old = None
    if file.place.exists():
        with suppress(StoreError):  # no store: nothing but its own bytes goes away
            old = Database(replace(file, timeout=PATIENCE))
    else:  # logs without their file are good for nothing
        for suffix in LOGS:
            file.log(suffix).unlink(missing_ok=True)
    if old is None:
        for log in (file.log("-wal"), file.log("-journal")):
            if log.exists():
                raise StoreError(
                    f"{file.path} cannot be opened and is in use, as its log {log.name} says; "
                    "close it there, or move both away"
                )
        yield
        return
    with closing(old), ExitStack() as alone:
        try:
            alone.enter_context(old.alone())
        except StoreError:
            raise StoreError(f"{file.path} is open elsewhere; close it there first") from None
        yield
