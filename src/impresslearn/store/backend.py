"""Keeps a learner's commits in a store, and reads its tasks when they are asked for.

Opening a store of a hundred thousand tasks reads none of them, and tasks that another process adds
are there at once.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence, ValuesView

from impresslearn.coefficients.norm_statistics import restore_statistics, statistics_bytes
from impresslearn.coefficients.readout import Projection
from impresslearn.errors import StoreError
from impresslearn.masks.bank import MaskBank, PackedMask
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics
from impresslearn.state.tasks import LearnedTask, unknown_task
from impresslearn.store.contents import Contents
from impresslearn.store.encoding import (
    decode_mask,
    decode_projection,
    decode_task,
    encode_mask,
    encode_projection,
    encode_task,
)
from impresslearn.store.rows import MaskRow, TaskRow


class StoredTasks(Mapping[str, LearnedTask]):
    """name -> task, read from the rows of a store."""

    def __init__(self, contents: Contents, backbone: Backbone) -> None:
        self.contents = contents
        self.backbone = backbone
        self._masks = 0  # that are known to be there

    def __getitem__(self, name: str) -> LearnedTask:
        row = self.contents.task(name) if isinstance(name, str) else None
        if row is None:
            raise KeyError(name)
        return self.decoded(row)

    def __iter__(self) -> Iterator[str]:
        return self.contents.task_names()

    def __len__(self) -> int:
        return self.contents.state().tasks

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.contents.has_task(name)

    @property
    def version(self) -> bytes:
        """What changes with every change of the tasks, also by other processes."""
        return self.contents.state().tasks_sum

    def values(self) -> ValuesView[LearnedTask]:
        """All tasks, read in batches."""
        return _TasksInBatches(self)

    def decoded(self, row: TaskRow) -> LearnedTask:
        """The task of a row. Raises StoreError for one that cannot be."""
        with self.contents.readable(f"task {row.name!r}"):
            if row.num_masks > self._masks:  # else a few bytes could stand for any number of them
                self._masks = self.contents.mask_count()
            return decode_task(row, self.backbone, self._masks)


class _TasksInBatches(ValuesView[LearnedTask]):
    """The values without a look-up by name for each."""

    _mapping: StoredTasks

    def __iter__(self) -> Iterator[LearnedTask]:
        return map(self._mapping.decoded, self._mapping.contents.tasks())


class StoreBackend:
    """Keeps a state's commits in a store; `impresslearn.state.backends.Backend` has the verbs."""

    def __init__(self, contents: Contents, backbone: Backbone) -> None:
        self.contents = contents
        self.backbone = backbone
        self.tasks = StoredTasks(contents, backbone)
        self.transaction = contents.database.transaction
        self.snapshot = contents.database.snapshot
        self.check_writable = contents.database.check_writable
        self.close = contents.close
        self._bank_id = ""
        self._projection: tuple[int, Projection | None] = 0, None

    def add_masks(self, masks: Sequence[PackedMask]) -> None:
        for mask in masks:
            self.contents.add_mask(encode_mask(mask, self.backbone.layers))

    def new_masks(self, known: int) -> Generator[PackedMask, None, None]:
        if self._has_more_than(known):
            with self.snapshot():
                self._has_more_than(known)  # of the same bank as in this snapshot
                yield from map(self.decoded_mask, self.contents.masks(known))

    def decoded_mask(self, row: MaskRow) -> PackedMask:
        """The mask of a row. Raises StoreError for one that cannot be."""
        with self.contents.readable(f"mask {str(row.name)[:80]!r}"):
            return decode_mask(row, self.backbone.layers)

    def add_task(self, task: LearnedTask) -> None:
        self.contents.add_task(encode_task(task, self.backbone))

    def replace_task(self, task: LearnedTask) -> None:
        self.contents.replace_task(encode_task(task, self.backbone))

    def former_versions(self, name: str) -> list[LearnedTask]:
        row = self.contents.task(name)
        if row is None:
            raise unknown_task(name, self.tasks)
        return [self.tasks.decoded(each) for each in self.contents.former_versions(row)]

    def remove_task(self, name: str) -> None:
        row = self.contents.task(name)
        if row is None:
            raise unknown_task(name, self.tasks)
        self.contents.remove_task(row)

    def remove_masks(self, positions: Collection[int], left: MaskBank) -> None:
        self.contents.remove_masks(positions)
        self._projection = 0, None  # the next one may get the number of one that goes with them
        self._bank_id = self.contents.bank()[0]

    def share(self, statistics: Statistics) -> None:
        self.contents.share(statistics_bytes(statistics))

    def shared(self) -> Statistics | None:
        kept, backbone = self.contents.shared(), self.backbone
        if kept is None and backbone.shares_statistics and self.contents.state().tasks:
            missing = "the norm statistics that all its tasks share are missing"
            raise self.contents.file.damaged(missing)
        with self.contents.readable("its shared norm statistics"):
            return None if kept is None else restore_statistics(backbone, kept, False).values

    def add_projection(self, projection: Projection) -> None:
        self._projection = 0, None
        self.contents.add_projection(encode_projection(projection))

    def projections(self) -> int:
        return self.contents.projections()

    def projection(self, number: int) -> Projection | None:
        if not number:
            return None
        if self._projection[0] != number:
            with self.contents.readable(f"its projection of features number {number}"):
                content = self.contents.projection(number)
                self._projection = number, decode_projection(content, self.backbone)
        return self._projection[1]

    def _has_more_than(self, known: int) -> bool:
        """Whether there are more masks. Raises StoreError where known ones were removed."""
        current, state = self.contents.bank()
        if known and current != self._bank_id:
            raise StoreError(
                f"masks were removed from {self.contents.file.path} since it was opened; "
                "open it again"
            )
        self._bank_id = current
        return state.masks > known
