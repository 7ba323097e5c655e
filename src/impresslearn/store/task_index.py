"""A shortlist of the tasks that inputs may belong to, for stores of very many tasks.

Over a pretrained network every task knows the means of its classes in coordinates of features that
all tasks share. The index holds those means in one table, in the few coordinates in which inputs
differ most. The tasks whose means lie nearest to some inputs are then judged in full.

The table is a file beside the store, mapped into memory part by part: a server of 100,000 tasks
holds only their names and what is not in the file yet.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.data import Features, Inputs
from impresslearn.errors import StoreError
from impresslearn.files import new_file
from impresslearn.inference.exhaustive import check_wanted
from impresslearn.inference.feature_scores import (
    FeatureProfile,
    FeatureSpace,
    frozen_features,
    head_of,
)
from impresslearn.kernels.compiling import forkable_lock

MANY_TASKS = 256  # fewer are judged one by one
SHORTLIST, SHORTLIST_OF_ONE = 64, 16  # tasks for a batch, and for one of many inputs
COORDINATES = 64
# Inputs and class means compared at a time: about 10 MB, and 6 MB for 100,000 tasks.
INPUTS, MEANS = 16, 2**14
AT_ONCE = 2048  # new tasks whose means are added together
WORTH_KEEPING = 1000  # tasks that have come or gone, after which the file is written anew
SUFFIX = ".index"
DIGEST_BYTES = 16  # of the file's table, at its end


class TaskIndex:
    """The class means of a store's tasks, brought up to date when it is asked.

    - store: whose tasks these are. A store in a file keeps its index beside it, in NAME.index,
      where it can be written; it is only ever a copy of what the tasks know.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = forkable_lock()
        self._state: object = None
        path = store.database.path
        self._path = None if path is None else Path(f"{path}{SUFFIX}")
        # A row of the table: the checksum of a task's row, and the mean of one of its classes.
        self._kind = np.dtype([("task", "<u8"), ("mean", "<f2", (0,))])
        self._file: Any = None  # the file beside the store
        self._names: list[str | None] = []  # of each task; None for those that were removed
        self._gone: list[int] = []  # their places
        self._odd_names: list[str] = []
        self._odd: set[int] = set()  # tasks that know no means, as those of few examples
        self._forget()

    def _forget(self) -> None:
        """Empties the table."""
        self._filed = 0  # rows in the file
        self._recent = np.empty(0, self._kind)  # the rows after those
        # For each task of the table, in its order: its checksum, and its first row.
        self._tasks, self._starts = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._lengths = np.empty(0, np.float32)  # squared lengths of all means

    @torch.no_grad()
    def shortlist(
        self, inputs: Tensor | Inputs, one_by_one: bool = False
    ) -> tuple[list[str], Tensor | Inputs] | None:
        """The names of the likeliest tasks, and the inputs (n, ...) with their features.

        one_by_one: whether each input may be of another task.

        A few tasks that do not recognise inputs by features are always among them. None if there
        are few tasks, or many of that kind.
        """
        store = self._store
        space = store.space
        if space is None or len(store.tasks) <= MANY_TASKS:
            return None
        backbone, frozen = store.backbone, store.frozen_view
        features = frozen_features(backbone, frozen, inputs)
        seen = space.coordinates(features)[:, self._axes(space)].cpu().numpy()
        with self._lock:
            if not self._catch_up(space):
                return None
            places = self._nearest_tasks(seen, one_by_one)
            names = [str(self._names[place]) for place in places] + self._odd_names
        if not isinstance(inputs, Features) and not backbone.normalises_by_batch:
            keys = frozen.feature_keys or ()
            inputs = Features(features, inputs, backbone.identity, keys, {})
        return names, inputs

    def _nearest_tasks(self, seen: np.ndarray, one_by_one: bool) -> np.ndarray:
        """The places of the likeliest tasks of inputs in coordinates (n, d)."""
        places, total = [], np.zeros(len(self._names), np.float32)
        for begin in range(0, len(seen), INPUTS):
            nearest = self._nearest(seen[begin : begin + INPUTS])
            nearest[self._gone] = np.inf
            if one_by_one:
                order = np.argpartition(nearest, SHORTLIST_OF_ONE, axis=0)
                places.append(order[:SHORTLIST_OF_ONE].ravel())
            total += nearest.sum(axis=1)
        if not one_by_one:
            places.append(np.argpartition(total, SHORTLIST)[:SHORTLIST])
        return np.unique(np.concatenate(places))

    def _nearest(self, seen: np.ndarray) -> np.ndarray:
        """(T, n): the squared distance of each input to the nearest mean of each task.

        The input's own squared length is left out, as it is the same for all tasks.
        """
        nearest = np.full((len(self._starts), len(seen)), np.inf, np.float32)
        for begin, rows in self._parts():
            end = begin + len(rows)
            # torch converts numbers of 16 bits faster than NumPy.
            means = torch.from_numpy(rows["mean"]).float().numpy()
            away = self._lengths[begin:end, None] - 2 * (means @ seen.T)
            # The tasks with rows in this part; the first one may have begun in the part before.
            first = np.searchsorted(self._starts, begin, side="right") - 1
            starts = self._starts[first : np.searchsorted(self._starts, end)]
            found = np.minimum.reduceat(away, np.maximum(starts - begin, 0), axis=0)
            here = nearest[first : first + len(starts)]
            np.minimum(here, found, out=here)
        return nearest

    def _parts(self) -> Iterator[tuple[int, np.ndarray]]:
        """The table in parts, each with the number of its first row."""
        size = self._kind.itemsize
        for begin in range(0, self._filed, MEANS):
            # Mapped anew each time, so that the memory of a part is free once it was used. Mode "c"
            # because torch warns of arrays that cannot be written.
            count = min(MEANS, self._filed - begin)
            yield begin, np.memmap(self._file, self._kind, "c", size * begin, (count,))
        if len(self._recent):
            yield self._filed, self._recent

    def _axes(self, space: FeatureSpace) -> Tensor:
        """The coordinates in which inputs differ most, compared with inputs of one class."""
        return space.variances.argsort(descending=True)[:COORDINATES]

    def _catch_up(self, space: FeatureSpace) -> bool:
        """Adds new tasks and drops removed ones; returns whether it holds all tasks."""
        database = self._store.database
        state = database.generation()
        if state is not None and state == self._state:
            return True
        if not len(self._tasks):
            self._kind = np.dtype([("task", "<u8"), ("mean", "<f2", (len(self._axes(space)),))])
            self._read()
        query = "SELECT checksum, name FROM tasks WHERE current"
        names = {int.from_bytes(key, "little"): name for key, name in database.rows(query)}
        self._odd &= names.keys()
        known = self._odd.union(self._tasks.tolist())
        unknown = [key for key in names if key not in known]
        for begin in range(0, len(unknown), AT_ONCE):
            if len(self._odd) > SHORTLIST:
                return False
            added = self._rows_of(unknown[begin : begin + AT_ONCE], names, space)
            self._note(added)
            self._recent = np.concatenate([self._recent, added])
            self._keep(names, max(WORTH_KEEPING, len(self._tasks) // 8))
        if len(self._odd) > SHORTLIST:
            return False
        self._keep(names, 1 if len(unknown) >= WORTH_KEEPING else WORTH_KEEPING)
        self._names = [names.get(key) for key in self._tasks.tolist()]
        self._gone = [place for place, name in enumerate(self._names) if name is None]
        self._odd_names = [names[key] for key in self._odd]
        self._state = state
        return True

    def _rows_of(
        self, tasks: list[int], names: Mapping[int, str], space: FeatureSpace
    ) -> np.ndarray:
        """The rows of new tasks; none for those that do not know their means."""
        parts = [np.empty(0, self._kind)]
        for key in tasks:
            check_wanted()
            means = self._means_of(names[key], space)
            if means is None:
                self._odd.add(key)
                continue
            parts.append(part := np.empty(len(means), self._kind))
            part["task"], part["mean"] = key, means
        return np.concatenate(parts)

    def _means_of(self, name: str, space: FeatureSpace) -> np.ndarray | None:
        """(K, d) of a task; None where it does not know them."""
        store = self._store
        task = store.tasks.stored(name)
        if not isinstance(task.profile, FeatureProfile):
            return None
        weights = store.view_once(task).weights
        directions = space.directions(head_of(store.backbone, weights), len(task.classes))
        return task.profile.means(directions)[:, self._axes(space)].half().cpu().numpy()

    def _note(self, rows: np.ndarray) -> None:
        """Notes the tasks and the lengths of the rows that follow in the table."""
        # The first of them may be of the task before.
        before = self._tasks[-1:] if len(self._tasks) else ~rows["task"][:1]
        starts, means = np.flatnonzero(np.diff(rows["task"], prepend=before)), rows["mean"]
        lengths = np.einsum("md,md->m", means, means, dtype=np.float32)
        self._tasks = np.concatenate([self._tasks, rows["task"][starts]])
        self._starts = np.concatenate([self._starts, starts + len(self._lengths)])
        self._lengths = np.concatenate([self._lengths, lengths])

    def _read(self) -> None:
        """Takes the index beside the store, if there is one that can be read."""
        self._forget()
        if self._path is None:
            return
        with suppress(OSError):
            self._file = open(self._path, "rb")  # noqa: SIM115 - it stays open
            weakref.finalize(self, self._file.close)
            size = os.fstat(self._file.fileno()).st_size - DIGEST_BYTES
            self._filed = max(0, size) // self._kind.itemsize
            digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
            for _, rows in self._parts():
                digest.update(rows.tobytes())
                self._note(rows)
            self._file.seek(self._filed * self._kind.itemsize)
            if self._file.read() == digest.digest():
                return
        self._forget()

    def _keep(self, names: Mapping[int, str], least: int) -> None:
        """Writes the index beside the store, if at least this number of tasks has come or gone.

        Where that fails, it is made anew another time.
        """
        is_present = np.isin(self._tasks, np.fromiter(names, np.uint64, len(names)))
        changes = len(np.unique(self._recent["task"])) + np.count_nonzero(~is_present)
        if self._path is None or changes < least:
            return
        kept = np.repeat(is_present, np.diff(self._starts, append=len(self._lengths)))
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        with suppress(OSError, StoreError):
            with (
                new_file(self._path, overwrite=True) as temporary,
                open(temporary, "wb") as file,
            ):
                for begin, rows in self._parts():
                    content = rows[kept[begin : begin + len(rows)]].tobytes()
                    digest.update(content)
                    file.write(content)
                file.write(digest.digest())
            self._read()
