"""A shortlist of the tasks that inputs may belong to, for stores of very many tasks.

Over a pretrained network every task knows the means of its classes in coordinates of features that
all tasks share. The index holds those means in one table, in the few coordinates in which inputs
differ most. The tasks whose means lie nearest to some inputs are then judged in full.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from impresslearn.data import Features, Inputs
from impresslearn.errors import StoreError
from impresslearn.files import new_file
from impresslearn.inference.feature_scores import (
    FeatureProfile,
    FeatureSpace,
    frozen_features,
    head_of,
)

MANY_TASKS = 256  # fewer are judged one by one
SHORTLIST, SHORTLIST_OF_ONE = 64, 16  # tasks for a batch, and for one of many inputs
COORDINATES = 64
# Inputs and class means compared at a time: about 50 MB for 100,000 tasks of five classes.
INPUTS, MEANS = 16, 2**16
WORTH_KEEPING = 1000  # new tasks, after which the index is written beside the store
SUFFIX = ".index"


class TaskIndex:
    """The class means of a store's tasks, brought up to date when it is asked.

    - store: whose tasks these are. A store in a file keeps its index beside it, in NAME.index,
      where it can be written; it is only ever a copy of what the tasks know.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._state: object = None
        self._names: list[str] = []
        # Checksum of a task's row -> the means (K, d) of its classes, views of the table (M, d).
        self._tables: dict[bytes, np.ndarray] = {}
        self._means, self._starts = np.zeros((0, 0), np.float16), np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.float32)  # (M,) squared lengths of the means
        path = store.database.path
        self._path = None if path is None else Path(f"{path}{SUFFIX}")

    @torch.no_grad()
    def shortlist(
        self, inputs: Tensor | Inputs, one_by_one: bool = False
    ) -> tuple[list[str], Tensor | Inputs] | None:
        """The names of the likeliest tasks, and the inputs (n, ...) with their features.

        one_by_one: whether each input may be of another task.

        None if there are few tasks, or one of them does not recognise inputs by features.
        """
        store = self._store
        space = store.space
        if space is None or len(store.tasks) <= MANY_TASKS or not self._catch_up(space):
            return None
        backbone, frozen = store.backbone, store.frozen_view
        features = frozen_features(backbone, frozen, inputs)
        seen = space.coordinates(features)[:, self._axes(space)].cpu().numpy()
        places, total = [], np.zeros(len(self._names), np.float32)
        for begin in range(0, len(seen), INPUTS):
            nearest = self._nearest(seen[begin : begin + INPUTS])
            if one_by_one:
                order = np.argpartition(nearest, SHORTLIST_OF_ONE, axis=0)
                places.append(order[:SHORTLIST_OF_ONE].ravel())
            total += nearest.sum(axis=1)
        if not one_by_one:
            places.append(np.argpartition(total, SHORTLIST)[:SHORTLIST])
        if not isinstance(inputs, Features) and not backbone.normalises_by_batch:
            keys = frozen.feature_keys or ()
            inputs = Features(features, inputs, backbone.identity, keys, {})
        return [self._names[place] for place in np.unique(np.concatenate(places))], inputs

    def _nearest(self, seen: np.ndarray) -> np.ndarray:
        """(T, n): the squared distance of each input to the nearest mean of each task.

        The input's own squared length is left out, as it is the same for all tasks.
        """
        away = np.empty((len(self._means), len(seen)), np.float32)
        for begin in range(0, len(away), MEANS):
            # torch converts numbers of 16 bits faster than NumPy.
            means = torch.from_numpy(self._means[begin : begin + MEANS]).float().numpy()
            np.matmul(means, seen.T, out=away[begin : begin + MEANS])
        away *= -2
        away += self._lengths[:, None]
        return np.minimum.reduceat(away, self._starts, axis=0)

    def _axes(self, space: FeatureSpace) -> Tensor:
        """The coordinates in which inputs differ most, compared with inputs of one class."""
        return space.variances.argsort(descending=True)[:COORDINATES]

    def _catch_up(self, space: FeatureSpace) -> bool:
        """Adds new tasks and drops removed ones; returns whether it holds all tasks."""
        database = self._store.database
        state = database.generation()
        if state is not None and state == self._state:
            return True
        if not self._tables and self._path is not None:
            self._read()
        rows = database.rows("SELECT checksum, name FROM tasks WHERE current")
        unknown = [(key, name) for key, name in rows if key not in self._tables]
        for key, name in unknown:
            means = self._means_of(name, space)
            if means is None:
                return False
            self._tables[key] = means
        self._names = [name for _, name in rows]
        tables = [self._tables[key] for key, _ in rows]
        sizes = np.array([len(table) for table in tables])
        self._means, self._starts = np.concatenate(tables), np.cumsum(sizes) - sizes
        self._lengths = np.einsum("md,md->m", self._means, self._means, dtype=np.float32)
        parts = np.split(self._means, self._starts[1:])
        self._tables = {key: part for (key, _), part in zip(rows, parts, strict=True)}
        self._state = state
        if len(unknown) >= WORTH_KEEPING:
            self._write()
        return True

    def _means_of(self, name: str, space: FeatureSpace) -> np.ndarray | None:
        """(K, d) of a task; None where it does not know them."""
        store = self._store
        task = store.tasks.stored(name)
        if not isinstance(task.profile, FeatureProfile):
            return None
        weights = store.view(task, evict_others=False).weights
        directions = space.directions(head_of(store.backbone, weights), len(task.classes))
        return task.profile.means(directions)[:, self._axes(space)].half().cpu().numpy()

    def _read(self) -> None:
        """Takes the index beside the store, if there is one that can be read."""
        try:
            with np.load(str(self._path), allow_pickle=False) as file:
                means, starts = file["means"], file["starts"]
                keys = [key.tobytes() for key in file["checksums"].reshape(-1, 8)]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return
        if len(keys) == len(starts) and means.ndim == 2 and starts[-1:] < len(means):
            self._tables = dict(zip(keys, np.split(means, starts[1:]), strict=True))

    def _write(self) -> None:
        """Writes the index beside the store; where that fails, it is made anew another time."""
        if self._path is None:
            return
        checksums = np.frombuffer(b"".join(self._tables), np.uint8)
        with (
            suppress(OSError, StoreError),
            new_file(self._path, overwrite=True) as temporary,
            open(temporary, "wb") as file,
        ):
            np.savez(file, means=self._means, starts=self._starts, checksums=checksums)
