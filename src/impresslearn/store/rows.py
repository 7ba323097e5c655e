"""Reads and writes the rows of a store: meta, tensors, masks, projections and tasks.

Everything that changes rows must be inside `Database.transaction`.
"""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from cachetools import LRUCache

from impresslearn.coefficients.readout import Projection
from impresslearn.errors import InputError
from impresslearn.networks import Backbone
from impresslearn.store.database import Database
from impresslearn.store.encoding import (
    UNREADABLE,
    MaskRow,
    TaskRow,
    checksum,
    decode_projection,
    decode_task,
    encode_projection,
)
from impresslearn.store.tasks import LearnedTask

DECODED_TASKS = 4096
"""Tasks that are kept decoded."""
BATCH = 1000
_TASK = """
    SELECT t.name, t.version, t.mask, t.num_masks, d.text, t.coefficients, t.statistics, t.profile,
           t.history, t.id, t.checksum, t.number
    FROM tasks AS t LEFT JOIN documents AS d ON d.id = t.form
"""
_NEXT = "(SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'tasks')"
_INSERT = f"""
    INSERT INTO tasks (number, name, version, current, mask, num_masks, form, coefficients,
                       statistics, profile, history, checksum)
    VALUES (coalesce(?, {_NEXT}), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Rows:
    """The rows of one store.

    - database: their tables.
    - backbone: the network that the tasks belong to.
    """

    def __init__(self, database: Database, backbone: Backbone) -> None:
        self.database, self.backbone = database, backbone
        self._decoded: LRUCache[str | None, LearnedTask] = LRUCache(DECODED_TASKS)
        self._generation: int | None = None
        self._lock = threading.Lock()

    # Tasks, present versions first of all.

    def task(self, name: str) -> LearnedTask | None:
        """The present version of a task, or None. Raises StoreError for a damaged one."""
        return self._cached(name, f"{_TASK} WHERE t.current AND t.name = ?", name)

    def first(self) -> LearnedTask | None:
        """The task that was learned first, or None."""
        return self._cached(None, f"{_TASK} WHERE t.current ORDER BY t.number LIMIT 1")

    def _cached(self, key: str | None, query: str, *values: str) -> LearnedTask | None:
        """The task of a query, decoded once for as long as nothing is committed."""
        generation = self.database.generation()
        with self._lock:
            if generation is not None and generation != self._generation:
                self._decoded.clear()
                self._generation = generation
            task = None if generation is None else self._decoded.get(key)
        if task is not None:
            return task
        row = self.database.row(query, *values)
        if row is None:
            return None
        task = self._decode(row)
        with self._lock:
            if generation is not None:
                self._decoded[key] = task
        return task

    def tasks(self) -> Iterator[LearnedTask]:
        """All tasks in the order they were learned, also those that are added meanwhile."""
        return map(self._decode, self._batches())

    def task_rows(self, names: Iterable[str] | None = None) -> Iterator[TaskRow]:
        """All versions of these tasks, or of all, as they are written."""
        order = "ORDER BY t.number, t.version"
        if names is None:
            yield from map(self._checked, self.database.rows(f"{_TASK} {order}"))
            return
        for name in names:
            yield from map(
                self._checked, self.database.rows(f"{_TASK} WHERE t.name = ? {order}", name)
            )

    def names(self) -> Iterator[str]:
        """The tasks' names, in the order they were learned."""
        query = "SELECT name FROM tasks WHERE current ORDER BY number"
        return (name for (name,) in self.database.rows(query))

    def count(self) -> int:
        """The number of tasks."""
        return self.database.rows("SELECT count(*) FROM tasks WHERE current")[0][0]

    def versions(self, name: str) -> list[LearnedTask]:
        """All versions of a task, the first one first."""
        rows = self.database.rows(f"{_TASK} WHERE t.name = ? ORDER BY t.version", name)
        return [self._decode(row) for row in rows]

    def add_tasks(self, rows: Iterable[TaskRow]) -> list[LearnedTask]:
        """Writes tasks of new names, or further versions of known ones; returns them decoded.

        Raises InputError for a version that is there already.
        """
        added = []
        for row in rows:
            number = None
            if row.version > 1:
                query = "SELECT number FROM tasks WHERE name = ? LIMIT 1"
                (number,) = self.database.row(query, row.name) or (None,)
                change = "UPDATE tasks SET current = NULL WHERE name = ? AND current"
                self.database.write(change, row.name)
            document = row.document()
            self.database.write("INSERT OR IGNORE INTO documents VALUES (?, ?)", document, row.form)
            columns = (row.coefficients, row.statistics, row.profile, row.history, row.checksum())
            about = (row.name, row.version, 1, row.mask, row.num_masks)
            try:
                place = self.database.write(_INSERT, number, *about, document, *columns)
            except sqlite3.IntegrityError:
                raise _taken(row) from None
            self._forget(row.name)
            added.append(decode_task(replace(row, id=place), self.backbone))
        return added

    def remove_task(self, name: str) -> None:
        """Deletes a task with all its versions."""
        self.database.write("DELETE FROM tasks WHERE name = ?", name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Drops what is kept decoded of a task."""
        with self._lock:
            self._decoded.pop(name, None)
            self._decoded.pop(None, None)  # it may have been the first one

    # Masks and projections.

    def bank_state(self) -> tuple[int, str]:
        """The number of masks, and a word that changes when masks are removed."""
        query = (
            "SELECT (SELECT count(*) FROM masks), (SELECT content FROM meta WHERE name = 'bank')"
        )
        count, bank = self.database.rows(query)[0]
        return count, (bank or b"").decode()

    def masks(self, first: int = 0) -> Iterator[MaskRow]:
        """The masks from a position on. Raises StoreError for a damaged or missing one."""
        query = (
            "SELECT name, source, recipe, bits, digest, checksum FROM masks WHERE position >= ? "
            "ORDER BY position"
        )
        for *columns, written in self.database.rows(query, first):
            mask = MaskRow(*columns)
            if mask.checksum() != written:
                raise self.database.damaged(f"mask {mask.name!r} is not what was written")
            yield mask

    def add_masks(self, first: int, masks: Iterable[MaskRow]) -> None:
        """Writes masks from a position on. Raises InputError for a name that is taken."""
        for position, mask in enumerate(masks, first):
            values = (mask.name, mask.source, mask.recipe, mask.bits, mask.digest)
            try:
                query = "INSERT INTO masks VALUES (?, ?, ?, ?, ?, ?, ?)"
                self.database.write(query, position, *values, mask.checksum())
            except sqlite3.IntegrityError:
                line = f"the bank holds a mask named {mask.name!r}; choose another name"
                raise InputError(line) from None

    def remove_masks(self, positions: Collection[int]) -> None:
        """Deletes masks that no task needs; those behind them move up, with their basis tasks.

        Projections of features under removed masks go too.
        """
        first, moved = min(positions), min(positions)
        count, _ = self.bank_state()
        self.database.write("DELETE FROM projections WHERE num_masks > ?", first)
        for position in range(first, count):
            if position in positions:
                self.database.write("DELETE FROM masks WHERE position = ?", position)
                continue
            query = "SELECT name FROM masks WHERE position = ?"
            (name,) = self.database.rows(query, position)[0]
            change = "UPDATE masks SET position = ? WHERE position = ?"
            self.database.write(change, moved, position)
            moved += 1
            for row in list(self._rows_of_mask(name)):
                changed = replace(row, num_masks=moved)
                change = "UPDATE tasks SET num_masks = ?, checksum = ? WHERE id = ?"
                self.database.write(change, moved, changed.checksum(), row.id)
        self.write_meta("bank", uuid.uuid4().hex.encode())
        with self._lock:
            self._decoded.clear()

    def _rows_of_mask(self, mask: str) -> Iterator[TaskRow]:
        return map(self._checked, self.database.rows(f"{_TASK} WHERE t.mask = ?", mask))

    def add_projection(self, projection: Projection) -> None:
        """Writes a projection of features under the next number."""
        content = encode_projection(projection)
        query = "INSERT INTO projections VALUES (?, ?, ?, ?)"
        number = self.projections() + 1
        self.database.write(query, number, projection.num_masks, content, checksum(content))

    def projections(self) -> int:
        """The number of the projection written last, 0 without any."""
        return self.database.rows("SELECT coalesce(max(number), 0) FROM projections")[0][0]

    def projection(self, number: int) -> Projection | None:
        """The projection of a number; None for 0. Raises StoreError where it is missing."""
        if not number:
            return None
        query = "SELECT content, checksum FROM projections WHERE number = ?"
        content, written = self.database.row(query, number) or (b"", b"")
        what = f"projection {number} of features"
        if checksum(content) != written:
            raise self.database.damaged(f"its {what} is missing or not what was written")
        with self.readable(what):
            return decode_projection(content, self.backbone)

    # What is there once.

    def meta(self, name: str) -> bytes | None:
        """A value that the store has once, or None."""
        row = self.database.row("SELECT content, checksum FROM meta WHERE name = ?", name)
        if row is None:
            return None
        if checksum(row[0]) != row[1]:
            raise self.database.damaged(f"its {name} is not what was written")
        return row[0]

    def write_meta(self, name: str, content: bytes) -> None:
        """Writes a value that the store has once."""
        query = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"
        self.database.write(query, name, content, checksum(content))

    @contextmanager
    def readable(self, what: str) -> Iterator[None]:
        """Turns what decoding raises for another network's content into a StoreError."""
        try:
            yield
        except UNREADABLE as error:
            raise self.database.damaged(f"{what}: {error}") from None

    def _batches(self) -> Iterator[tuple]:
        last = -1
        query = f"{_TASK} WHERE t.current AND t.number > ? ORDER BY t.number LIMIT ?"
        while rows := self.database.rows(query, last, BATCH):
            yield from rows
            last = rows[-1][-1]

    def _checked(self, row: tuple) -> TaskRow:
        task = TaskRow(*row[:-2])
        with self.readable(f"task {str(task.name)[:80]!r}"):
            intact = task.checksum() == row[-2]
        if not intact:
            raise self.database.damaged(f"task {str(task.name)[:80]!r} is not what was written")
        return task

    def _decode(self, row: tuple) -> LearnedTask:
        task = self._checked(row)
        with self.readable(f"task {task.name[:80]!r}"):
            return decode_task(task, self.backbone)


def _taken(row: TaskRow) -> InputError:
    if row.version > 1:
        return InputError(f"task {row.name!r} was changed or removed meanwhile; update it again")
    return InputError(
        f"task {row.name!r} was learned already; choose another name, or update or remove it"
    )
