"""The measures of continual learning, and the evaluation of one method on a stream."""

import math
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

import impresslearn as il
from impresslearn.errors import UnknownTaskError
from impresslearn.methods.evaluation import Evaluation
from toys import QUICK, blobs, inferred, quick_learner, refused

MATRIX = [[0.10, 0.20, 0.30], [0.90, 0.25, 0.40], [0.95, 0.70, 0.50], [0.60, 0.80, 0.90]]


def shifted():
    """Three tasks on the same inputs; the second has the first one's labels moved by one."""
    inputs, labels = blobs(0)
    parts = {"first": (inputs, labels), "second": (inputs, (labels + 1) % 3), "third": blobs(5)}
    return {name: (data, data) for name, data in parts.items()}


def evaluation(matrix):
    names = tuple(f"t{i}" for i in range(len(matrix) - 1))
    return Evaluation(names, 0, matrix, {}, {}, None, 0.0)


def test_measures_are_those_worked_out_by_hand():
    near, nan, result = pytest.approx, math.nan, evaluation(MATRIX)
    assert result.average_accuracy == near((0.6 + 0.8 + 0.9) / 3)
    assert result.forgetting == near(((0.95 - 0.6) + (0.7 - 0.8)) / 2)
    lucky = [[1.0, 0.0], [0.5, 0.0], [0.5, 0.5]]
    assert evaluation(lucky).forgetting == 0  # accuracy before a task is learned does not count
    assert result.backward_transfer == near(((0.6 - 0.9) + (0.8 - 0.7)) / 2)
    assert result.forward_transfer == near(((0.25 - 0.2) + (0.5 - 0.3)) / 2)
    assert evaluation([[nan] * 2, [0.9, nan], [0.9, 0.8]]).forward_transfer is None


def scoring(*scores):
    """A method that gives these accuracies of the task that was learned last."""
    return SimpleNamespace(learn_task=Mock(), predict=Mock(), score=Mock(side_effect=scores))


def test_the_matrix_has_a_row_before_any_task_and_one_after_each():
    result = il.evaluate(scoring(0.9, 0.8, 0.7, 0.6, 0.5, 0.4), shifted())
    expected = [[None] * 3, [0.9, None, None], [0.8, 0.7, None], [0.6, 0.5, 0.4]]
    found = [[None if math.isnan(value) else value for value in row] for row in result.matrix]
    assert found == expected
    first = {"task": "first", "phase": "learned", "bytes": None}
    first |= {"accuracy_before": None, "accuracy_learned": 0.9, "accuracy": 0.6}
    assert result.rows()[0] == first
    assert result.summary()["bytes_per_task"] is None


def test_a_method_without_a_score_is_scored_by_its_predictions():
    inputs, labels = blobs(0, count=2300)  # more than are predicted at once
    stream = dict.fromkeys("ab", ((inputs, labels), (inputs, labels)))
    method = SimpleNamespace(learn_task=Mock(), predict=lambda inputs, _: np.zeros(len(inputs)))
    found = il.evaluate(method, stream)
    assert found.accuracy == pytest.approx(float((labels == 0).float().mean()))


def test_basis_tasks_count_apart(capsys):
    found = il.evaluate(quick_learner(), shifted(), basis=1, progress=True)
    assert "Learner: task 1/3 first\nImpressLearner: task 2/3 second" in capsys.readouterr().err
    assert [row["phase"] for row in found.rows()] == ["basis", "learned", "learned"]
    assert found.accuracy == pytest.approx(sum(found.matrix[-1][1:]) / 2)
    assert found.basis_accuracy == found.matrix[-1][0]
    assert found.bytes_per_task == (found.bytes["second"] + found.bytes["third"]) / 2
    assert found.images_per_task == QUICK.min_steps * QUICK.batch_size
    row = found.rows()[1]
    assert sum(row[key] for key in row if key.startswith("bytes_")) == row["bytes"]
    assert "basis accuracy" in str(found)


def test_a_method_may_say_its_bytes_and_nothing_else():
    method = scoring(*[1] * 6)
    method.tasks_ = {"first": SimpleNamespace(bytes=12.5), "second": SimpleNamespace()}
    assert dict(il.evaluate(method, shifted()).bytes) == {"first": 12.5}


STREAM = il.streams.permuted_digits(tasks=3, seed=0)


@pytest.fixture(scope="module")
def digits():
    backbone = il.create_backbone("lenet_300_100", 10, in_features=64, widths=(40, 20))
    learner = il.ImpressLearner(backbone, sparsity=0.8, progress=False)
    for task in STREAM:
        learner.learn_basis(task.name, task.train)
    return learner


def test_each_input_is_inferred_by_itself(digits):
    inputs = np.concatenate([task.test.inputs[:9].numpy() for task in STREAM])
    guesses = digits.infer_tasks(inputs)
    for row, guess in enumerate(guesses):
        alone = digits.infer_task(inputs[row : row + 1])
        assert guess.best == alone.best
        near = pytest.approx([*alone.posterior.values(), alone.unknown_probability], abs=1e-5)
        assert [*guess.posterior.values(), guess.unknown_probability] == near
    labels = digits.predict(inputs, per_input=True)
    assert (labels == digits.predict(inputs, [guess.best for guess in guesses])).all()


def test_a_batch_of_several_tasks_is_named(digits):
    inputs = np.concatenate([task.test.inputs[:30].numpy() for task in STREAM])
    assert digits.infer_task(inputs).unknown
    refused("per_input=True if they come", digits.predict, inputs, error=UnknownTaskError)


def test_class_and_task_incremental_accuracy_side_by_side(digits):
    result = il.class_incremental(digits, STREAM)
    tests = {task.name: task.test.inputs for task in STREAM}
    expected, _ = inferred(digits, tests, 1, trials=60)
    means = result.summary()
    assert means["task_accuracy"] == pytest.approx(expected, abs=0.1)
    scores = [digits.score(task.test, task.name) for task in STREAM]
    assert means["task_il"] == pytest.approx(np.mean(scores))
    for row, task in zip(result.rows, STREAM, strict=True):
        right = digits.predict(task.test.inputs, per_input=True) == task.test.labels
        assert row["class_il"] == pytest.approx(right.mean())
        assert 0 <= row["unknown"] < 0.5
    assert "mean" in str(result)


def test_inputs_are_answered_one_by_one():
    by_batch = Mock(spec=["learn_task", "predict"])
    by_batch.predict.side_effect = lambda inputs, task: np.full(len(inputs), len(inputs))
    refused("another label in a batch than alone", il.class_incremental, by_batch, STREAM)


def test_readouts_are_not_trained_in_steps():
    backbone = il.create_backbone("linear", 3, in_features=16, head="own")
    learner = il.ImpressLearner.from_preset(backbone, "few_labels", progress=False)
    tasks = {name: (blobs(seed), blobs(seed)) for seed, name in enumerate("ab")}
    assert il.evaluate(learner, tasks).images_per_task is None
