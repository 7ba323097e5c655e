"""Reads and writes the rows of a store, each with its checksum.

A checksum is checked whenever its row is read. Rows are added inside `Database.transaction`; counts
and sums in `state` change with them, so that a commit is whole or absent and a lost row is noticed.
"""

from __future__ import annotations

import sqlite3
import uuid
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from impresslearn import __version__
from impresslearn.errors import InputError
from impresslearn.store.database import Database
from impresslearn.store.file import StoreFile
from impresslearn.store.rows import (
    SIZE,
    UNREADABLE,
    Head,
    MaskRow,
    State,
    TaskRow,
    Value,
    from_json,
    joined_row,
    new_sum,
    row_checksum,
    split_row,
    to_json,
)

_TASK = """
    SELECT t.id, t.name, t.mask, t.num_masks, c.text, f.text, t.coefficients, t.statistics,
           t.profile, r.text, t.metrics, t.created_at, length(m.bits), t.checksum
    FROM tasks AS t
    LEFT JOIN masks AS m ON m.name = t.mask
    LEFT JOIN documents AS c ON c.id = t.classes
    LEFT JOIN documents AS f ON f.id = t.form
    LEFT JOIN documents AS r ON r.id = t.recipe
"""
PROJECTION = ".projection.{:06}"
FORMER = ".version.{:012}.{:06}"
"""The name of a former version, by its task's number and its own; in their order."""
LONGEST_TEXT = 2**22
"""Characters of a head's JSON: room for thousands of layers, not for a bomb."""


class Contents:
    """The rows of one store; new: of one that is made. Raises what `Database` raises."""

    def __init__(self, file: StoreFile, new: bool = False) -> None:
        self.file = file
        self.database = Database(file, new)
        # Called also when this is forgotten, at the latest when the process ends.
        self.close = weakref.finalize(self, self.database.close)

    @contextmanager
    def readable(self, what: str) -> Iterator[None]:
        """Turns what decoding a row raises that cannot be one into a StoreError."""
        try:
            yield
        except UNREADABLE as error:
            raise self.file.damaged(f"{what}: {error}") from None

    def write_head(self, backbone: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """The first rows of a new store."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        head = (uuid.uuid4().hex, now, __version__, to_json(backbone), to_json(settings))
        for table, values in (("head", head), ("state", State().values())):
            self._insert(table, (1, *values, row_checksum(table, values)))

    def head(self) -> Head:
        """The head. Raises StoreError for one that was damaged."""
        if self._number("SELECT length(backbone) + length(settings) FROM head") > LONGEST_TEXT:
            raise self.file.damaged("its head is too long")
        uuid, created_at, version, backbone, settings = self._head_values()
        with self.readable("its head cannot be"):
            if not all(isinstance(text, str) for text in (uuid, created_at, version)):
                raise ValueError("it does not tell where it comes from")
            described, chosen = from_json(dict, backbone), from_json(dict, settings)
            return Head(uuid, created_at, version, described, chosen)

    def state(self) -> State:
        """The state as last committed."""
        return self.bank()[1]

    def bank(self) -> tuple[str, State]:
        """A word that changes when masks are removed, and the state as last committed."""
        row = self.database.row("SELECT head.uuid, state.* FROM head, state")
        if row is None or row_checksum("state", row[2:-1]) != row[-1]:
            raise self.file.damaged("its counts are not what was written")
        state = State(*row[2:-1])
        counted = all(type(count) is int and count >= 0 for count in (state.masks, state.tasks))
        sums = (state.masks_sum, state.tasks_sum)
        if not counted or not all(type(each) is bytes and len(each) == SIZE for each in sums):
            raise self.file.damaged("its counts or sums cannot be")
        return row[0], state

    def share(self, statistics: bytes) -> None:
        """Writes the norm statistics that all tasks share.

        Raises InputError where others are there already.
        """
        state, checksum = self.state(), row_checksum("shared", [statistics])
        if state.shared == checksum:
            return
        if state.shared is not None:
            raise InputError(f"{self.file.path} has other norm statistics that all its tasks share")
        self._insert("shared", (1, statistics))
        self._write_state(replace(state, shared=checksum))

    def shared(self) -> bytes | None:
        """The norm statistics that all tasks share. Raises StoreError for damaged ones."""
        with self.database.snapshot():
            expected = self.state().shared
            row = self.database.row("SELECT statistics FROM shared")
        if (None if row is None else row_checksum("shared", row)) != expected:
            raise self.file.damaged("its shared norm statistics are not what was written")
        return None if row is None else row[0]

    def add_tensor(self, name: str, content: bytes) -> None:
        """A weight of the network, as safetensors."""
        self._insert("tensors", (name, content))

    def tensors(self) -> Iterator[tuple[str, bytes]]:
        """The network's weights; none where only its seed was kept."""
        query = "SELECT name FROM tensors WHERE name NOT LIKE '.%' ORDER BY name"
        for (name,) in self.database.rows(query):
            yield from self.database.rows("SELECT name, data FROM tensors WHERE name = ?", [name])

    def tensor_bytes(self) -> int:
        """Bytes of the network's weights."""
        return self._number(
            "SELECT coalesce(sum(length(data)), 0) FROM tensors WHERE name NOT LIKE '.%'"
        )

    def add_projection(self, content: bytes) -> None:
        """A projection of features, under the next number; no parameter's name has its dot."""
        checksum = row_checksum("projections", [content])
        self._insert("tensors", (PROJECTION.format(self.projections() + 1), checksum + content))

    def projections(self) -> int:
        """The number of the projection written last, 0 without any."""
        row = self.database.row("SELECT max(name) FROM tensors WHERE name LIKE '.projection.%'")
        return int(str(row[0]).rpartition(".")[2]) if row and row[0] else 0

    def projection(self, number: int) -> bytes:
        """A projection of features. Raises StoreError for one that is damaged or missing."""
        query = "SELECT data FROM tensors WHERE name = ?"
        (content,) = self.database.row(query, [PROJECTION.format(number)]) or (b"",)
        checksum, content = content[:SIZE], content[SIZE:]
        if row_checksum("projections", [content]) != checksum:
            raise self.file.damaged(f"its projection of features number {number} is not as written")
        return content

    def drop_projections(self, first: int) -> None:
        """Takes out the projections from a number on."""
        for number in range(first, self.projections() + 1):
            self.database.write("DELETE FROM tensors WHERE name = ?", PROJECTION.format(number))

    def add_mask(self, mask: MaskRow) -> None:
        """A mask behind the others."""
        position = self.state().masks
        checksum = row_checksum("masks", (position, *mask.values()))
        taken = f"the bank holds a mask named {mask.name!r} already"
        self._insert("masks", (position + 1, *mask.values(), checksum), mask.name, taken)
        self._count("masks", added=[checksum])

    def masks(self, first: int = 0) -> Iterator[MaskRow]:
        """The masks from a position on. Raises StoreError for one that is damaged or missing."""
        return map(self._mask, range(first, self.state().masks))

    def mask_count(self) -> int:
        """How many masks are really there, whatever the state says."""
        return self._number("SELECT count(*) FROM masks")

    def mask_positions(self) -> dict[str, int]:
        """The position of every mask."""
        return dict(self.database.rows("SELECT name, id - 1 FROM masks"))

    def remove_masks(self, positions: Collection[int]) -> None:
        """Takes masks out and moves those behind them up, with the basis tasks whose own they are.

        Projections of features under them go too. No learned task may use either.
        """
        kept, removed, added, moved = min(positions), [], [], {}
        last = self.projections()
        while last and int.from_bytes(self.projection(last)[:4], "little") > kept:
            last -= 1  # tasks may use a later one of fewer masks, learned at the same time
        self.drop_projections(last + 1)
        for position in range(kept, self.state().masks):
            mask = self._mask(position)
            removed.append(row_checksum("masks", (position, *mask.values())))
            if position in positions:
                self.database.write("DELETE FROM masks WHERE id = ?", position + 1)
                continue
            added.append(row_checksum("masks", (kept, *mask.values())))
            kept += 1
            change = "UPDATE masks SET id = ?, checksum = ? WHERE id = ?"
            self.database.write(change, kept, added[-1], position + 1)
            moved[mask.name] = kept
        self._count("masks", added, removed)
        own = map(self._checked, self.database.rows(f"{_TASK} WHERE t.mask IS NOT NULL"))
        for task in [each for each in own if each.mask in moved]:
            old = row_checksum("tasks", task.values())
            num_masks = moved[str(task.mask)]
            new = row_checksum("tasks", replace(task, num_masks=num_masks).values())
            change = "UPDATE tasks SET num_masks = ?, checksum = ? WHERE id = ?"
            self.database.write(change, num_masks, new, task.number)
            self._count("tasks", [new], [old])
        values = (uuid.uuid4().hex, *self._head_values()[1:])
        checksum = row_checksum("head", values)
        self.database.write("UPDATE head SET uuid = ?, checksum = ?", values[0], checksum)

    def add_task(self, task: TaskRow, number: int | None = None) -> None:
        """A task under a new name; number: of its row, the next one by default."""
        checksum = row_checksum("tasks", task.values())
        classes, form, recipe = map(self._document, (task.classes, task.form, task.recipe))
        columns = replace(task, classes=classes, form=form, recipe=recipe).values()  # type: ignore[arg-type]
        taken = (
            f"task {task.name!r} was learned already; choose another name, or update or remove it"
        )
        self._insert("tasks", (number, *columns, checksum), task.name, taken)
        self._count("tasks", added=[checksum])

    def replace_task(self, task: TaskRow) -> None:
        """A task in the place of that of its name, which is kept as a former version."""
        old = self.task(task.name)
        if old is None:
            raise InputError(f"no task named {task.name!r} in {self.file.path}")
        place, content = (old.number, self._version(old)), joined_row(old)
        checksum = row_checksum("versions", [*place, content])
        self._insert("tensors", (FORMER.format(*place), checksum + content))
        self._drop_row(old)
        self.add_task(task, old.number)

    def former_versions(self, task: TaskRow) -> list[TaskRow]:
        """The versions of a task before this one, the first one first.

        Raises StoreError where one is damaged or missing.
        """
        found = []
        for version in range(1, self._version(task)):
            query = "SELECT data FROM tensors WHERE name = ?"
            what, place = f"version {version} of task {task.name[:80]!r}", (task.number, version)
            (content,) = self.database.row(query, [FORMER.format(*place)]) or (b"",)
            checksum, content = content[:SIZE], content[SIZE:]
            if row_checksum("versions", [*place, content]) != checksum:
                raise self.file.damaged(f"{what} is not what was written")
            with self.readable(what):
                found.append(split_row(content, task.number))
        return found

    def former_bytes(self) -> int:
        """Bytes of all former versions."""
        query = "SELECT coalesce(sum(length(data)), 0) FROM tensors WHERE name LIKE '.version.%'"
        return self._number(query)

    def remove_task(self, task: TaskRow) -> None:
        """Takes a task out with its former versions, and nothing else."""
        for version in range(1, self._version(task)):
            name = FORMER.format(task.number, version)
            self.database.write("DELETE FROM tensors WHERE name = ?", name)
        self._drop_row(task)

    def task(self, name: str) -> TaskRow | None:
        """The row of a task, or None. Raises StoreError for one that was damaged."""
        row = self.database.row(f"{_TASK} WHERE t.name = ?", [name])
        if row is not None:
            return self._checked(row)
        # A damaged index would hide a task: look through the table before saying no.
        if self.database.row("SELECT 1 FROM tasks NOT INDEXED WHERE name = ?", [name]):
            raise self.file.damaged("the index of its tasks is incomplete")
        if self._number("SELECT count(*) - ifnull((SELECT tasks FROM state), -1) FROM tasks"):
            raise self.file.damaged("tasks are missing")
        return None

    def has_task(self, name: str) -> bool:
        """Whether there is a task of that name."""
        return self._has("tasks", name)

    def task_names(self) -> Iterator[str]:
        """The tasks' names, in the order they were learned, those added meanwhile included."""
        query = "SELECT id, name FROM tasks WHERE id > ? ORDER BY id LIMIT ?"
        return (name for _, name in self._batches(query, 5000))

    def tasks(self) -> Iterator[TaskRow]:
        """All tasks in the order they were learned, those added meanwhile included."""
        query = f"{_TASK} WHERE t.id > ? ORDER BY t.id LIMIT ?"
        return map(self._checked, self._batches(query, 1000))

    def drop_unused(self) -> None:
        """Takes out the texts that no task refers to any more, and makes every index anew."""
        self.database.write(
            "DELETE FROM documents WHERE id NOT IN (SELECT classes FROM tasks UNION "
            "SELECT recipe FROM tasks UNION SELECT form FROM tasks WHERE form IS NOT NULL)"
        )
        self.database.write("REINDEX")

    def check(self) -> None:
        """Raises StoreError unless all pages are sound and hold exactly what was committed."""
        found = self.database.row("PRAGMA integrity_check(1)")
        if found != ("ok",):
            raise self.file.damaged(str(found[0] if found else "no answer to an integrity check"))
        state = self.state()
        for table, count, total in (
            ("masks", state.masks, state.masks_sum),
            ("tasks", state.tasks, state.tasks_sum),
        ):
            rows = self.database.rows(f"SELECT checksum FROM {table}")
            if (len(rows), new_sum(bytes(SIZE), (row[0] for row in rows))) != (count, total):
                raise self.file.damaged(f"its {table} are not those that were committed")

    def _drop_row(self, task: TaskRow) -> None:
        self.database.write("DELETE FROM tasks WHERE id = ?", task.number)
        self._count("tasks", removed=[row_checksum("tasks", task.values())])

    def _version(self, task: TaskRow) -> int:
        with self.readable(f"task {task.name[:80]!r}"):
            return int(from_json(dict, task.metrics).get("version", 1))

    def _head_values(self) -> tuple:
        row = self.database.row("SELECT * FROM head")
        if row is None or row_checksum("head", row[1:-1]) != row[-1]:
            raise self.file.damaged("its head is not what was written")
        return row[1:-1]

    def _mask(self, position: int) -> MaskRow:
        row = self.database.row("SELECT * FROM masks WHERE id = ?", [position + 1])
        if row is None:
            raise self.file.damaged(f"mask number {position} is missing")
        mask = MaskRow(*row[1:-1])
        if row_checksum("masks", (position, *mask.values())) != row[-1]:
            raise self.file.damaged(f"mask {str(mask.name)[:80]!r} is not what was written")
        return mask

    def _checked(self, row: tuple) -> TaskRow:
        task = TaskRow(*row[:-1])
        if row_checksum("tasks", task.values()) != row[-1]:
            raise self.file.damaged(f"task {str(task.name)[:80]!r} is not what was written")
        return task

    def _batches(self, query: str, size: int) -> Iterator[tuple]:
        last = -(2**63)
        while rows := self.database.rows(query, [last, size]):
            yield from rows
            last = rows[-1][0]

    def _number(self, query: str) -> int:
        row = self.database.row(query)
        return int(row[0] or 0) if row else 0

    def _has(self, table: str, name: str) -> bool:
        return self.database.row(f"SELECT 1 FROM {table} WHERE name = ?", [name]) is not None

    def _document(self, text: str | None) -> int | None:
        """The number of a text that many rows may share."""
        if text is None:
            return None
        self.database.write("INSERT OR IGNORE INTO documents (text) VALUES (?)", text)
        row = self.database.row("SELECT id FROM documents WHERE text = ?", [text])
        if row is None:
            raise self.file.damaged("the index of its documents is incomplete")
        return row[0]

    def _insert(
        self, table: str, values: Sequence[Value], name: str = "", taken: str | None = None
    ) -> None:
        """A row; taken: the error's line where there is another of its name."""
        try:
            self.database.write(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", *values
            )
        except sqlite3.IntegrityError as error:
            if taken is not None and self._has(table, name):
                raise InputError(taken) from None
            raise self.file.damaged(str(error)) from None

    def _count(
        self, table: str, added: Sequence[bytes] = (), removed: Sequence[bytes] = ()
    ) -> None:
        """Counts rows, given by their checksums, that were added to and removed from a table."""
        state = self.state()
        count = getattr(state, table) + len(added) - len(removed)
        total = new_sum(getattr(state, f"{table}_sum"), added, removed)
        self._write_state(replace(state, **{table: count, f"{table}_sum": total}))

    def _write_state(self, state: State) -> None:
        self.database.write(
            "UPDATE state SET masks = ?, tasks = ?, masks_sum = ?, tasks_sum = ?, shared = ?, "
            "checksum = ?",
            *state.values(),
            row_checksum("state", state.values()),
        )
