"""Backends, which keep a learner's commits: in memory only, or in a file as well.

A `LearnerState` decides what is committed; its backend keeps it. The store's backend writes each
commit to a file in one transaction, and tells the state what other processes have committed since.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

from impresslearn.coefficients.readout import Projection
from impresslearn.masks.bank import MaskBank, PackedMask
from impresslearn.networks.prediction import Statistics
from impresslearn.state.tasks import LearnedTask


class Backend(Protocol):
    """The protocol of what keeps a state's commits."""

    @property
    def tasks(self) -> Mapping[str, LearnedTask]:
        """All tasks by name."""

    def transaction(self) -> AbstractContextManager[None]:
        """One commit: everything that is added inside is kept, or on an error none of it."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Everything read inside is of one moment, whatever other processes commit."""

    def check_writable(self) -> None:
        """Raises InputError where commits are refused."""

    def add_masks(self, masks: Sequence[PackedMask]) -> None:
        """Keeps masks behind those that are there."""

    def new_masks(self, known: int) -> Generator[PackedMask, None, None]:
        """The masks that others have added to the first `known`, as they are at one moment.

        Raises StoreError where masks were removed, so that the known ones are not the first.
        """

    def add_task(self, task: LearnedTask) -> None:
        """Keeps a task under its name, which is new."""

    def replace_task(self, task: LearnedTask) -> None:
        """Keeps a task in the place of that of its name, which becomes a former version."""

    def former_versions(self, name: str) -> list[LearnedTask]:
        """The versions of a task before the present one, the first one first."""

    def remove_task(self, name: str) -> None:
        """Takes a task out, with its former versions."""

    def remove_masks(self, positions: Collection[int], left: MaskBank) -> None:
        """Takes out masks that no task needs, and projections of features under them.

        Those behind them move up, with the basis tasks whose own they are. left: the other masks.
        """

    def share(self, statistics: Statistics) -> None:
        """Keeps the norm statistics that all tasks share."""

    def shared(self) -> Statistics | None:
        """The norm statistics that all tasks share."""

    def add_projection(self, projection: Projection) -> None:
        """Keeps a projection of features under the next number."""

    def projections(self) -> int:
        """The number of the projection kept last, 0 without any."""

    def projection(self, number: int) -> Projection | None:
        """The projection of a number; None for 0."""

    def close(self) -> None:
        """Lets go of files."""


class MemoryBackend:
    """Keeps commits for as long as the process lives, masks in the bank.

    There is no transaction: other threads see at once what is added. Whoever adds a task last, and
    nothing that will be refused, shows them no task without its masks and statistics.
    """

    def __init__(
        self,
        bank: MaskBank,
        tasks: Mapping[str, LearnedTask] | None = None,
        shared: Statistics | None = None,
        projections: Iterable[Projection] = (),
        former: Mapping[str, Sequence[LearnedTask]] | None = None,
    ) -> None:
        self.tasks = _Growing(tasks or {})
        self._former = {name: list(versions) for name, versions in (former or {}).items()}
        self._number = max((task.number for task in self.tasks.values()), default=0)
        self._bank = bank
        self._shared = shared
        self._projections = list(projections)

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    snapshot = transaction

    def check_writable(self) -> None:
        """Nothing to do: memory takes every commit."""

    def add_masks(self, masks: Sequence[PackedMask]) -> None:
        for info, packed in masks:
            if info.name not in self._bank:
                self._bank.adopt(info, [bits.to(self._bank.device) for bits in packed])

    def new_masks(self, known: int) -> Generator[PackedMask, None, None]:
        yield from ()

    def add_task(self, task: LearnedTask) -> None:
        self._number += 1
        self.tasks[task.name] = replace(task, number=self._number)

    def replace_task(self, task: LearnedTask) -> None:
        old = self.tasks[task.name]
        self._former[task.name] = [*self.former_versions(task.name), old]
        self.tasks[task.name] = replace(task, number=old.number)

    def former_versions(self, name: str) -> list[LearnedTask]:
        return self._former.get(name, [])

    def remove_task(self, name: str) -> None:
        del self.tasks[name]
        self._former.pop(name, None)

    def remove_masks(self, positions: Collection[int], left: MaskBank) -> None:
        while self._projections and self._projections[-1].num_masks > min(positions):
            self._projections.pop()  # the last ones only: tasks know the others by their numbers
        for name, task in self.tasks.copy().items():
            if task.mask is not None:
                moved = self._bank.index(task.mask) - left.index(task.mask)
                self.tasks[name] = replace(task, num_masks=task.num_masks - moved)
        self._bank = left

    def share(self, statistics: Statistics) -> None:
        self._shared = statistics

    def shared(self) -> Statistics | None:
        return self._shared

    def add_projection(self, projection: Projection) -> None:
        self._projections.append(projection)

    def projections(self) -> int:
        return len(self._projections)

    def projection(self, number: int) -> Projection | None:
        return self._projections[number - 1] if number else None

    def close(self) -> None:
        """Nothing to do: there is no file."""


class _Growing(dict[str, LearnedTask]):
    """A dictionary that one thread may change while another goes through what it held before."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy().keys())

    def values(self):  # type: ignore[no-untyped-def]  # dict's own type has no name
        return self.copy().values()
