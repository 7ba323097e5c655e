import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.errors import InputError
from impresslearn.streams.draws import (
    draw_angles,
    draw_class_groups,
    draw_permutation,
    hold_out,
    seeded,
    spread_angles,
    stratified_sample,
)


def test_angles_are_distinct_and_a_prefix_of_the_longer_draw() -> None:
    every = draw_angles(360, seed=3)
    assert sorted(every) == list(range(360))
    assert draw_angles(20, seed=3) == every[:20]
    assert draw_angles(20, seed=4) != every[:20]


def test_angles_are_those_of_every_other_machine() -> None:
    # numpy.random.RandomState([0, 0]).permutation(360)[:4]; its draws are frozen by NEP 19.
    assert draw_angles(4, seed=0) == (204, 6, 35, 319)


@pytest.mark.parametrize("seed", range(5))
def test_spread_angles_keep_their_distance_whatever_their_number(seed: int) -> None:
    every = spread_angles(360, seed)
    assert sorted(every) == list(range(360))
    for tasks in (2, 3, 8, 15, 16, 17, 100, 256):
        chosen = spread_angles(tasks, seed)
        assert chosen == every[:tasks]
        gaps = np.diff(sorted([*chosen, min(chosen) + 360]))
        assert gaps.min() >= 360 // 2 ** (tasks - 1).bit_length()


def test_spread_angles_are_those_of_every_other_machine() -> None:
    assert spread_angles(8, seed=0) == (204, 24, 114, 294, 249, 339, 159, 69)
    assert spread_angles(8, seed=1) != spread_angles(8, seed=0)


def test_given_angles_keep_their_order() -> None:
    assert draw_angles(20, 0, [90, 0, 359]) == (90, 0, 359)
    assert draw_angles(20, 0, np.array([7, 5])) == (7, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tasks", "angles", "message"),
    [
        (0, None, "tasks must be an integer from 1 to 360, got 0"),
        (361, None, "from 1 to 360, got 361"),
        (2.5, None, "got 2.5"),
        (True, None, "got True"),
        (5, [400], "an angle .* from 0 to 359, got 400"),
        (5, [-1], "got -1"),
        (5, [10.5], "got 10.5"),
        (5, [10, 20, 10], "distinct, got 10 more than once"),
        (5, [], "at least one angle"),
        (5, 90, "must be a sequence of whole degrees, got 90"),
    ],
)
def test_unusable_angles_are_refused(tasks: object, angles: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw_angles(tasks, 0, angles)  # type: ignore[arg-type]
    if angles is None:
        with pytest.raises(InputError, match=message):
            spread_angles(tasks, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, "0"])
def test_unusable_seeds_are_refused(seed: object) -> None:
    with pytest.raises(InputError, match="seed must be an integer"):
        seeded(seed, "angles")  # type: ignore[arg-type]


def test_permutations_differ_by_task_and_seed_and_move_pixels() -> None:
    first = draw_permutation(784, seed=0, index=0).tolist()
    assert sorted(first) == list(range(784))
    assert sum(place == pixel for place, pixel in enumerate(first)) < 10
    assert draw_permutation(784, 0, 0).tolist() == first
    assert draw_permutation(784, 0, 1).tolist() != first
    assert draw_permutation(784, 1, 0).tolist() != first


def test_class_groups_are_disjoint_and_a_prefix_of_the_longer_draw() -> None:
    names = [f"class-{i}" for i in range(23)]
    every = draw_class_groups(names, None, 5, seed=0)
    assert [len(group) for group in every] == [5, 5, 5, 5]
    assert len(set().union(*every)) == 20
    assert draw_class_groups(names, 2, 5, seed=0) == every[:2]
    assert draw_class_groups(names, None, 5, seed=1) != every


@pytest.mark.parametrize(
    ("tasks", "per_task", "message"),
    [
        (5, 5, "5 tasks of 5 classes need 25 classes, there are 23"),
        (0, 5, "tasks must be"),
        (1, 0, "classes_per_task must be"),
        (None, 24, "only 23 classes"),
    ],
)
def test_too_few_classes_are_refused(tasks: int | None, per_task: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw_class_groups(["x"] * 23, tasks, per_task, 0)


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_stratified_samples_keep_the_proportions(sizes: list[int], share: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    count = round(share * len(labels))
    chosen = stratified_sample(labels, count, seeded(seed, "validation"))
    assert len(set(chosen.tolist())) == len(chosen) == count
    assert (np.diff(chosen) > 0).all()
    taken = np.bincount(labels[chosen], minlength=len(sizes))
    assert (np.abs(taken - np.array(sizes) * count / len(labels)) < 1 + 1e-9).all()


def test_the_largest_remainder_gets_the_odd_example() -> None:
    labels = np.repeat([0, 1], [17, 23])  # quotas of 4.25 and 5.75
    chosen = stratified_sample(labels, 10, seeded(0, "validation"))
    assert np.bincount(labels[chosen]).tolist() == [4, 6]


def test_hold_out_splits_everything_in_two() -> None:
    labels = np.array(list("aabbbbcccc") * 10)
    kept, held = hold_out(labels, 0.2, 0, "test")
    assert sorted([*kept, *held]) == list(range(100))
    assert np.unique(labels[held], return_counts=True)[1].tolist() == [4, 8, 8]
    again, other = (hold_out(labels, 0.2, 0, purpose)[1] for purpose in ("test", "validation"))
    assert held.tolist() == again.tolist() != other.tolist()
    for name, fraction, count in (("validation", 0.01, 0), ("test", 0.99, 10)):
        with pytest.raises(InputError, match=f"{name}={fraction} of 10 examples is {count}"):
            hold_out(np.zeros(10), fraction, 0, name)
