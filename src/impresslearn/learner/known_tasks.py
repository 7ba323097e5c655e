"""The tasks that task inference chooses among, read from the store at each pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import islice

from impresslearn.errors import InputError
from impresslearn.inference import KnownTask, Mixture
from impresslearn.store import LearnedTask, Store
from impresslearn.store.tasks import ROLES


class KnownTasks(Collection[KnownTask]):
    """Tasks of a store as inference takes them.

    - among: "all" tasks, those of role "basis" or "learned", or names.

    Raises InputError for another word and UnknownTaskError for an unknown name, also while they are
    read.
    """

    def __init__(self, store: Store, among: str | Sequence[str]) -> None:
        self._store, self._among = store, among
        # Other processes may add tasks in between: each pass ends where the first one did.
        self._count = len(store.tasks) if among == "all" else sum(1 for _ in self._chosen())

    def __len__(self) -> int:
        return self._count

    def __contains__(self, item: object) -> bool:
        return any(item == task for task in self)

    def __iter__(self) -> Iterator[KnownTask]:
        store = self._store
        for task in islice(self._chosen(), self._count):
            parts = () if task.coefficients is None else task.coefficients.parts
            yield KnownTask(
                task.name,
                len(task.classes),
                partial(store.view, task, evict_others=False),
                task.profile,
                partial(_mixture, store, task),
                any(part.kind == "masks" for part in parts),
            )

    def _chosen(self) -> Iterator[LearnedTask]:
        tasks, among = self._store.tasks, self._among
        if among == "all":
            return tasks.all()
        if isinstance(among, str) and among not in ROLES:
            raise InputError(f"among must be all, {', '.join(ROLES)} or task names, got {among!r}")
        if isinstance(among, str):
            return (task for task in tasks.all() if task.role == among)
        return (tasks.learned(name) for name in dict.fromkeys(among))


def _mixture(store: Store, task: LearnedTask) -> Mixture | None:
    """The task as a mixture of masks; None for one with other numbers."""
    numbers = store.coefficients(task)
    if not numbers.alpha or numbers.of("deltas"):
        return None
    return Mixture(numbers.alpha, numbers.output_scale, numbers.residual)
