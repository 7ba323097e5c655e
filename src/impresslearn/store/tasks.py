"""What is kept of a task, what it costs in bytes, and the table of all tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from torch import Tensor

from impresslearn.checks import check_name, nearest
from impresslearn.coefficients.norm_statistics import StoredStatistics
from impresslearn.coefficients.parametrisation import StoredCoefficients
from impresslearn.data import Label
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.unknown import TaskProfile
from impresslearn.tables import Table, table_of

ROLES = ("basis", "learned")
COMPARED_NAMES = 2000
"""An unknown name is compared with this many names at most, as each comparison takes 20 µs."""
SHOWN = 50
"""Tasks in the table of a notebook."""


@dataclass(frozen=True)
class TaskInfo:
    """The public summary of a task, as `tasks_` gives it.

    - role: "basis" (has a mask of its own in the bank) or "learned" (has coefficients only).
    - classes: its labels, in the order of its outputs.
    - num_masks: the number of masks, from the start of the bank, that it needs.
    - bytes: what a store keeps of everything that this task alone needs.
    - breakdown: the bytes of the mask (coded), coefficients, norm statistics, labels, and the
      profile that task inference recognises the task by.
    - history: how it was learned ("recipe", "metrics", "created_at"); not needed to predict.
    - version: 1, and one more with every update.
    """

    name: str
    role: str
    classes: tuple[Label, ...]
    num_masks: int
    bytes: int
    breakdown: Mapping[str, int] = field(default_factory=dict)
    history: Mapping[str, Any] = field(default_factory=dict, compare=False)
    version: int = 1


@dataclass(frozen=True)
class LearnedTask:
    """A task as it is kept: everything that is needed to predict with it.

    - coefficients: None for a basis task without a head of its own.
    - mask: the name of a basis task's own mask, and mask_bytes its coded size.
    - statistics: norm statistics of its own, if the norm policy has them.
    - profile: what task inference knows of its inputs.
    - history: plain values about how it was learned.
    - number: tells it from every other task and version of the same store.
    """

    name: str
    classes: tuple[Label, ...]
    num_masks: int
    coefficients: StoredCoefficients | None = None
    mask: str | None = None
    mask_bytes: int = 0
    statistics: StoredStatistics | None = None
    profile: TaskProfile | None = None
    history: Mapping[str, Any] = field(default_factory=dict, compare=False)
    version: int = 1
    number: int = field(default=0, compare=False)

    @property
    def role(self) -> str:
        """ "basis" or "learned"."""
        return "learned" if self.mask is None else "basis"

    def info(self) -> TaskInfo:
        """The public summary, with every byte counted."""
        breakdown = {
            "mask": self.mask_bytes,
            "coefficients": self.coefficients.nbytes if self.coefficients else 0,
            "statistics": self.statistics.nbytes if self.statistics else 0,
            "labels": label_map_bytes(self.classes),
            "profile": self.profile.nbytes if self.profile else 0,
        }
        about = (self.name, self.role, self.classes, self.num_masks, sum(breakdown.values()))
        return TaskInfo(*about, breakdown, self.history, self.version)

    def as_version(self, version: int, **metrics: Any) -> LearnedTask:
        """The same task as another version, with further metrics in its history."""
        before = self.history.get("metrics", {})
        history = {**self.history, "metrics": {**before, **metrics}}
        return replace(self, version=version, history=history)


class Tasks(Protocol):
    """Where tasks are kept: the rows of a store."""

    def task(self, name: str) -> LearnedTask | None:
        """The present version of a task, or None."""

    def first(self) -> LearnedTask | None:
        """The task that was learned first, or None."""

    def tasks(self) -> Iterator[LearnedTask]:
        """All tasks in the order they were learned."""

    def names(self) -> Iterator[str]:
        """Their names, in the same order."""

    def count(self) -> int:
        """Their number."""


class TaskTable(Mapping[str, TaskInfo]):
    """The tasks of a learner: name -> `TaskInfo`, in the order they were learned. Read-only."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def __getitem__(self, name: str) -> TaskInfo:
        return self.learned(name).info()

    def __iter__(self) -> Iterator[str]:
        return self._tasks.names()

    def __len__(self) -> int:
        return self._tasks.count()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._tasks.task(name) is not None

    def __repr__(self) -> str:
        return f"TaskTable({len(self)} tasks)"

    def _repr_html_(self) -> str:
        cells = self.table()
        return cells.html() + (f"<p>{cells.note}</p>" if cells.note else "")

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
        task = self._tasks.task(name) if isinstance(name, str) else None
        if task is None:
            raise unknown_task(name, self)
        return task

    def first(self) -> LearnedTask | None:
        """The task learned first; None while there is none."""
        return self._tasks.first()

    def all(self) -> Iterator[LearnedTask]:
        """Every task as it is kept; faster than one by one."""
        return self._tasks.tasks()


def check_new_name(name: str, known: Collection[str]) -> None:
    """Raises InputError unless `name` can be a task's and is none of the known ones."""
    if check_name(name) in known:
        raise InputError(
            f"task {name!r} was learned already; choose another name, or update or remove it"
        )


def find_task(name: str, known: Mapping[str, TaskInfo]) -> TaskInfo:
    """The task of that name. Raises UnknownTaskError, naming the closest known tasks."""
    if name not in known:
        raise unknown_task(name, known)
    return known[name]


def unknown_task(name: object, known: Collection[str]) -> UnknownTaskError:
    """The error for a name that is not among the known tasks, naming the closest of them."""
    if not known:
        return UnknownTaskError(f"no task named {name!r}: nothing was learned yet")
    compared = list(islice(known, COMPARED_NAMES))
    close = nearest(name, compared)
    names = ", ".join(map(repr, close or compared[:3]))
    return UnknownTaskError(
        f"no task named {name!r} among {len(known)}{'; close: ' if close else ', such as '}{names}"
    )


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors that are kept as they are."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def label_map_bytes(classes: tuple[Label, ...]) -> int:
    """Bytes of a label map: 2 for the number of classes, and the labels unless they are 0..K-1.

    A store writes it as text, but once for all tasks that have the same.
    """
    if classes == tuple(range(len(classes))):
        return 2
    if all(isinstance(label, int) for label in classes):
        low, high = int(min(classes)), int(max(classes))
        bits = max(high.bit_length(), (~low).bit_length()) + 1 if low < 0 else high.bit_length()
        return 2 + len(classes) * next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
    return 2 + sum(1 + len(str(label).encode()) for label in classes)
