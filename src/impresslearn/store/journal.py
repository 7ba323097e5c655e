"""A learner's commits in a file: the journal of a bound learner, and its tasks as a mapping.

Tasks are read from the file when they are asked for, so that opening a store of a hundred thousand
tasks reads none of them, and tasks that another process adds are there at once.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence, ValuesView
from contextlib import AbstractContextManager

from impresslearn.backbones import Backbone
from impresslearn.bank import PackedMask
from impresslearn.prediction import Statistics
from impresslearn.store.contents import Contents
from impresslearn.store.records import (
    TaskRow,
    decode_packed,
    decode_statistics,
    decode_task,
    encode_packed,
    encode_statistics,
    encode_task,
)
from impresslearn.tasks import LearnedTask

_UNREADABLE = (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError)


class StoredTasks(MutableMapping[str, LearnedTask]):
    """name -> task, read from and written to the rows of a store."""

    def __init__(self, contents: Contents, backbone: Backbone) -> None:
        self.contents = contents
        self.backbone = backbone

    def __getitem__(self, name: str) -> LearnedTask:
        found = self.contents.task(name) if isinstance(name, str) else None
        if found is None:
            raise KeyError(name)
        return self.decoded(*found)

    def __setitem__(self, name: str, task: LearnedTask) -> None:
        row = encode_task(task)
        with self.contents.database.transaction():
            self.contents.add_task(row)

    def __delitem__(self, name: str) -> None:
        with self.contents.database.transaction():
            self.contents.remove_task(name)

    def __iter__(self) -> Iterator[str]:
        return self.contents.task_names()

    def __len__(self) -> int:
        return self.contents.state().tasks

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.contents.has_task(name)

    def values(self) -> ValuesView[LearnedTask]:
        """All tasks, read in batches."""
        return _Streamed(self)

    def decoded(self, number: int, row: TaskRow) -> LearnedTask:
        """The task of a row."""
        try:
            return decode_task(row, self.backbone, number)
        except _UNREADABLE as error:
            raise self.contents.database.damaged(f"task {row.name!r}: {error}") from None


class _Streamed(ValuesView[LearnedTask]):
    """The values of `StoredTasks` without a look-up by name for each."""

    def __init__(self, tasks: StoredTasks) -> None:
        super().__init__(tasks)
        self._tasks = tasks

    def __iter__(self) -> Iterator[LearnedTask]:
        for number, row in self._tasks.contents.tasks():
            yield self._tasks.decoded(number, row)


class StoreJournal:
    """Keeps a ledger's commits in a store. See `impresslearn.journal.Journal` for the verbs."""

    def __init__(self, contents: Contents, backbone: Backbone) -> None:
        self.contents = contents
        self.backbone = backbone
        self.tasks: MutableMapping[str, LearnedTask] = StoredTasks(contents, backbone)

    def transaction(self) -> AbstractContextManager[None]:
        return self.contents.database.transaction()

    def snapshot(self) -> AbstractContextManager[None]:
        return self.contents.database.snapshot()

    def check_writable(self) -> None:
        self.contents.database.check_writable()

    def add_masks(self, first: int, masks: Sequence[PackedMask]) -> None:
        for position, mask in enumerate(masks, first):
            self.contents.add_mask(position, encode_packed(mask, self.backbone.layers))

    def share(self, statistics: Statistics) -> None:
        self.contents.share(encode_statistics(statistics))

    def masks_after(self, known: int) -> Iterator[PackedMask]:
        for row in self.contents.masks(known):
            try:
                yield decode_packed(row, self.backbone.layers)
            except _UNREADABLE as error:
                raise self.contents.database.damaged(f"mask {row.name!r}: {error}") from None

    def shared(self) -> Statistics | None:
        kept = self.contents.shared()
        try:
            return None if kept is None else decode_statistics(kept, self.backbone)
        except _UNREADABLE as error:
            raise self.contents.database.damaged(str(error)) from None

    def close(self) -> None:
        self.contents.database.close()
