"""`Rows` reads and writes a store's tables; `TaskTable` is the mapping of tasks that users see."""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from cachetools import LRUCache
from torch import Tensor

from impresslearn.checks import composed
from impresslearn.coefficients.readout import Projection
from impresslearn.errors import InputError, StoreReplacedError
from impresslearn.inference.class_map import ClassMap
from impresslearn.inference.feature_scores import FeatureSpace
from impresslearn.kernels import pack
from impresslearn.masks import disjoint_mask, random_mask
from impresslearn.masks.bank import MaskInfo, PackedMask, coded_mask
from impresslearn.masks.codec import decode_mask
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MaskableLayer
from impresslearn.store.database import UNREADABLE, Database, checksum
from impresslearn.store.tasks import (
    COMPARED_NAMES,
    FORM,
    StoredTask,
    TaskInfo,
    TaskRow,
    decode_task,
    name_taken,
    to_json,
    unknown_task,
)
from impresslearn.tables import SHOWN, remaining, table_of

DECODED_TASKS = 4096  # decoded tasks kept in memory
BATCH = 1000  # tasks read by one query
CLASS_MAP = "class map"  # the name of the class map in the table meta
_SELECT = """
    SELECT t.name, t.version, t.mask, t.num_masks, d.text, t.coefficients, t.statistics, t.profile,
           t.history, t.checksum, t.number
    FROM tasks AS t LEFT JOIN documents AS d ON d.id = t.form
"""
# Rows that no commit changes once they are written. If one has changed, the file is another store.
# The first bytes of a trained mask are enough to tell it from any other mask.
_FIXED = """
    SELECT 'mask', position, name, recipe, length(bits), substr(bits, 1, 256) FROM masks UNION ALL
    SELECT 'projection', number, checksum, 0, 0, 0 FROM projections UNION ALL
    SELECT 'meta', name, checksum, 0, 0, 0 FROM meta WHERE name IN ('head', 'shared', 'features')
"""
# A task's number is the id of its first row. All its versions have it, and it orders the tasks.
_INSERT = """
    INSERT INTO tasks (number, name, version, current, mask, num_masks, form, coefficients,
                       statistics, profile, history, checksum)
    VALUES (coalesce((SELECT number FROM tasks WHERE name = ? LIMIT 1),
                     (SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'tasks')),
            ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Rows:
    """Reads and writes the rows of one store; write only inside `Database.transaction`."""

    def __init__(self, database: Database, backbone: Backbone) -> None:
        self.database, self.backbone = database, backbone
        # Task name -> the decoded task, and the database's generation when it was last checked.
        self._decoded: LRUCache[str | None, tuple[StoredTask, Hashable]] = LRUCache(DECODED_TASKS)
        self._lock = threading.Lock()
        self._generation: Hashable = None
        self._fixed: dict[tuple, tuple] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.database, self.backbone)

    def generation(self) -> Hashable:
        """`Database.generation`. Raises StoreReplacedError if the file is now another store."""
        generation = self.database.generation()
        if generation is not None and generation != self._generation:
            fixed = {row[:2]: row[2:] for row in self.database.rows(_FIXED)}
            if not self._fixed.items() <= fixed.items():
                where = self.database.where
                line = "was overwritten by another store while it was open; open it again"
                raise StoreReplacedError(f"{where} {line}")
            self._fixed, self._generation = fixed, generation
        return generation

    def task(self, name: str | None) -> StoredTask | None:
        """The current version of a task, or None. name: None for the task learned first.

        Decoded tasks are cached, and a task is decoded again only after its row has changed.
        Raises StoreError for a damaged row.
        """
        generation = self.generation()
        with self._lock:
            task, seen = self._decoded.get(name, (None, None))
        if generation is not None and seen == generation:
            return task
        which = ("ORDER BY t.number LIMIT 1",) if name is None else ("AND t.name = ?", name)
        row = self.database.row(f"{_SELECT} WHERE t.current {which[0]}", *which[1:])
        if row is None:
            return None
        if task is None or task.digest != row[-2]:  # the checksum
            task = self.decode(_checked(self.database, row))
        with self._lock:
            self._decoded[name] = task, generation
        return task

    def form(self) -> dict[str, Any] | None:
        """The form of raw inputs, set by the first task or by `save(tasks=[])`; None if not set."""
        first = self.task(None)
        if first is None:
            head = self.meta("head")
            return json.loads(head).get("form") if head else None
        recipe = first.history["recipe"]
        return {key: recipe[key] for key in FORM if key in recipe}

    def task_rows(self, name: str | None = None) -> Iterator[TaskRow]:
        """The rows of all versions of one task, or of all tasks."""
        condition = ("true",) if name is None else ("t.name = ?", name)
        return read_rows(self.database, *condition)

    def add_task(self, row: TaskRow) -> None:
        """Writes a new task, or the next version of a stored task.

        Raises InputError if another commit has taken the name or added this version meanwhile, or
        if the task was learned from inputs of another form than the first task.
        """
        form, recipe = self.form(), row.parsed_form["recipe"]
        for key in FORM:
            value, known = recipe.get(key), (recipe if form is None else form).get(key)
            if value not in (None, known) and (value or known):  # False means the same as None
                line = f"task {row.name!r} was learned from inputs with {key} = {value}, but"
                raise InputError(f"{line} the first task here has {known}; learn it again here")
        digest = hashlib.blake2b(row.form.encode(), digest_size=8).digest()
        document = int.from_bytes(digest, "little", signed=True)  # all tasks of this form share it
        if row.version > 1:
            former = self.task(row.name)
            if former is not None and list(former.classes) != row.parsed_form["classes"]:
                self._remove_from_class_map({row.name})
            change = "UPDATE tasks SET current = NULL WHERE name = ? AND version = ? AND current"
            if not self.database.write(change, row.name, row.version - 1).rowcount:
                raise changed_meanwhile(row.name)
        self.database.write("INSERT OR IGNORE INTO documents VALUES (?, ?)", document, row.form)
        columns = (row.coefficients, row.statistics, row.profile, row.history, row.checksum)
        about = (row.name, row.version, row.mask, row.num_masks, document)
        try:
            self.database.write(_INSERT, row.name, *about, *columns)
        except sqlite3.IntegrityError:
            error = name_taken(row.name) if row.version == 1 else changed_meanwhile(row.name)
            raise error from None

    def remove_tasks(self, names: Iterable[str]) -> None:
        """Deletes tasks with all their versions, and removes them from the class map."""
        names = set(names)
        for name in names:
            self.database.write("DELETE FROM tasks WHERE name = ?", name)
        self._remove_from_class_map(names)

    def _remove_from_class_map(self, names: Collection[str]) -> None:
        """Removes tasks from the class map, if there is one."""
        content = self.meta(CLASS_MAP)
        if content is not None:
            present = ClassMap.decode(content)
            codes = {name: code for name, code in present.codes.items() if name not in names}
            self.write_meta(CLASS_MAP, replace(present, codes=codes).encode())

    def decode(self, row: TaskRow) -> StoredTask:
        """Decodes a task. Raises StoreError for a task of another network."""
        with self.database.decoding(f"task {row.name[:80]!r}"):
            return decode_task(row, self.backbone)

    def masks(self, first: int = 0) -> Iterator[PackedMask]:
        """The masks from position `first` on. Raises StoreError if one cannot be decoded."""
        columns = "name, source, recipe, bits, digest, checksum"
        query = f"SELECT {columns} FROM masks WHERE position >= ? ORDER BY position"
        layers = self.backbone.layers
        for *values, written in self.database.rows(query, first):
            name, source, text, coded, digest = values
            with self.database.decoding(f"mask {str(name)[:80]!r}"):
                recipe = json.loads(text)
                ones = tuple(recipe.pop("ones"))
                if coded is None:
                    packed = _draw(layers, ones, recipe)
                else:
                    shapes = [(layer.units, layer.fan_in) for layer in layers]
                    packed = [pack(torch.from_numpy(bits)) for bits in decode_mask(coded, shapes)]
                if checksum(*values) != written or mask_digest(packed) != digest:
                    raise ValueError("it does not have the bits that were written")
            yield MaskInfo(name, source, ones, recipe, coded), packed

    def add_masks(self, first: int, masks: Iterable[PackedMask]) -> None:
        """Writes masks at positions from `first` on. Raises InputError if a name is taken."""
        layers = self.backbone.layers
        for position, mask in enumerate(masks, first):
            info, packed = mask
            digest, drawn_digest, bits = mask_digest(packed), None, None
            if info.source == "random":
                with suppress(*UNREADABLE):  # a user's own masks may say "random", too
                    drawn_digest = mask_digest(_draw(layers, info.ones, info.recipe))
            if drawn_digest != digest:  # the recipe does not reproduce these bits
                bits = coded_mask(mask, layers)[0].coded
            recipe = to_json({"ones": list(info.ones), **info.recipe})
            values = (info.name, info.source, recipe, bits, digest)
            try:
                query = "INSERT INTO masks VALUES (?, ?, ?, ?, ?, ?, ?)"
                self.database.write(query, position, *values, checksum(*values))
            except sqlite3.IntegrityError:
                line = f"the bank holds a mask named {info.name!r}; choose another name"
                raise InputError(line) from None

    def add_projection(self, projection: Projection) -> int:
        """Writes a projection of features under the next number; returns the number."""
        sizes = [projection.num_masks, projection.residual, projection.matrix.shape[1]]
        matrix = projection.matrix.cpu().half().contiguous().numpy()
        content = np.array(sizes, "<u4").tobytes() + matrix.tobytes()
        query = "INSERT INTO projections VALUES (NULL, ?, ?, ?)"
        added = self.database.write(query, projection.num_masks, content, checksum(content))
        return added.lastrowid or 0

    def last_projection(self) -> tuple[int, Projection | None]:
        """The number and content of the last projection for readouts; (0, None) without one."""
        # A projection for a `FeatureSpace` alone has num_masks 0 and residual (byte 5) 0.
        for_readouts = "FROM projections WHERE num_masks > 0 OR substr(content, 5, 1) = x'01'"
        number = self.database.rows(f"SELECT coalesce(max(number), 0) {for_readouts}")[0][0]
        return number, self.projection(number)

    def projection(self, number: int) -> Projection | None:
        """The projection with this number; None for 0. Raises StoreError if it is missing."""
        if not number:
            return None
        content = self.database.content("projections", number)
        num_masks, residual, components = np.frombuffer(content[:12], "<u4").tolist()
        matrix = np.frombuffer(content[12:], "<f2").reshape(-1, components).astype(np.float32)
        tensor = torch.from_numpy(matrix).to(self.backbone.device)
        return Projection(num_masks, bool(residual), tensor)

    def space(self) -> FeatureSpace | None:
        """The feature coordinates in which tasks recognise inputs; None if there are none."""
        content = self.meta("features")
        if content is None:
            return None
        projection, width, components = np.frombuffer(content[:12], "<u4").tolist()
        numbers = torch.from_numpy(np.frombuffer(content[12:], "<f4").copy())
        numbers = numbers.to(self.backbone.device)
        mean, variances, rotation = numbers.tensor_split([width, width + components])
        projected = self.projection(projection)
        matrix = None if projected is None else projected.matrix
        return FeatureSpace(projection, mean, rotation.view(-1, components), variances, matrix)

    def write_space(self, space: FeatureSpace) -> None:
        content = np.array([space.projection, len(space.mean), len(space.variances)], "<u4")
        numbers = torch.cat([space.mean, space.variances, space.rotation.flatten()])
        written = numbers.cpu().float().numpy().astype("<f4")
        self.write_meta("features", content.tobytes() + written.tobytes())

    def meta(self, name: str) -> bytes | None:
        """A value from the table meta, which has one row per name; None if it is missing."""
        if self.database.row("SELECT 1 FROM meta WHERE name = ?", name) is None:
            return None
        return self.database.content("meta", name)

    def write_meta(self, name: str, content: bytes) -> None:
        """Writes a value to the table meta, in place of an older value of this name."""
        query = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"
        self.database.write(query, name, content, checksum(content))


def task_names(database: Database) -> list[str]:
    """The names of a store's tasks, in the order they were learned."""
    rows = database.rows("SELECT name FROM tasks WHERE current ORDER BY number")
    return [name for (name,) in rows]


def read_rows(database: Database, condition: str, *values: str) -> Iterator[TaskRow]:
    """Rows that meet an SQL condition, also rows added meanwhile. StoreError for a damaged row."""
    query = (
        f"{_SELECT} WHERE {condition} AND (t.number, t.version) > (?, ?) "
        f"ORDER BY t.number, t.version LIMIT {BATCH}"
    )
    last = -1, -1
    while batch := database.rows(query, *values, *last):
        for columns in batch:
            yield _checked(database, columns)
        # If the last task of the batch is updated meanwhile, its new version would be yielded, too.
        # So skip all its versions: 2^62 is larger than any.
        _, version, *_, number = batch[-1]
        last = number, 2**62 if condition == "t.current" else version


def _checked(database: Database, columns: tuple) -> TaskRow:
    """The `TaskRow` of a row of `_SELECT`. Raises StoreError for a damaged row."""
    task, written = TaskRow(*columns[:-2]), columns[-2]
    # `form` is None if its row in `documents` is missing.
    if task.form is None or task.checksum != written:
        raise database.damaged(f"task {str(task.name)[:80]!r} is not what was written")
    return task


class TaskTable(Mapping[str, TaskInfo]):
    """The tasks of a learner: name -> `TaskInfo`, in the order they were learned. Read-only."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._counted: tuple[Hashable, int] = None, 0  # generation, and number of tasks

    def __getitem__(self, name: str) -> TaskInfo:
        return self.stored(name).info()

    def __iter__(self) -> Iterator[str]:
        return iter(task_names(self._rows.database))

    def __len__(self) -> int:
        generation = self._rows.generation()
        seen, count = self._counted
        if generation is None or generation != seen:
            # Cached: counting reads every row, and each error for an unknown name needs the count.
            count = self._rows.database.rows("SELECT count(*) FROM tasks WHERE current")[0][0]
            self._counted = generation, count
        return count

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._rows.task(composed(name)) is not None

    def __repr__(self) -> str:
        return f"TaskTable({len(self)} tasks)"

    def _repr_html_(self) -> str:
        rows = [task.row() for task in islice(self.all(), SHOWN)]
        return table_of(rows, note=remaining(len(self)) if rows else "no task as yet").html()

    def stored(self, name: str) -> StoredTask:
        """The stored task. Raises UnknownTaskError, which names the closest known tasks."""
        task = self._rows.task(composed(name)) if isinstance(name, str) else None
        if task is None:
            # Compare the name with the first tasks and with its neighbours in the alphabet, which
            # an index finds quickly among any number of tasks.
            query = "SELECT name FROM tasks WHERE current AND name"
            text, rows = str(name), self._rows.database.rows
            near = rows(f"{query} < ? ORDER BY name DESC LIMIT 9", text)
            near += rows(f"{query} > ? ORDER BY name LIMIT 9", text)
            first = self.page(0, COMPARED_NAMES - len(near))
            names = dict.fromkeys([*first, *(close for (close,) in near)])
            raise unknown_task(name, names, len(self))
        return task

    def page(self, skipped: int, most: int) -> list[str]:
        """The names of at most `most` tasks, in the order they were learned."""
        query = "SELECT name FROM tasks WHERE current ORDER BY number LIMIT ? OFFSET ?"
        return [name for (name,) in self._rows.database.rows(query, most, skipped)]

    def all(self) -> Iterator[StoredTask]:
        """Every stored task, including tasks added meanwhile; faster than reading them by name."""
        return map(self._rows.decode, read_rows(self._rows.database, "t.current"))


def changed_meanwhile(name: str) -> InputError:
    """The error for updating a task that another commit has changed or removed meanwhile."""
    return InputError(f"task {name!r} was changed or removed meanwhile; update it again")


def _draw(
    layers: Sequence[MaskableLayer], ones: Sequence[int], recipe: Mapping[str, Any]
) -> list[Tensor]:
    seed, number, sharing = recipe["seed"], recipe["number"], recipe.get("disjoint")
    if sharing is None:
        drawn = random_mask(layers, ones, seed, number)
    else:
        drawn = disjoint_mask(layers, sharing, seed, number, kernels=recipe.get("kernels", False))
    return [pack(drawn[layer.name].reshape(layer.units, layer.fan_in)) for layer in layers]


def mask_digest(packed: Sequence[Tensor]) -> bytes:
    """BLAKE2b of a mask's packed bits."""
    digest = hashlib.blake2b(digest_size=16)
    for bits in packed:
        digest.update(bits.cpu().contiguous().numpy().data)
    return digest.digest()
