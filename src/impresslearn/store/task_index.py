"""`TaskIndex` finds the tasks that inputs most likely belong to, in stores of very many tasks.

Over a pretrained network, every task stores the means of its classes, in coordinates of features
that all tasks share (`FeatureSpace`). The index collects these means in one table, reduced to the
coordinates in which inputs differ most. Task inference then compares inputs in full only with the
tasks that have the nearest means. The table is a file beside the store, NAME.index, if that can be
written. It is mapped into memory, so a server with 100,000 tasks holds in memory only their names,
and rows that are not in the file yet. It can always be made again from the tasks' profiles.
"""

import hashlib
import mmap
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
from impresslearn.inference.feature_scores import FeatureProfile, FeatureSpace, frozen_features
from impresslearn.kernels.compiling import forkable_lock

MANY_TASKS = 256  # with fewer tasks, inputs are compared with every task in full
SHORTLIST, SHORTLIST_OF_ONE = 64, 16  # tasks on the shortlist of a batch, and of a single input
COORDINATES = 64
INPUTS, TASKS = 16, 4096  # in one step: 10 MB of means, 6 MB of distances to 100,000 tasks
AT_ONCE = 2048  # new tasks whose means are added together
WORTH_WRITING = 1000  # added or removed tasks after which the file is written anew
DIGEST_BYTES = 16  # the digest of the table, at the end of the file
# A row of the table: the checksum of a task's row in the store, and the mean of one of its classes.
ROW = np.dtype([("task", "<u8"), ("mean", "<f2", (COORDINATES,))])


class _Means:
    """The class means of some tasks: rows of the table, task by task. tasks: their checksums."""

    def __init__(self, rows: np.ndarray, mapped: mmap.mmap | None = None) -> None:
        checksums, means = rows["task"], rows["mean"]
        starts = np.flatnonzero(np.diff(checksums, prepend=~checksums[:1]))  # row 0 starts a task
        self.rows, self._mapped = rows, mapped
        self.tasks, self._bounds = checksums[starts], np.append(starts, len(rows))
        self._squares = np.einsum("md,md->m", means, means, dtype=np.float32)
        self._release()

    def _release(self) -> None:
        """Lets the system drop mapped rows from memory; it reads them again when needed."""
        if self._mapped is not None and hasattr(self._mapped, "madvise"):  # Windows has none
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yields parts of the tasks: their places in `tasks`, and the bounds of their rows."""
        for first in range(0, len(self.tasks), TASKS):
            yield slice(first, first + TASKS), self._bounds[first : first + TASKS + 1]
            self._release()

    def nearest(self, points: np.ndarray) -> np.ndarray:
        """The squared distances (T, n) of each input to the nearest mean of each task.

        They leave out the input's squared length, which is the same for all tasks.
        """
        nearest = np.empty((len(self.tasks), len(points)), np.float32)
        for places, bounds in self.parts():
            rows = slice(bounds[0], bounds[-1])
            # torch converts float16 faster than NumPy does.
            means = torch.from_numpy(self.rows["mean"][rows, : points.shape[1]]).float().numpy()
            away = self._squares[rows, None] - 2 * (means @ points.T)
            nearest[places] = np.minimum.reduceat(away, bounds[:-1] - bounds[0], axis=0)
        return nearest


class TaskIndex:
    """The class means of a store's tasks, brought up to date before each shortlist."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = forkable_lock()
        self._state: object = None
        path = store.database.path
        self._path = None if path is None else Path(f"{path}.index")
        self._filed = self._recent = _Means(np.empty(0, ROW))  # rows in the file, and not yet in it
        self._names: list[str | None] = []  # the name of each task; None for a removed task
        self._gone: list[int] = []  # the places of the removed tasks
        self._unplaced: dict[int, str] = {}  # checksum and name of tasks without class means

    @torch.no_grad()
    def shortlist(
        self, inputs: Tensor | Inputs, one_by_one: bool = False
    ) -> tuple[list[str], Tensor | Inputs] | None:
        """The names of the most likely tasks, and the inputs (n, ...) with their features.

        one_by_one: whether each input may belong to a different task.

        The names always include tasks without class means, such as tasks with few examples. None if
        the store has few tasks, or many tasks without class means.
        """
        store = self._store
        space = store.space
        if space is None or len(store.tasks) <= MANY_TASKS:
            return None
        backbone, frozen = store.backbone, store.frozen_view
        features = frozen_features(backbone, frozen, inputs)
        points = space.coordinates(features)[:, self._axes(space)].cpu().numpy()
        with self._lock:
            if not self._catch_up(space):
                return None
            places = self._nearest_tasks(points, one_by_one)
            names = [str(self._names[place]) for place in places] + [*self._unplaced.values()]
        if not isinstance(inputs, Features) and not backbone.normalises_by_batch:
            inputs = Features(features, inputs, backbone.identity, frozen.feature_keys or (), {})
        return names, inputs

    def _nearest_tasks(self, points: np.ndarray, one_by_one: bool) -> np.ndarray:
        """The places of the tasks most likely for inputs, which are points (n, d)."""
        places, total = [], np.zeros(len(self._names), np.float32)
        for begin in range(0, len(points), INPUTS):
            batch = points[begin : begin + INPUTS]
            nearest = np.concatenate([self._filed.nearest(batch), self._recent.nearest(batch)])
            nearest[self._gone] = np.inf
            if one_by_one:
                order = np.argpartition(nearest, SHORTLIST_OF_ONE, axis=0)
                places.append(order[:SHORTLIST_OF_ONE].ravel())
            total += nearest.sum(axis=1)
        if not one_by_one:
            places.append(np.argpartition(total, SHORTLIST)[:SHORTLIST])
        return np.unique(np.concatenate(places))

    def _axes(self, space: FeatureSpace) -> Tensor:
        """The coordinates with the most spread of all inputs relative to inputs of one class."""
        return space.variances.argsort(descending=True)[:COORDINATES]

    def _catch_up(self, space: FeatureSpace) -> bool:
        """Adds new tasks and drops removed tasks; False if too many tasks have no means."""
        database = self._store.database
        state = database.generation()
        if state is not None and state == self._state:
            return True
        if not self._checksums():
            self._read()
        query = "SELECT checksum, name FROM tasks WHERE current"
        names = {int.from_bytes(key, "little"): name for key, name in database.rows(query)}
        self._unplaced = {key: names[key] for key in self._unplaced if key in names}
        known = {*self._unplaced, *self._checksums()}
        unknown = [key for key in names if key not in known]
        for begin in range(0, len(unknown), AT_ONCE):
            if len(self._unplaced) > SHORTLIST:
                return False
            new = unknown[begin : begin + AT_ONCE]
            added = [self._rows_of(key, names[key], space) for key in new]
            self._recent = _Means(np.concatenate([self._recent.rows, *added]))
            self._write(names, max(WORTH_WRITING, len(self._filed.tasks) // 8))
        if len(self._unplaced) > SHORTLIST:
            return False
        # If there are many new tasks, the last of them are written too.
        self._write(names, 1 if len(unknown) >= WORTH_WRITING else WORTH_WRITING)
        self._names = [names.get(key) for key in self._checksums()]
        self._gone = [place for place, name in enumerate(self._names) if name is None]
        self._state = state
        return True

    def _checksums(self) -> list[int]:
        """The checksums of all tasks, beginning with the tasks in the file."""
        return self._filed.tasks.tolist() + self._recent.tasks.tolist()

    def _rows_of(self, key: int, name: str, space: FeatureSpace) -> np.ndarray:
        """The rows of a task; no rows if it has no class means."""
        check_wanted()
        store = self._store
        task = store.tasks.stored(name)
        if not isinstance(task.profile, FeatureProfile):
            self._unplaced[key] = name
            return np.empty(0, ROW)
        weights = store.view(task, evict_others=False).weights
        means = task.profile.means_of(space, store.backbone, weights, len(task.classes))
        means = means[:, self._axes(space)]
        rows = np.zeros(len(means), ROW)
        rows["task"], rows["mean"][:, : means.shape[1]] = key, means.half().cpu().numpy()
        return rows

    def _read(self) -> None:
        """Reads the index beside the store, if there is one and it is valid."""
        if self._path is None:
            return
        with suppress(OSError, ValueError):  # ValueError: its length is wrong
            with open(self._path, "rb") as file:
                # Copy-on-write, because torch warns about read-only arrays.
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            table = memoryview(mapped)[:-DIGEST_BYTES]
            digest = hashlib.blake2b(table, digest_size=DIGEST_BYTES)
            if digest.digest() == mapped[-DIGEST_BYTES:]:
                self._filed = _Means(np.frombuffer(table, ROW), mapped)
                self._recent = _Means(np.empty(0, ROW))

    def _write(self, names: Mapping[int, str], least: int) -> None:
        """Tries to write the index, if at least `least` tasks were added or removed."""
        present = np.fromiter(names, np.uint64, len(names))
        is_gone = np.isin(self._filed.tasks, present, invert=True)
        changes = len(self._recent.tasks) + np.count_nonzero(is_gone)
        if self._path is None or changes < least:
            return
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        with suppress(OSError, StoreError):
            with new_file(self._path) as temporary, open(temporary, "wb") as file:
                for means in (self._filed, self._recent):
                    for _, bounds in means.parts():
                        rows = means.rows[bounds[0] : bounds[-1]]
                        content = rows[np.isin(rows["task"], present)].tobytes()
                        digest.update(content)
                        file.write(content)
                file.write(digest.digest())
            self._read()
