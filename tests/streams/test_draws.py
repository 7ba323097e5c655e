"""What is random about a stream is the same on every machine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.streams.draws import draw_angles, seeded, spread_angles, stratified_sample


@pytest.mark.parametrize(
    ("draw", "first"),
    [
        # numpy.random.RandomState([0, 0]).permutation(360)[:4]; its draws are frozen by NEP 19.
        (draw_angles, (204, 6, 35, 319)),
        (spread_angles, (204, 24, 114, 294)),
    ],
)
def test_angles_are_distinct_and_those_of_every_other_machine(draw, first):
    every = draw(360, seed=0)
    assert sorted(every) == list(range(360))
    assert draw(4, seed=0) == every[:4] == first
    assert draw(20, seed=1) != draw(20, seed=0) == every[:20]


def test_spread_angles_keep_their_distance_whatever_their_number():
    for tasks in (2, 3, 8, 15, 16, 17, 100, 256):
        chosen = spread_angles(tasks, tasks)
        gaps = np.diff(sorted([*chosen, min(chosen) + 360]))
        assert gaps.min() >= 360 // 2 ** (tasks - 1).bit_length()


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_stratified_samples_keep_the_proportions(sizes, share, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    count = round(share * len(labels))
    chosen = stratified_sample(labels, count, seeded(seed, "validation"))
    assert len(set(chosen.tolist())) == len(chosen) == count
    assert (np.diff(chosen) > 0).all()
    taken = np.bincount(labels[chosen], minlength=len(sizes))
    assert (np.abs(taken - np.array(sizes) * count / len(labels)) < 1 + 1e-9).all()
