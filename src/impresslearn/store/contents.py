"""What a store holds, row by row: every checksum written with its row and checked when it is read.

Rows are added inside `Database.transaction`; counts and sums in `state` change with them, so that
a commit is whole or absent and a lost row is noticed. Knows rows, not networks.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from impresslearn.errors import InputError
from impresslearn.store.checks import SIZE, ZERO, Value, row_checksum, total_after, total_without
from impresslearn.store.database import Database
from impresslearn.store.masks import MaskRow
from impresslearn.store.records import TaskRow
from impresslearn.store.values import of_kind, to_json

_TASK = """
    SELECT t.id, t.name, t.mask, t.num_masks, c.text, f.text, t.coefficients, t.statistics,
           t.profile, r.text, t.metrics, t.created_at, length(m.bits), t.checksum
    FROM tasks AS t
    LEFT JOIN masks AS m ON m.name = t.mask
    LEFT JOIN documents AS c ON c.id = t.classes
    LEFT JOIN documents AS f ON f.id = t.form
    LEFT JOIN documents AS r ON r.id = t.recipe
"""
LONGEST_TEXT = 2**22
"""Characters of a head's JSON: room for thousands of layers, not for a bomb."""


@dataclass(frozen=True)
class Head:
    """What is written once: the network, the learner's settings, and where the file comes from."""

    uuid: str
    created_at: str
    library_version: str
    backbone: dict[str, Any]
    settings: dict[str, Any]


@dataclass(frozen=True)
class State:
    """What has been committed: numbers of rows, and sums of their checksums.

    shared: the checksum of the norm statistics that all tasks share, None where there are none.
    """

    masks: int = 0
    tasks: int = 0
    masks_sum: bytes = ZERO
    tasks_sum: bytes = ZERO
    shared: bytes | None = None

    def values(self) -> tuple[Value, ...]:
        return self.masks, self.tasks, self.masks_sum, self.tasks_sum, self.shared


class Contents:
    """The rows of one store."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def write_head(
        self, backbone: Mapping[str, Any], settings: Mapping[str, Any], version: str
    ) -> None:
        """The first rows of a new store."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        values = (uuid.uuid4().hex, now, version, to_json(backbone), to_json(settings))
        self._write(
            "INSERT INTO head VALUES (1, ?, ?, ?, ?, ?, ?)", *values, row_checksum("head", values)
        )
        empty = State().values()
        self._write(
            "INSERT INTO state VALUES (1, ?, ?, ?, ?, ?, ?)", *empty, row_checksum("state", empty)
        )

    def head(self) -> Head:
        """The head. Raises StoreError for one that was damaged."""
        sizes = self.database.row("SELECT length(backbone) + length(settings) FROM head")
        if sizes is not None and not 0 <= (sizes[0] or 0) <= LONGEST_TEXT:
            raise self.database.damaged("its head is too long")
        row = self.database.row("SELECT * FROM head")
        if row is None or row_checksum("head", row[1:-1]) != row[-1]:
            raise self.database.damaged("its head is not what was written")
        try:
            backbone, settings = (of_kind(object, text) for text in row[4:6])
        except (TypeError, ValueError, RecursionError):
            raise self.database.damaged("its head is no JSON") from None
        if not isinstance(backbone, dict) or not isinstance(settings, dict):
            raise self.database.damaged("its head describes no network")
        if not all(isinstance(text, str) for text in row[1:4]):
            raise self.database.damaged("its head does not tell where it comes from")
        return Head(row[1], row[2], row[3], backbone, settings)

    def state(self) -> State:
        """The state as last committed."""
        return self.bank()[1]

    def bank(self) -> tuple[str, State]:
        """A word that changes when masks are removed, and the state as last committed."""
        row = self.database.row("SELECT head.uuid, state.* FROM head, state")
        if row is None or row_checksum("state", row[2:-1]) != row[-1]:
            raise self.database.damaged("its counts are not what was written")
        state = State(*row[2:-1])
        if not all(type(count) is int and count >= 0 for count in (state.masks, state.tasks)):
            raise self.database.damaged("its counts are no numbers")
        if not all(type(s) is bytes and len(s) == SIZE for s in (state.masks_sum, state.tasks_sum)):
            raise self.database.damaged("its sums are no checksums")
        return row[0], state

    def mask_count(self) -> int:
        """How many masks are really there, whatever the state says."""
        row = self.database.row("SELECT count(*) FROM masks")
        return 0 if row is None else row[0]

    def share(self, statistics: bytes) -> None:
        """Writes the norm statistics that all tasks share.

        Raises InputError where others are there already.
        """
        state, checksum = self.state(), row_checksum("shared", [statistics])
        if state.shared == checksum:
            return
        if state.shared is not None:
            raise InputError(
                f"{self.database.path} has other norm statistics that all its tasks share"
            )
        self.database.write("INSERT INTO shared VALUES (1, ?)", [statistics])
        self._write_state(replace(state, shared=checksum))

    def shared(self) -> bytes | None:
        """The norm statistics that all tasks share. Raises StoreError for damaged ones."""
        with self.database.snapshot():
            expected = self.state().shared
            row = self.database.row("SELECT statistics FROM shared")
        if (None if row is None else row_checksum("shared", row)) != expected:
            raise self.database.damaged("its shared norm statistics are not what was written")
        return None if row is None else row[0]

    def add_tensor(self, name: str, content: bytes) -> None:
        """A weight of the network, as safetensors."""
        self._write("INSERT INTO tensors VALUES (?, ?)", name, content)

    def tensors(self) -> Iterator[tuple[str, bytes]]:
        """The network's weights; none where only its seed was kept."""
        for (name,) in self.database.rows("SELECT name FROM tensors ORDER BY name"):
            row = self.database.row("SELECT data FROM tensors WHERE name = ?", [name])
            if row is not None:
                yield name, row[0]

    def tensor_bytes(self) -> int:
        """Bytes of the network's weights."""
        row = self.database.row("SELECT coalesce(sum(length(data)), 0) FROM tensors")
        return 0 if row is None else int(row[0])

    def add_mask(self, position: int, mask: MaskRow) -> None:
        """A mask at a position, counted from 0, that must be the next one."""
        state, checksum = self.state(), row_checksum("masks", (position, *mask.values()))
        if position != state.masks:
            raise InputError(f"mask {mask.name!r} is to be number {position}, not {state.masks}")
        try:
            self._write(
                "INSERT INTO masks VALUES (?, ?, ?, ?, ?, ?, ?)",
                position + 1, *mask.values(), checksum,
            )  # fmt: skip
        except sqlite3.IntegrityError as error:
            if not self._taken("masks", mask.name):
                raise self.database.damaged(str(error)) from None
            raise InputError(f"the bank holds a mask named {mask.name!r} already") from None
        total = total_after(state.masks_sum, checksum)
        self._write_state(replace(state, masks=position + 1, masks_sum=total))

    def masks(self, first: int = 0) -> Iterator[MaskRow]:
        """The masks from a position on. Raises StoreError for one that is damaged or missing."""
        return map(self._mask, range(first, self.state().masks))

    def has_mask(self, name: str, count: int) -> bool:
        """Whether a mask is among the first `count`."""
        found = self.database.row("SELECT id FROM masks WHERE name = ?", [name])
        return found is not None and found[0] <= count

    def mask_positions(self) -> dict[str, int]:
        """The position of every mask."""
        rows = self.database.rows("SELECT name, id FROM masks")
        return {name: number - 1 for name, number in rows}

    def remove_masks(self, positions: Collection[int]) -> None:
        """Takes masks out and moves those behind them up, with the basis tasks whose own they are.

        No learned task may combine any mask from the first of these positions on.
        """
        state, kept, total = self.state(), min(positions), self.state().masks_sum
        moved = {}
        for position in range(kept, state.masks):
            mask = self._mask(position)
            total = total_without(total, row_checksum("masks", (position, *mask.values())))
            if position in positions:
                self._write("DELETE FROM masks WHERE id = ?", position + 1)
                continue
            checksum = row_checksum("masks", (kept, *mask.values()))
            self._write(
                "UPDATE masks SET id = ?, checksum = ? WHERE id = ?",
                kept + 1, checksum, position + 1,
            )  # fmt: skip
            total, kept = total_after(total, checksum), kept + 1
            moved[mask.name] = kept
        self._write_state(replace(state, masks=kept, masks_sum=total))
        for row in self.database.rows(f"{_TASK} WHERE t.mask IS NOT NULL"):
            number, task = self._checked(row)
            if task.mask in moved:
                self._set_num_masks(number, task, moved[task.mask])
        head = self.database.row("SELECT * FROM head") or ()
        values = (uuid.uuid4().hex, *head[2:-1])
        self._write(
            "UPDATE head SET uuid = ?, checksum = ?", values[0], row_checksum("head", values)
        )

    def add_task(self, task: TaskRow) -> None:
        """A task under a new name."""
        state, checksum = self.state(), row_checksum("tasks", task.values())
        classes, form, recipe = map(self._document, (task.classes, task.form, task.recipe))
        try:
            self._write(
                "INSERT INTO tasks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                task.name, task.mask, task.num_masks, classes, form, task.coefficients,
                task.statistics, task.profile, recipe, task.metrics, task.created_at, checksum,
            )  # fmt: skip
        except sqlite3.IntegrityError as error:
            if not self._taken("tasks", task.name):
                raise self.database.damaged(str(error)) from None
            raise InputError(
                f"task {task.name!r} was learned already and tasks never change; choose another "
                "name"
            ) from None
        total = total_after(state.tasks_sum, checksum)
        self._write_state(replace(state, tasks=state.tasks + 1, tasks_sum=total))

    def remove_task(self, name: str) -> None:
        """Takes a task out, and nothing else."""
        found = self.task(name)
        if found is None:
            raise KeyError(name)
        state, checksum = self.state(), row_checksum("tasks", found[1].values())
        self._write("DELETE FROM tasks WHERE id = ?", found[0])
        total = total_without(state.tasks_sum, checksum)
        self._write_state(replace(state, tasks=state.tasks - 1, tasks_sum=total))

    def task(self, name: str) -> tuple[int, TaskRow] | None:
        """The number and row of a task, or None. Raises StoreError for one that was damaged."""
        row = self.database.row(f"{_TASK} WHERE t.name = ?", [name])
        if row is None:
            # A damaged index would hide a task: look through the table before saying no.
            if self.database.row("SELECT 1 FROM tasks NOT INDEXED WHERE name = ?", [name]):
                raise self.database.damaged("the index of its tasks is incomplete")
            self.check_count()
            return None
        return self._checked(row)

    def has_task(self, name: str) -> bool:
        """Whether there is a task of that name."""
        return self._taken("tasks", name)

    def task_names(self) -> Iterator[str]:
        """The tasks' names, in the order they were learned, those added meanwhile included."""
        query = "SELECT id, name FROM tasks WHERE id > ? ORDER BY id LIMIT ?"
        return (name for _, name in self._batches(query, 5000))

    def tasks(self) -> Iterator[tuple[int, TaskRow]]:
        """All tasks in the order they were learned, those added meanwhile included."""
        query = f"{_TASK} WHERE t.id > ? ORDER BY t.id LIMIT ?"
        return map(self._checked, self._batches(query, 1000))

    def drop_unused(self) -> None:
        """Takes out the texts that no task refers to any more, and makes every index anew."""
        self._write(
            "DELETE FROM documents WHERE id NOT IN (SELECT classes FROM tasks UNION "
            "SELECT recipe FROM tasks UNION SELECT form FROM tasks WHERE form IS NOT NULL)"
        )
        self._write("REINDEX")

    def check_count(self) -> None:
        """Raises StoreError unless as many tasks are there as were committed."""
        row = self.database.row("SELECT (SELECT count(*) FROM tasks), tasks FROM state")
        if row is None or row[0] != row[1]:
            raise self.database.damaged("tasks are missing")

    def check_sums(self) -> None:
        """Raises StoreError unless exactly the committed masks and tasks are there."""
        with self.database.snapshot():
            state = self.state()
            for table, count, total in (
                ("masks", state.masks, state.masks_sum),
                ("tasks", state.tasks, state.tasks_sum),
            ):
                found = self.database.rows(f"SELECT checksum FROM {table}")
                measured = ZERO
                for (checksum,) in found:
                    measured = total_after(measured, checksum)
                if (len(found), measured) != (count, total):
                    raise self.database.damaged(f"its {table} are not those that were committed")

    def _mask(self, position: int) -> MaskRow:
        row = self.database.row("SELECT * FROM masks WHERE id = ?", [position + 1])
        if row is None:
            raise self.database.damaged(f"mask number {position} is missing")
        mask = MaskRow(*row[1:-1])
        if row_checksum("masks", (position, *mask.values())) != row[-1]:
            raise self.database.damaged(f"mask {str(mask.name)[:80]!r} is not what was written")
        return mask

    def _set_num_masks(self, number: int, task: TaskRow, num_masks: int) -> None:
        old, new = (
            row_checksum("tasks", each.values())
            for each in (task, replace(task, num_masks=num_masks))
        )
        self._write(
            "UPDATE tasks SET num_masks = ?, checksum = ? WHERE id = ?", num_masks, new, number
        )
        state = self.state()
        total = total_after(total_without(state.tasks_sum, old), new)
        self._write_state(replace(state, tasks_sum=total))

    def _taken(self, table: str, name: str) -> bool:
        return self.database.row(f"SELECT 1 FROM {table} WHERE name = ?", [name]) is not None

    def _batches(self, query: str, size: int) -> Iterator[tuple]:
        last = -(2**63)
        while rows := self.database.rows(query, [last, size]):
            yield from rows
            last = rows[-1][0]

    def _checked(self, row: tuple) -> tuple[int, TaskRow]:
        task = TaskRow(*row[1:-1])
        if row_checksum("tasks", task.values()) != row[-1]:
            raise self.database.damaged(f"task {str(task.name)[:80]!r} is not what was written")
        return row[0], task

    def _document(self, text: str | None) -> int | None:
        if text is None:
            return None
        self._write("INSERT OR IGNORE INTO documents (text) VALUES (?)", text)
        row = self.database.row("SELECT id FROM documents WHERE text = ?", [text])
        if row is None:
            raise self.database.damaged("the index of its documents is incomplete")
        return row[0]

    def _write_state(self, state: State) -> None:
        values = state.values()
        self._write(
            "UPDATE state SET masks = ?, tasks = ?, masks_sum = ?, tasks_sum = ?, shared = ?, "
            "checksum = ?",
            *values,
            row_checksum("state", values),
        )

    def _write(self, sql: str, *values: Any) -> None:
        self.database.write(sql, values)
