"""A shortlist of the tasks that inputs may belong to, for stores of very many tasks.

Over a pretrained network every task knows the means of its classes in coordinates of features that
all tasks share. The index holds those means in one table, in the few coordinates in which inputs
differ most. The tasks whose means lie nearest to some inputs are then judged in full.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        self._places: dict[bytes, int] = {}  # checksum of a task's row -> its place
        # Means (M, d) of all classes, and where the classes of each task begin.
        self._means, self._starts = np.zeros((0, 0), np.float16), np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.float32)  # (M,) squared lengths of the means
        path = store.database.path
        self._path = None if path is None else Path(f"{path}{SUFFIX}")

    @torch.no_grad()
    def shortlist(
        self, inputs: Tensor | Inputs, one_by_one: bool = False
    ) -> tuple[list[str], Tensor | Inputs] | None:
        """The names of the likeliest tasks, and the inputs with their features.

        - inputs: (n, ...) as the network takes them.
        - one_by_one: whether each input may be of another task.

        None where there are few tasks, or one of them does not know its inputs by their features.
        """
        store = self._store
        space = store.features.space
        if space is None or len(store.tasks) <= MANY_TASKS or not self._catch_up(space):
            return None
        backbone, frozen = store.backbone, store.frozen
        if not isinstance(inputs, Features):
            backbone.check_inputs(inputs)
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
        state: object = database.generation()
        if database.path is None:
            state = database.rows("SELECT count(*), max(id) FROM tasks WHERE current")
        if state is None or state != self._state:
            if not self._places and self._path is not None:
                self._read()
            rows = database.rows("SELECT checksum, name FROM tasks WHERE current")
            unknown = [name for checksum, name in rows if checksum not in self._places]
            learned = self._means_of(unknown, space)
            if learned is None:
                return False
            self._put_together(rows, learned)
            self._state = state
            if len(unknown) >= WORTH_KEEPING and self._path is not None:
                self._write()
        return True

    def _means_of(self, names: Sequence[str], space: FeatureSpace) -> list[np.ndarray] | None:
        """(K, d) of each task; None where one of them does not know them."""
        store, axes, means = self._store, self._axes(space), []
        for name in names:
            task = store.tasks.learned(name)
            if not isinstance(task.profile, FeatureProfile):
                return None
            weights = store.view(task, evict_others=False).weights
            directions = space.directions(head_of(store.backbone, weights), len(task.classes))
            means.append(task.profile.means(directions)[:, axes].half().cpu().numpy())
        return means

    def _put_together(
        self, rows: Sequence[tuple[bytes, str]], learned: Sequence[np.ndarray]
    ) -> None:
        """The table of the tasks of these rows, from the present one and means that are new."""
        present = np.split(self._means, self._starts[1:]) if len(self._starts) else []
        new, tables = iter(learned), []
        for checksum, _ in rows:
            place = self._places.get(checksum)
            tables.append(next(new) if place is None else present[place])
        self._places = {checksum: place for place, (checksum, _) in enumerate(rows)}
        self._names = [name for _, name in rows]
        self._means = np.concatenate(tables)
        sizes = [len(table) for table in tables]
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        parts = [self._means[at : at + MEANS] for at in range(0, len(self._means), MEANS)]
        squares = [np.square(part, dtype=np.float32).sum(axis=1) for part in parts]
        self._lengths = np.concatenate(squares)

    def _read(self) -> None:
        """Takes the index beside the store, if there is one that can be read."""
        try:
            with np.load(str(self._path), allow_pickle=False) as file:
                means, starts = file["means"], file["starts"]
                checksums = file["checksums"].tobytes()
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return
        if len(checksums) == 8 * len(starts) and means.ndim == 2 and starts[-1:] < len(means):
            keys = [checksums[place : place + 8] for place in range(0, len(checksums), 8)]
            self._means, self._starts = means, starts
            self._places = {key: place for place, key in enumerate(keys)}

    def _write(self) -> None:
        """Writes the index beside the store; where that fails, it is made anew another time."""
        checksums = np.frombuffer(b"".join(self._places), np.uint8)
        assert self._path is not None
        try:
            with new_file(self._path, overwrite=True) as temporary, open(temporary, "wb") as file:
                np.savez(file, means=self._means, starts=self._starts, checksums=checksums)
        except (OSError, StoreError):
            return
