"""The measures against values worked out by hand, and the record that shows them."""

import pytest

from impresslearn import InputError
from impresslearn.experiments.measures import (
    Trial,
    average_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
    shown,
    summaries,
    summary_of,
)

MATRIX = [
    [0.10, 0.20, 0.30],
    [0.90, 0.25, 0.40],
    [0.95, 0.70, 0.50],
    [0.60, 0.80, 0.90],
]
TRIAL = Trial("a", 0, ["x", "y", "z"], ["basis", "learned", "learned"], [100, 20, 30], MATRIX)


def test_average_accuracy():
    assert average_accuracy(MATRIX) == pytest.approx((0.6 + 0.8 + 0.9) / 3)
    assert average_accuracy(MATRIX, 1) == pytest.approx(0.9)
    assert average_accuracy(MATRIX, 2) == pytest.approx((0.95 + 0.7) / 2)


def test_forgetting_starts_from_the_best_and_leaves_out_the_last_task():
    assert forgetting(MATRIX) == pytest.approx(((0.95 - 0.6) + (0.7 - 0.8)) / 2)


def test_backward_transfer_starts_from_the_state_after_learning():
    assert backward_transfer(MATRIX) == pytest.approx(((0.6 - 0.9) + (0.8 - 0.7)) / 2)


def test_forward_transfer_compares_with_the_state_before_any_task():
    assert forward_transfer(MATRIX) == pytest.approx(((0.25 - 0.2) + (0.5 - 0.3)) / 2)


def test_forgetting_ignores_states_before_the_task_was_learned():
    lucky = [[1.0, 0.0], [0.5, 0.0], [0.5, 0.5]]
    assert forgetting(lucky) == 0.0


@pytest.mark.parametrize("matrix", [[], [[0.5]], [[0.5], [0.5]], [[0.1, 0.2], [0.1]]])
def test_a_matrix_of_another_shape_is_refused(matrix):
    with pytest.raises(InputError, match="T \\+ 1 rows of T accuracies"):
        forgetting(matrix)


@pytest.mark.parametrize("learned", [0, 4])
def test_average_accuracy_of_other_numbers_of_tasks_is_refused(learned):
    with pytest.raises(InputError, match="1 to 3 tasks"):
        average_accuracy(MATRIX, learned)


def test_summaries_are_means_over_seeds():
    better = [[1.0] * 3] * 4
    other = Trial("a", 1, TRIAL.tasks, TRIAL.roles, [0, 0, 0], better)
    found = summaries([TRIAL, other])
    assert [(each["method"], each["seeds"]) for each in found] == [("a", 2)]
    assert found[0]["average_accuracy"] == pytest.approx((2.3 / 3 + 1) / 2)
    assert found[0]["bytes_per_task"] == pytest.approx((50 + 0) / 2)


def test_rows_hold_the_whole_matrix_and_what_is_kept():
    rows = shown([TRIAL])["rows"]
    cells = [row for row in rows if "accuracy" in row]
    assert [row["accuracy"] for row in cells] == [value for line in MATRIX for value in line]
    assert [row["seen"] for row in cells][3:6] == [True, False, False]
    assert [row["bytes"] for row in rows if "bytes" in row] == [100, 20, 30]
    assert rows[-1] == {"method": "a", "seed": 0, **summary_of(TRIAL)}
