"""The measures against values worked out by hand."""

import math

import pytest

from impresslearn import InputError
from impresslearn.methods import (
    average_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
)

MATRIX = [
    [0.10, 0.20, 0.30],
    [0.90, 0.25, 0.40],
    [0.95, 0.70, 0.50],
    [0.60, 0.80, 0.90],
]


def test_average_accuracy_of_the_tasks_learned_so_far():
    assert average_accuracy(MATRIX) == pytest.approx((0.6 + 0.8 + 0.9) / 3)
    assert average_accuracy(MATRIX, 1) == pytest.approx(0.9)
    assert average_accuracy(MATRIX, 2) == pytest.approx((0.95 + 0.7) / 2)
    for learned in (0, 4):
        with pytest.raises(InputError, match="1 to 3 tasks"):
            average_accuracy(MATRIX, learned)


def test_forgetting_starts_from_the_best_and_leaves_out_the_last_task():
    assert forgetting(MATRIX) == pytest.approx(((0.95 - 0.6) + (0.7 - 0.8)) / 2)
    lucky_before_learning = [[1.0, 0.0], [0.5, 0.0], [0.5, 0.5]]
    assert forgetting(lucky_before_learning) == 0.0


def test_backward_transfer_starts_from_the_state_after_learning():
    assert backward_transfer(MATRIX) == pytest.approx(((0.6 - 0.9) + (0.8 - 0.7)) / 2)


def test_forward_transfer_compares_with_the_state_before_any_task():
    assert forward_transfer(MATRIX) == pytest.approx(((0.25 - 0.2) + (0.5 - 0.3)) / 2)
    assert forward_transfer([[math.nan] * 2, [0.9, math.nan], [0.9, 0.8]]) is None


@pytest.mark.parametrize("matrix", [[], [[0.5]], [[0.5], [0.5]], [[0.1, 0.2], [0.1]]])
def test_a_matrix_of_another_shape_is_refused(matrix):
    with pytest.raises(InputError, match="T \\+ 1 rows of T accuracies"):
        forgetting(matrix)
