"""Reads and writes the rows of a store: tasks, masks, projections and what is there once."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from cachetools import LRUCache
from torch import Tensor

from impresslearn.checks import composed
from impresslearn.coefficients.readout import Projection
from impresslearn.errors import InputError, StoreError, StoreReplacedError, UnknownTaskError
from impresslearn.inference.class_map import ClassMap
from impresslearn.inference.feature_scores import FeatureSpace
from impresslearn.kernels import pack
from impresslearn.masks import disjoint_mask, random_mask
from impresslearn.masks.bank import MaskInfo, PackedMask, coded_mask
from impresslearn.masks.codec import decode_mask as decode_bits
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MaskableLayer
from impresslearn.store.database import Database
from impresslearn.store.tasks import (
    COMPARED_NAMES,
    UNREADABLE,
    LearnedTask,
    TaskInfo,
    TaskRow,
    checksum,
    decode_task,
    name_taken,
    to_json,
    unknown_task,
)
from impresslearn.tables import Table, table_of

# Tasks in the table of a notebook.
SHOWN = 50
# Tasks that are kept decoded.
DECODED_TASKS = 4096
BATCH = 1000
LATEST = 2**62  # beyond any version of a task
CLASS_MAP = "class map"  # the name of the class map among what a store has once
_SELECT = """
    SELECT t.name, t.version, t.mask, t.num_masks, d.text, t.coefficients, t.statistics, t.profile,
           t.history, t.id, t.checksum, t.number
    FROM tasks AS t LEFT JOIN documents AS d ON d.id = t.form
"""
# What no commit changes, once it is there. The first bytes of a trained mask tell it from any other
# without reading all of it.
_FIXED = """
    SELECT 'mask', position, name, recipe, length(bits), substr(bits, 1, 256) FROM masks UNION ALL
    SELECT 'projection', number, checksum, 0, 0, 0 FROM projections UNION ALL
    SELECT 'meta', name, checksum, 0, 0, 0 FROM meta WHERE name IN ('head', 'shared', 'features')
"""
# Versions of a task share its number, by which tasks are ordered.
_INSERT = """
    INSERT INTO tasks (number, name, version, current, mask, num_masks, form, coefficients,
                       statistics, profile, history, checksum)
    VALUES (coalesce((SELECT number FROM tasks WHERE name = ? LIMIT 1),
                     (SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'tasks')),
            ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Rows:
    """Reads and writes the rows of one store; what writes must be inside `Database.transaction`."""

    def __init__(self, database: Database, backbone: Backbone) -> None:
        self.database, self.backbone = database, backbone
        # Each with the generation of the database in which it was seen last.
        self._decoded: LRUCache[str | None, tuple[LearnedTask, Hashable]] = LRUCache(DECODED_TASKS)
        self._lock = threading.Lock()
        self._generation: Hashable = None
        self._fixed: dict[tuple, tuple] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.database, self.backbone)

    def generation(self) -> Hashable:
        """As of the database. Raises StoreReplacedError where it is another store by now."""
        generation = self.database.generation()
        if generation is not None and generation != self._generation:
            fixed = {row[:2]: row[2:] for row in self.database.rows(_FIXED)}
            if not self._fixed.items() <= fixed.items():
                where = self.database.where
                line = "was overwritten by another store while it was open; open it again"
                raise StoreReplacedError(f"{where} {line}")
            self._fixed, self._generation = fixed, generation
        return generation

    # Tasks.

    def task(self, name: str | None) -> LearnedTask | None:
        """The present version of a task, or None; name None: the task that was learned first.

        It is decoded once for as long as nothing is committed, and afterwards if it has changed.
        Raises StoreError for a damaged row.
        """
        generation, former = self.generation(), None
        if generation is not None:
            with self._lock:
                former, seen = self._decoded.get(name, (None, None))
            if seen == generation:
                return former
        if name is None:
            row = self.database.row(f"{_SELECT} WHERE t.current ORDER BY t.number LIMIT 1")
        else:
            row = self.database.row(f"{_SELECT} WHERE t.current AND t.name = ?", name)
        if row is None:
            return None
        task = former
        if former is None or row[-2] != former.digest:
            task = self.decode(_checked(self.database, row))
        if generation is not None and task is not None:
            with self._lock:
                self._decoded[name] = task, generation
        return task

    def task_rows(self, name: str | None = None) -> Iterator[TaskRow]:
        """All versions of a task, or of all tasks, as they are written."""
        condition = ("true",) if name is None else ("t.name = ?", name)
        return read_rows(self.database, *condition)

    def add_task(self, row: TaskRow) -> LearnedTask:
        """Writes a task of a new name, or the next version of a known task; returns it decoded.

        Raises InputError where another task or version is in its place by now.
        """
        digest = hashlib.blake2b(row.form.encode(), digest_size=8).digest()
        document = int.from_bytes(digest, "little", signed=True)  # for all tasks that share it
        if row.version > 1:
            change = "UPDATE tasks SET current = NULL WHERE name = ? AND version = ? AND current"
            if not self.database.write(change, row.name, row.version - 1).rowcount:
                raise changed_meanwhile(row.name)
        self.database.write("INSERT OR IGNORE INTO documents VALUES (?, ?)", document, row.form)
        columns = (row.coefficients, row.statistics, row.profile, row.history, row.checksum())
        about = (row.name, row.version, row.mask, row.num_masks, document)
        try:
            place = self.database.write(_INSERT, row.name, *about, *columns).lastrowid
        except sqlite3.IntegrityError:
            error = name_taken(row.name) if row.version == 1 else changed_meanwhile(row.name)
            raise error from None
        self._forget(row.name)
        return self.decode(replace(row, id=place or 0))

    def remove_task(self, name: str) -> None:
        """Deletes a task with all its versions."""
        self.database.write("DELETE FROM tasks WHERE name = ?", name)
        self._forget(name)

    def decode(self, row: TaskRow) -> LearnedTask:
        """The task of a row. Raises StoreError for a task of another network."""
        try:
            return decode_task(row, self.backbone)
        except StoreError:
            raise
        except UNREADABLE as error:
            raise self.database.damaged(f"task {row.name[:80]!r}: {error}") from None

    def _forget(self, name: str) -> None:
        """Drops what is kept decoded of a task."""
        with self._lock:
            self._decoded.pop(name, None)
            self._decoded.pop(None, None)  # it may have been the first one

    # Masks and projections.

    def masks(self, first: int = 0) -> Iterator[PackedMask]:
        """The masks from a position on. Raises StoreError for a damaged or another network's."""
        columns = "name, source, recipe, bits, digest, checksum"
        query = f"SELECT {columns} FROM masks WHERE position >= ? ORDER BY position"
        for *values, written in self.database.rows(query, first):
            if checksum(*values) != written:
                raise self.database.damaged(f"mask {values[0]!r} is not what was written")
            try:
                yield _decode_mask(values, self.backbone.layers)
            except UNREADABLE as error:
                raise self.database.damaged(f"mask {values[0][:80]!r}: {error}") from None

    def add_masks(self, first: int, masks: Iterable[PackedMask]) -> None:
        """Writes masks from a position on. Raises InputError for a name that is taken."""
        for position, mask in enumerate(masks, first):
            values = _encode_mask(mask, self.backbone.layers)
            try:
                query = "INSERT INTO masks VALUES (?, ?, ?, ?, ?, ?, ?)"
                self.database.write(query, position, *values, checksum(*values))
            except sqlite3.IntegrityError:
                line = f"the bank holds a mask named {values[0]!r}; choose another name"
                raise InputError(line) from None

    def projections(self) -> int:
        """The number of the projection written last, 0 without any."""
        return self.database.rows("SELECT coalesce(max(number), 0) FROM projections")[0][0]

    def add_projection(self, projection: Projection) -> None:
        """Writes a projection of features under the next number."""
        sizes = [projection.num_masks, projection.residual, projection.matrix.shape[1]]
        matrix = projection.matrix.cpu().half().contiguous().numpy()
        content = np.array(sizes, "<u4").tobytes() + matrix.tobytes()
        query = "INSERT INTO projections VALUES (?, ?, ?, ?)"
        number = self.projections() + 1
        self.database.write(query, number, projection.num_masks, content, checksum(content))

    def projection(self, number: int) -> Projection | None:
        """The projection of a number; None for 0. Raises StoreError where it is missing."""
        if not number:
            return None
        query = "SELECT content, checksum FROM projections WHERE number = ?"
        content, written = self.database.row(query, number) or (b"", b"")
        if checksum(content) != written:
            line = f"its projection {number} of features is missing or not what was written"
            raise self.database.damaged(line)
        num_masks, residual, components = np.frombuffer(content[:12], "<u4").tolist()
        matrix = np.frombuffer(content[12:], "<f2").reshape(-1, components).astype(np.float32)
        tensor = torch.from_numpy(matrix).to(self.backbone.device)
        return Projection(num_masks, bool(residual), tensor)

    # What is there once.

    def space(self) -> FeatureSpace | None:
        """The coordinates of features in which tasks know their inputs, None without."""
        content = self.meta("features")
        if content is None:
            return None
        projection, width, components = np.frombuffer(content[:12], "<u4").tolist()
        numbers = torch.from_numpy(np.frombuffer(content[12:], "<f4").copy())
        mean, variances, rotation = numbers.to(self.backbone.device).split(
            [width, components, len(numbers) - width - components]
        )
        projected = self.projection(projection)
        matrix = None if projected is None else projected.matrix
        return FeatureSpace(projection, mean, rotation.view(-1, components), variances, matrix)

    def write_space(self, space: FeatureSpace) -> None:
        """Writes the coordinates of features."""
        content = np.array([space.projection, len(space.mean), len(space.variances)], "<u4")
        numbers = torch.cat([space.mean, space.variances, space.rotation.flatten()])
        written = numbers.cpu().float().numpy().astype("<f4")
        self.write_meta("features", content.tobytes() + written.tobytes())

    def meta(self, name: str) -> bytes | None:
        """A value that the store has once, or None."""
        row = self.database.row("SELECT content, checksum FROM meta WHERE name = ?", name)
        if row is None:
            return None
        if checksum(row[0]) != row[1]:
            raise self.database.damaged(f"its {name} is not what was written")
        return row[0]

    def keep_in_class_map(self, names: Collection[str]) -> None:
        """Takes all other tasks out of the class map, where there is one."""
        content = self.meta(CLASS_MAP)
        if content is not None:
            self.write_meta(CLASS_MAP, ClassMap.decode(content).keeping(names).encode())

    def write_meta(self, name: str, content: bytes) -> None:
        """Writes a value that the store has once."""
        query = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"
        self.database.write(query, name, content, checksum(content))


def task_names(database: Database) -> Iterator[str]:
    """The names of a store's tasks, in the order they were learned."""
    for (name,) in database.rows("SELECT name FROM tasks WHERE current ORDER BY number"):
        yield name


def read_rows(database: Database, condition: str, *values: str) -> Iterator[TaskRow]:
    """The rows of tasks that meet a condition, also of those that are added meanwhile.

    Raises StoreError for a damaged one.
    """
    query = (
        f"{_SELECT} WHERE {condition} AND (t.number, t.version) > (?, ?) "
        f"ORDER BY t.number, t.version LIMIT {BATCH}"
    )
    last = -1, -1
    while batch := database.rows(query, *values, *last):
        for columns in batch:
            yield _checked(database, columns)
        # Of a task that is read once, a version that comes meanwhile is not read as well.
        last = batch[-1][-1], LATEST if condition == "t.current" else batch[-1][1]


def _checked(database: Database, columns: tuple) -> TaskRow:
    """A row of `_SELECT`. Raises StoreError for a damaged one."""
    task = TaskRow(*columns[:-2])
    # A missing document leaves no form.
    if task.form is None or task.checksum() != columns[-2]:
        raise database.damaged(f"task {str(task.name)[:80]!r} is not what was written")
    return task


class TaskTable(Mapping[str, TaskInfo]):
    """The tasks of a learner: name -> `TaskInfo`, in the order they were learned. Read-only."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> TaskInfo:
        return self.learned(name).info()

    def __iter__(self) -> Iterator[str]:
        return task_names(self._rows.database)

    def __len__(self) -> int:
        query = "SELECT count(*) FROM tasks WHERE current"
        return self._rows.database.rows(query)[0][0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._rows.task(composed(name)) is not None

    def __repr__(self) -> str:
        return f"TaskTable({len(self)} tasks)"

    def _repr_html_(self) -> str:
        return self.table().html()

    def table(self, most: int = SHOWN) -> Table:
        """The first tasks, one per row, and a note on how many more there are."""
        shown = [
            {"task": task.name, "role": task.role, "classes": len(task.classes)}
            | {"version": task.version, "bytes": task.info().bytes}
            for task in islice(self.all(), most)
        ]
        more = len(self) - len(shown)
        cells = table_of(shown) if shown else Table((), (), (), note="no task as yet")
        return replace(cells, note=f"and {more:,} more") if more else cells

    def learned(self, name: str) -> LearnedTask:
        """The task as it is kept. Raises UnknownTaskError, naming the closest known tasks."""
        task = self._rows.task(composed(name)) if isinstance(name, str) else None
        if task is None:
            raise self._unknown(name)
        return task

    def _unknown(self, name: object) -> UnknownTaskError:
        """The error for an unknown name, at the cost of a known one among any number of tasks."""
        names = self.page(0, COMPARED_NAMES + 1)
        if len(names) <= COMPARED_NAMES or not isinstance(name, str):
            return unknown_task(name, names)
        query = "SELECT name FROM tasks WHERE current AND name"
        after = self._rows.database.rows(f"{query} > ? ORDER BY name LIMIT 9", name)
        before = self._rows.database.rows(f"{query} < ? ORDER BY name DESC LIMIT 9", name)
        return unknown_task(name, [close for (close,) in (*before, *after)], are_all=False)

    def page(self, skipped: int, most: int) -> list[str]:
        """Names of tasks in the order they were learned."""
        query = "SELECT name FROM tasks WHERE current ORDER BY number LIMIT ? OFFSET ?"
        return [name for (name,) in self._rows.database.rows(query, most, skipped)]

    def first(self) -> LearnedTask | None:
        """The task learned first; None while there is none."""
        return self._rows.task(None)

    def all(self) -> Iterator[LearnedTask]:
        """Every task as it is kept, also those that are added meanwhile; faster than one by one."""
        return map(self._rows.decode, read_rows(self._rows.database, "t.current"))


def changed_meanwhile(name: str) -> InputError:
    """The error for an update of a task that is not there any more."""
    return InputError(f"task {name!r} was changed or removed meanwhile; update it again")


def _encode_mask(
    mask: PackedMask, layers: Sequence[MaskableLayer]
) -> tuple[str, str, str, bytes | None, bytes]:
    """The name, source, recipe, bits (None where the recipe draws them again) and their digest."""
    info, packed = mask
    digest, bits = mask_digest(packed), None
    if info.source != "random" or not _is_drawn(mask, layers):
        bits = coded_mask(mask, layers)[0].coded
    recipe = to_json({"ones": list(info.ones), **info.recipe})
    return info.name, info.source, recipe, bits, digest


def _decode_mask(values: Sequence[Any], layers: Sequence[MaskableLayer]) -> PackedMask:
    """The mask of what `_encode_mask` gave."""
    name, source, text, coded, digest = values
    recipe = json.loads(text)
    ones = tuple(recipe.pop("ones"))
    if coded is None:
        packed = _draw(layers, ones, recipe)
    else:
        shapes = [(layer.units, layer.fan_in) for layer in layers]
        packed = [pack(torch.from_numpy(bits)) for bits in decode_bits(coded, shapes)]
    if mask_digest(packed) != digest:
        raise ValueError("it does not have the bits that were written")
    return MaskInfo(name, source, ones, recipe, coded), packed


def _is_drawn(mask: PackedMask, layers: Sequence[MaskableLayer]) -> bool:
    """Whether the recipe gives this very mask: a caller may have named their own one "random"."""
    info, packed = mask
    try:
        return mask_digest(_draw(layers, info.ones, info.recipe)) == mask_digest(packed)
    except UNREADABLE:
        return False


def _draw(
    layers: Sequence[MaskableLayer], ones: Sequence[int], recipe: Mapping[str, Any]
) -> list[Tensor]:
    seed, number, shared = recipe["seed"], recipe["number"], recipe.get("disjoint")
    if shared is None:
        drawn = random_mask(layers, ones, seed, number)
    else:
        kernels = recipe.get("kernels", False)
        drawn = disjoint_mask(layers, shared, seed, number, kernels=kernels)
    return [pack(drawn[layer.name].reshape(layer.units, layer.fan_in)) for layer in layers]


def mask_digest(packed: Sequence[Tensor]) -> bytes:
    """BLAKE2b of a mask's packed bits."""
    digest = hashlib.blake2b(digest_size=16)
    for bits in packed:
        digest.update(bits.cpu().contiguous().numpy().data)
    return digest.digest()
