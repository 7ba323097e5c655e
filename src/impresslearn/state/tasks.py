"""What a learner keeps of a task, and what it costs in bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from torch import Tensor

from impresslearn.checks import check_name, nearest
from impresslearn.coefficients.norm_statistics import StoredStatistics
from impresslearn.coefficients.quantisation import StoredCoefficients
from impresslearn.data import Label
from impresslearn.errors import InputError, StoreError, UnknownTaskError
from impresslearn.inference.unknown import TaskProfile
from impresslearn.masks.bank import MaskBank
from impresslearn.tables import Table, table_of

ROLES = ("basis", "learned")
COMPARED_NAMES = 2000
"""Names that an unknown one is compared with at most; each comparison takes some 20 µs."""
SHOWN = 50
"""Tasks in the table of a notebook."""


@dataclass(frozen=True)
class TaskInfo:
    """The public summary of a task, as `tasks_` gives it.

    role: "basis" (has a mask of its own in the bank) or "learned" (has coefficients only); bytes:
    what a store keeps of all that this task alone needs; breakdown: of it the mask (coded), the
    coefficients, norm statistics, labels (their map), and the profile that the task is recognised
    by; history: how it was learned ("recipe", "metrics", "created_at"), not needed to compute it;
    version: 1, and one more with every update.
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
    """A task as it is kept: all that is needed to compute it again.

    For a basis task `coefficients` is None and `mask` names its mask. profile: the entropies that
    task inference is judged by; history: plain values about how it was learned; number: tells
    apart what bears the same name one after another.
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
    number: int = field(default=0, compare=False)

    @property
    def version(self) -> int:
        """1 for a task as it was first learned, and one more with every update."""
        return self.history.get("metrics", {}).get("version", 1)

    @property
    def key(self) -> str:
        """What no other task has, nor another version."""
        return f"{self.name}/{self.number}/{self.version}"

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
        """The same as another version, with further metrics in its history."""
        before = self.history.get("metrics", {})
        metrics = {**before, **metrics, "version": version}
        return replace(self, history={**self.history, "metrics": metrics})


class TaskTable(Mapping[str, TaskInfo]):
    """The tasks of a learner: name -> `TaskInfo`, in the order they were learned. Read-only.

    tasks: where they are kept, a dictionary or a table of a file.
    """

    def __init__(self, tasks: Mapping[str, LearnedTask]) -> None:
        self._tasks = tasks
        self._first: LearnedTask | None = None
        self._first_version: bytes | None = None

    def __getitem__(self, name: str) -> TaskInfo:
        return self.learned(name).info()

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __repr__(self) -> str:
        return f"TaskTable({len(self)} tasks)"

    def _repr_html_(self) -> str:
        cells = self.table()
        return cells.html() + (f"<p>{cells.note}</p>" if cells.note else "")

    def table(self, most: int = SHOWN) -> Table:
        """The first tasks, one a row, and a note on how many there are besides."""
        shown = [
            {"task": each.name, "role": each.role, "classes": len(each.classes)}
            | {"version": each.version, "bytes": each.info().bytes}
            for each in islice(self.all(), most)
        ]
        more = len(self) - len(shown)
        cells = table_of(shown) if shown else Table((), (), (), note="no task as yet")
        return replace(cells, note=f"and {more:,} more") if more else cells

    def learned(self, name: str) -> LearnedTask:
        """The task as it is kept. Raises UnknownTaskError, naming the closest known tasks."""
        try:
            return self._tasks[name]
        except (KeyError, TypeError):
            raise unknown_task(name, self._tasks) from None

    def first(self) -> LearnedTask | None:
        """The first task; None while there is none. It is read again where a file has changed."""
        version = getattr(self._tasks, "version", None)
        if self._first is None or version != self._first_version:
            self._first, self._first_version = next(self.all(), None), version
        return self._first

    def forget_first(self) -> None:
        """Makes `first` look again, after a removal."""
        self._first = None

    def all(self) -> Iterator[LearnedTask]:
        """Every task as it is kept; faster than by name where a file holds them."""
        return iter(self._tasks.values())


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


def check_parts(task: LearnedTask, bank: MaskBank, projections: Callable[[], int]) -> None:
    """Raises StoreError for a kept task that combines masks which are not there."""
    form = task.coefficients
    alone = form is not None and not form.alpha
    least = 0 if alone and task.mask is None else 1
    fits = least <= task.num_masks <= len(bank)
    if fits and task.mask is not None:
        fits = task.mask in bank and bank.index(task.mask) < task.num_masks
    if not fits:
        raise StoreError(
            f"task {task.name!r} combines masks that its bank of {len(bank)} does not have; "
            "restore the store from a copy"
        )
    if form and form.readout and form.readout.projection > projections():
        raise StoreError(
            f"task {task.name!r} reads a projection of features that is missing; restore the "
            "store from a copy"
        )


def free_masks(
    bank: MaskBank,
    tasks: Iterable[LearnedTask],
    former_versions: Callable[[LearnedTask], Iterable[LearnedTask]],
) -> set[int]:
    """The positions of masks that no task needs: none's own, and behind all that are combined."""
    needed, own, names = 0, set(), bank.names
    for task in tasks:
        if task.mask is not None:
            own.add(task.mask)
            continue
        needed = max([needed, *(each.num_masks for each in (*former_versions(task), task))])
    return {place for place in range(needed, len(bank)) if names[place] not in own}


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
