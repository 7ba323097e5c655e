"""The tasks that task inference chooses among, and the memory that superposing them takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from impresslearn.errors import InputError
from impresslearn.inference import KnownTask
from impresslearn.state.state import LearnerState
from impresslearn.state.tasks import ROLES, LearnedTask


def known_tasks(state: LearnerState, among: str | Sequence[str]) -> list[KnownTask]:
    """ "all" tasks, those of role "basis" or "learned", or the named ones.

    Raises InputError for another word and UnknownTaskError for a name that was never learned.
    """
    return [
        KnownTask(
            task.name,
            len(task.classes),
            state.coefficients(task),
            partial(state.view, task),
            task.profile,
        )
        for task in _chosen(state, among)
    ]


def superposition_bytes(state: LearnerState, among: str | Sequence[str]) -> int:
    """Bytes that `Superposition` needs for these tasks, known before any is unpacked.

    Arguments and errors as `known_tasks`.
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


def _chosen(state: LearnerState, among: str | Sequence[str]) -> Iterator[LearnedTask]:
    if among == "all":
        return state.tasks.all()
    if among in ROLES:
        return (task for task in state.tasks.all() if task.role == among)
    if isinstance(among, str):
        raise InputError(f"among must be all, {', '.join(ROLES)} or task names, got {among!r}")
    return map(state.tasks.learned, among)
