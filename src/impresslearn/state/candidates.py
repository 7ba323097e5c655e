"""The tasks that task inference chooses among, and the memory that superposing them takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import islice

from impresslearn.coefficients.mixing import Coefficients
from impresslearn.errors import InputError
from impresslearn.inference import KnownTask, Mixture
from impresslearn.state.state import LearnerState
from impresslearn.state.tasks import ROLES, LearnedTask


class KnownTasks(Collection[KnownTask]):
    """Tasks of a state as inference takes them, read from where they are kept at each pass.

    among: "all" tasks, those of role "basis" or "learned", or names. Raises InputError for another
    word and UnknownTaskError for a name that was never learned, also while they are read.
    """

    def __init__(self, state: LearnerState, among: str | Sequence[str]) -> None:
        self._state, self._among = state, among
        # Other processes may add tasks in between: a pass ends where it would have ended at first.
        self._count = len(state.tasks) if among == "all" else sum(1 for _ in self._chosen())

    def __len__(self) -> int:
        return self._count

    def __contains__(self, item: object) -> bool:
        return any(item == each for each in self)

    def __iter__(self) -> Iterator[KnownTask]:
        state = self._state
        for task in islice(self._chosen(), self._count):
            yield KnownTask(
                task.name,
                len(task.classes),
                partial(state.view, task, evict_others=False),
                task.profile,
                partial(_mixture, state, task),
                task.coefficients is not None and bool(task.coefficients.alpha),
            )

    def _chosen(self) -> Iterator[LearnedTask]:
        return _chosen(self._state, self._among)


def superposition_bytes(state: LearnerState, among: str | Sequence[str]) -> int:
    """Bytes that `Superposition` needs for these tasks, known before any is unpacked.

    Arguments and errors as `KnownTasks`.
    """
    layers, weights = state.backbone.layers, state.backbone.weights
    count = depth = dense = 0
    by_unit = False
    for task in _chosen(state, among):
        stored = task.coefficients
        count, depth = count + 1, max(depth, task.num_masks)
        if stored is not None:
            dense += stored.input_scale is not None or stored.weights is not None
            by_unit |= stored.output_scale is not None
            by_unit |= any(len(alpha.shape) == 2 for alpha in stored.alpha)
    one_dense = sum(weights[layer.name].nbytes for layer in layers)
    if state.backbone.own_head is not None:
        return one_dense  # such tasks are run one after the other
    numbers = sum(layer.units if by_unit else 1 for layer in layers)
    # Each is there about three times: coefficients as they are kept, unpacked and stacked, weights
    # themselves, times a share, and in the sum's gradient.
    return 3 * (4 * count * depth * numbers + dense * one_dense)


def _mixture(state: LearnerState, task: LearnedTask) -> Mixture | None:
    """The task as a mixture of masks, or None for one with scaled inputs or other numbers."""
    numbers: Coefficients = state.coefficients(task)
    others = (numbers.input_scale, numbers.small, numbers.weights)
    if not numbers.alpha or any(other is not None for other in others):
        return None
    return Mixture(numbers.alpha, numbers.output_scale, numbers.residual)


def _chosen(state: LearnerState, among: str | Sequence[str]) -> Iterator[LearnedTask]:
    if among == "all":
        return state.tasks.all()
    if among in ROLES:
        return (task for task in state.tasks.all() if task.role == among)
    if isinstance(among, str):
        raise InputError(f"among must be all, {', '.join(ROLES)} or task names, got {among!r}")
    return map(state.tasks.learned, dict.fromkeys(among))
