"""Draws everything that is random in a stream, from an explicit seed."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from impresslearn.checks import check_integer
from impresslearn.errors import InputError

T = TypeVar("T")
# Each purpose has its own generator, so that, for example, a smaller training set does not change
# the angles. A generator depends on the position of its purpose here: append, never reorder.
PURPOSES = ("angles", "permutation", "classes", "test", "validation", "train_size", "customer")


def seeded(seed: int, purpose: str, *keys: int) -> np.random.RandomState:
    """The generator for a purpose in `PURPOSES`. seed: from 0 to 2**32 - 1."""
    check_integer("seed", seed, 0, 2**32)
    # RandomState's draws never change between versions; default_rng's may (NEP 19).
    return np.random.RandomState([int(seed), PURPOSES.index(purpose), *keys])


def draw_angles(
    tasks: int, seed: int, angles: Sequence[int] | None = None, spread: bool = False
) -> tuple[int, ...]:
    """Distinct integer angles from 0 to 359 degrees: `angles` if given, else `tasks` drawn ones.

    - spread: whether each angle is drawn as far as possible from all earlier angles. Then 2^k
      angles are at least 360 // 2^k degrees apart: 45 for 8 tasks, 22 for 16, 11 for 32
    """
    if angles is not None:
        given = tuple(check_integer("an angle (degrees)", angle, 0, 360) for angle in angles)
        if not given or len(set(given)) < len(given):
            raise InputError(f"angles must be at least one, and distinct, got {list(given)}")
        return given
    order = seeded(seed, "angles").permutation(360)
    distance = np.full(360, 360)
    drawn: list[int] = []
    for place in range(check_integer("tasks", tasks, 1, 361)):
        drawn.append(int(order[distance[order].argmax() if spread else place]))
        away = np.abs(np.arange(360) - drawn[-1])
        distance = np.minimum(distance, np.minimum(away, 360 - away))
    return tuple(drawn)


def draw_class_groups(
    classes: Sequence[T],
    tasks: int | None,
    per_task: int,
    seed: int,
    order: Sequence[int] | None = None,
) -> list[tuple[T, ...]]:
    """Disjoint groups of `per_task` classes in a seeded order.

    - tasks: the number of groups; None to use all classes
    - order: the positions of the classes to use, in place of a seeded order
    """
    check_integer("classes_per_task", per_task, 1)
    if order is None:
        order = seeded(seed, "classes").permutation(len(classes)).tolist()
    places = [check_integer("a class", place, 0, len(classes)) for place in order]
    if len(set(places)) < len(places):
        raise InputError(f"classes must be distinct positions, got {places}")
    fitting = len(places) // per_task
    count = max(1, fitting) if tasks is None else check_integer("tasks", tasks, 1)
    if count > fitting:
        needed = f"{count} tasks of {per_task} classes need {count * per_task} classes"
        raise InputError(f"{needed}, there are {len(places)}")
    chosen = [classes[place] for place in places]
    return [tuple(chosen[i * per_task : (i + 1) * per_task]) for i in range(count)]


def stratified_sample(
    labels: np.ndarray, count: int, generator: np.random.RandomState
) -> np.ndarray:
    """Sorted positions (count,), with classes in proportion, rounded by largest remainders."""
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
    """Sorted positions (left, held out); a fraction is held out, stratified by class."""
    count = round(fraction * len(labels))
    if not 0 < count < len(labels):
        line = f"{purpose}={fraction} of {len(labels)} examples is {count}"
        raise InputError(f"{line}: leave both parts some")
    held = stratified_sample(labels, count, seeded(seed, purpose))
    return np.setdiff1d(np.arange(len(labels)), held), held
