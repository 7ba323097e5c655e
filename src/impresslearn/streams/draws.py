"""Draws everything random about a stream from an explicit seed."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from impresslearn.checks import check_integer
from impresslearn.errors import InputError

T = TypeVar("T")
# Each purpose has its own generator, so that asking for fewer training images does not change the
# angles. A generator depends on the place of its purpose here: append, never reorder.
PURPOSES = ("angles", "permutation", "classes", "test", "validation", "train_size", "customer")


def seeded(seed: int, purpose: str, *keys: int) -> np.random.RandomState:
    """The generator for one purpose (of `PURPOSES`); seed: 0 to 2**32 - 1."""
    check_integer("seed", seed, 0, 2**32)
    # The draws of RandomState, unlike default_rng, never change between versions (NEP 19).
    return np.random.RandomState([int(seed), PURPOSES.index(purpose), *keys])


def draw_angles(tasks: int, seed: int, angles: Sequence[int] | None = None) -> tuple[int, ...]:
    """Distinct integer angles from 0 to 359 degrees: `angles`, or the first `tasks` drawn.

    Raises InputError for no angle or more than 360, an angle outside the range, or a repeat.
    """
    if angles is None:
        check_integer("tasks", tasks, 1, 361)
        return tuple(seeded(seed, "angles").permutation(360)[:tasks].tolist())
    chosen = tuple(check_integer("an angle (degrees)", angle, 0, 360) for angle in angles)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"angles must be at least one, and distinct, got {list(chosen)}")
    return chosen


def spread_angles(tasks: int, seed: int) -> tuple[int, ...]:
    """Distinct integer angles, each as far as possible from all before it; ties at random.

    2^k angles are at least 360 // 2^k degrees apart: 45 for up to 8 tasks, 22 for up to 16, 11 for
    up to 32. Raises InputError for fewer than 1 or more than 360.
    """
    check_integer("tasks", tasks, 1, 361)
    order = seeded(seed, "angles").permutation(360)
    distance = np.full(360, 360)
    chosen: list[int] = []
    for _ in range(tasks):
        chosen.append(int(order[distance[order].argmax()]))
        away = np.abs(np.arange(360) - chosen[-1])
        distance = np.minimum(distance, np.minimum(away, 360 - away))
    return tuple(chosen)


def draw_class_groups(
    classes: Sequence[T],
    tasks: int | None,
    per_task: int,
    seed: int,
    order: Sequence[int] | None = None,
) -> list[tuple[T, ...]]:
    """Disjoint groups of `per_task` classes in a seeded order.

    - tasks: number of groups; None uses all classes
    - order: positions of classes to take in place of a seeded order

    Raises InputError for too few classes, and for positions that repeat or do not exist.
    """
    check_integer("classes_per_task", per_task, 1)
    if order is not None:
        chosen = [check_integer("a class", place, 0, len(classes)) for place in order]
        if len(set(chosen)) < len(chosen):
            raise InputError(f"classes must be distinct positions, got {chosen}")
        classes = [classes[place] for place in chosen]
    fitting = len(classes) // per_task
    if fitting == 0:
        raise InputError(f"classes_per_task={per_task} but there are only {len(classes)} classes")
    count = fitting if tasks is None else check_integer("tasks", tasks, 1)
    if count > fitting:
        raise InputError(
            f"{count} tasks of {per_task} classes need {count * per_task} classes, "
            f"there are {len(classes)}"
        )
    if order is None:
        permutation = seeded(seed, "classes").permutation(len(classes)).tolist()
        classes = [classes[place] for place in permutation]
    return [tuple(classes[i * per_task : (i + 1) * per_task]) for i in range(count)]


def stratified_sample(
    labels: np.ndarray, count: int, generator: np.random.RandomState
) -> np.ndarray:
    """Sorted positions (count,) int64 of examples, each class in proportion.

    - labels: (n,)
    - count: classes are rounded by largest remainders, so that exactly `count` are drawn
    """
    values, sizes = np.unique(labels, return_counts=True)
    quotas = sizes * (count / max(len(labels), 1))
    taken = np.floor(quotas).astype(np.int64)
    largest = np.argsort(taken - quotas, kind="stable")
    taken[largest[: count - int(taken.sum())]] += 1
    chosen = []
    for value, number in zip(values, taken, strict=True):
        chosen.append(generator.permutation(np.flatnonzero(labels == value))[:number])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def hold_out(
    labels: np.ndarray, fraction: float, seed: int, purpose: str
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted positions (left, held out), stratified by class.

    - labels: (n,)
    - fraction: of the examples to hold out, rounded to whole examples overall

    Raises InputError if one of the two would be empty.
    """
    count = round(fraction * len(labels))
    if not 0 < count < len(labels):
        raise InputError(
            f"{purpose}={fraction} of {len(labels)} examples is {count}: leave both parts some"
        )
    held = stratified_sample(labels, count, seeded(seed, purpose))
    return np.setdiff1d(np.arange(len(labels)), held), held
