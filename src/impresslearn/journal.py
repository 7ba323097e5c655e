"""Where a learner's commits are kept: in memory only, or in a file as well.

A `Ledger` decides what is committed; its journal keeps it. `MemoryJournal` is a dictionary. The
store's journal writes each commit to a file in one transaction, and tells the ledger what other
processes have committed to the same file since.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from impresslearn.bank import PackedMask
from impresslearn.prediction import Statistics
from impresslearn.tasks import LearnedTask


class Journal(Protocol):
    """What a ledger asks of the place where its commits are kept.

    tasks: name -> task; inside `transaction`, adding one commits it with everything else.
    """

    tasks: MutableMapping[str, LearnedTask]

    def transaction(self) -> AbstractContextManager[None]:
        """One commit: everything that is added inside is kept, or on an error none of it."""
        ...

    def kept_masks(self, names: Sequence[str]) -> int:
        """How many masks of a bank, given their names in order, are kept already."""
        ...

    def add_masks(self, first: int, masks: Sequence[PackedMask]) -> None:
        """Keeps masks at the positions first, first + 1, …, which are free."""
        ...

    def share(self, statistics: Statistics) -> None:
        """Keeps the norm statistics that all tasks share."""
        ...

    def masks_after(self, known: int) -> Iterator[PackedMask]:
        """The masks at positions known, known + 1, … that others have added."""
        ...

    def shared(self) -> Statistics | None:
        """The shared norm statistics that others have kept."""
        ...

    def close(self) -> None:
        """Lets go of files."""
        ...


class MemoryJournal:
    """Keeps commits for as long as the process lives."""

    def __init__(self) -> None:
        self.tasks: MutableMapping[str, LearnedTask] = {}

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def kept_masks(self, names: Sequence[str]) -> int:
        return len(names)

    def add_masks(self, first: int, masks: Sequence[PackedMask]) -> None:
        """Nothing to do: the ledger's bank holds them."""

    def share(self, statistics: Statistics) -> None:
        """Nothing to do: the ledger holds them."""

    def masks_after(self, known: int) -> Iterator[PackedMask]:
        return iter(())

    def shared(self) -> Statistics | None:
        return None

    def close(self) -> None:
        """Nothing to do: there is no file."""
