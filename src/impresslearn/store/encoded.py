"""Tasks encoded to be sent to another machine, with a digest of the store they were learned in."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from impresslearn.checks import check_choice, check_kind
from impresslearn.coefficients.parametrisation import from_plain
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.store.store import Store
from impresslearn.store.tasks import TaskRow, name_taken

OnConflict = Literal["error", "version", "skip"]


@dataclass(frozen=True)
class EncodedTask:
    """A learned task as bytes, which another store with the same network and masks can commit.

    - row: the task as a store keeps it; it can be pickled.
    - base: a digest of the network, preprocessing, masks and shared features of its learner.
    """

    row: TaskRow
    base: bytes

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.row.name


def encode_tasks(store: Store, names: Iterable[str], preprocessing: Any) -> list[EncodedTask]:
    """As `ImpressLearner.encoded`."""
    encoded = []
    for name in names:
        *_, row = store.rows.task_rows(store.tasks.stored(name).name)
        if row.mask is not None:
            line = f"{name!r} is a basis task, whose mask cannot be encoded"
            raise InputError(f"{line}; leave it out, or copy the whole store with save")
        encoded.append(EncodedTask(row, _base(store, row, preprocessing)))
    return encoded


def commit_encoded(
    store: Store, tasks: Sequence[EncodedTask], on_conflict: OnConflict, preprocessing: Any
) -> dict[str, str | ImpressLearnError]:
    """Writes tasks in one transaction. Returns task name -> what was done, or an error."""
    check_choice("on_conflict", on_conflict, get_args(OnConflict))
    outcomes: dict[str, str | ImpressLearnError] = {}
    with store.committing, store.database.transaction():
        for encoded in tasks:
            check_kind("an encoded task", encoded, EncodedTask)
            try:
                outcomes[encoded.name] = _commit(store, encoded, on_conflict, preprocessing)
            except ImpressLearnError as error:
                outcomes[encoded.name] = error
    return outcomes


def _commit(store: Store, encoded: EncodedTask, on_conflict: str, preprocessing: Any) -> str:
    row = encoded.row
    if encoded.base != _base(store, row, preprocessing):
        line = "was learned over another network, masks, shared features or preprocessing; begin"
        line += " from this store, saved by tasks=[] after its first task"
        raise InputError(f"task {row.name!r} {line}")
    present = list(store.rows.task_rows(row.name))[-1:]
    if present and row.same_numbers(present[0]):
        return "unchanged"
    if present and on_conflict == "error":
        raise name_taken(row.name)
    if present and on_conflict == "skip":
        return "skipped"
    version = present[0].version + 1 if present else 1
    store.rows.add_task(replace(row, version=version))
    return f"version {version}" if present else "new"


def _base(store: Store, row: TaskRow, preprocessing: Any) -> bytes:
    """A digest of what a task's numbers refer to: network, inputs, masks and shared features."""
    form, row_of = row.parsed_form, store.database.row
    held = min(row.num_masks, len(store.bank))
    parts: list[Any] = [store.backbone.identity, held < row.num_masks]
    parts += map(store.mask_digest, range(held))
    parts += [preprocessing.settings()] if preprocessing else []
    # The checksums of the shared values that the task reads.
    for name in ("shared", "features") if form.get("profile") == "features" else ("shared",):
        parts.append(row_of("SELECT checksum FROM meta WHERE name = ?", name))
    number = max((getattr(part, "projection", 0) for part in from_plain(form["parts"])), default=0)
    if number:
        parts.append(row_of("SELECT checksum FROM projections WHERE number = ?", number))
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()
