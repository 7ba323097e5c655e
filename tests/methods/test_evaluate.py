"""The measures of continual learning, and the evaluation of one method on a stream."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import impresslearn as il
from impresslearn.methods.evaluation import Evaluation
from toys import QUICK, blobs, quick_learner, refused

MATRIX = [[0.10, 0.20, 0.30], [0.90, 0.25, 0.40], [0.95, 0.70, 0.50], [0.60, 0.80, 0.90]]


def shifted():
    """Three tasks on the same inputs; the second has the first one's labels moved by one."""
    inputs, labels = blobs(0)
    moved, others = (inputs, (labels + 1) % 3), blobs(5)
    return {
        "first": ((inputs, labels), (inputs, labels)),
        "second": (moved, moved),
        "third": (others, others),
    }


def evaluation(matrix):
    names = tuple(f"t{i}" for i in range(len(matrix) - 1))
    return Evaluation(names, 0, matrix, {}, {}, {}, None, 0.0)


def test_measures_are_those_worked_out_by_hand():
    near, nan, result = pytest.approx, math.nan, evaluation(MATRIX)
    assert result.average_accuracy == near((0.6 + 0.8 + 0.9) / 3)
    assert result.forgetting == near(((0.95 - 0.6) + (0.7 - 0.8)) / 2)
    lucky = [[1.0, 0.0], [0.5, 0.0], [0.5, 0.5]]
    assert evaluation(lucky).forgetting == 0  # accuracy before a task is learned does not count
    assert result.backward_transfer == near(((0.6 - 0.9) + (0.8 - 0.7)) / 2)
    assert result.forward_transfer == near(((0.25 - 0.2) + (0.5 - 0.3)) / 2)
    assert evaluation([[nan] * 2, [0.9, nan], [0.9, 0.8]]).forward_transfer is None


class Scores:
    """Says what it is told to of the task that was learned last."""

    def __init__(self, *scores):
        self.scores = list(scores)

    def learn_task(self, name, data):
        """Nothing."""

    def predict(self, inputs, task):
        raise AssertionError("score is there")

    def score(self, data, task):
        return self.scores.pop(0)


class Predicts:
    """Has no score, and predicts as it is told."""

    def __init__(self, predict):
        self.predict = lambda inputs, task: predict(inputs)

    def learn_task(self, name, data):
        """Nothing."""


def test_the_matrix_has_a_row_before_any_task_and_one_after_each():
    result = il.evaluate(Scores(0.9, 0.8, 0.7, 0.6, 0.5, 0.4), shifted())
    expected = [[None] * 3, [0.9, None, None], [0.8, 0.7, None], [0.6, 0.5, 0.4]]
    found = [[None if math.isnan(value) else value for value in row] for row in result.matrix]
    assert found == expected
    first = {"task": "first", "phase": "learned", "role": None, "bytes": None}
    first |= {"accuracy_before": None, "accuracy_learned": 0.9, "accuracy": 0.6}
    assert result.rows()[0] == first
    summary = result.summary()
    unknown = ("forward_transfer", "bytes_per_task", "basis_accuracy", "images_per_task")
    assert [summary[name] for name in unknown] == [None] * 4


def test_a_method_without_a_score_is_scored_by_its_predictions():
    inputs, labels = blobs(0, count=2300)  # more than are predicted at once
    stream = dict.fromkeys("ab", ((inputs, labels), (inputs, labels)))
    found = il.evaluate(Predicts(lambda inputs: np.zeros(len(inputs))), stream)
    assert found.accuracy == pytest.approx(float((labels == 0).float().mean()))


def test_basis_tasks_count_apart(capsys):
    found = il.evaluate(quick_learner(), shifted(), basis=1, progress=True)
    assert (
        "ImpressLearner: task 1/3 first\nImpressLearner: task 2/3 second" in capsys.readouterr().err
    )
    assert found.roles == {"first": "basis", "second": "learned", "third": "learned"}
    assert [row["phase"] for row in found.rows()] == ["basis", "learned", "learned"]
    assert found.accuracy == pytest.approx(sum(found.matrix[-1][1:]) / 2)
    assert found.basis_accuracy == found.matrix[-1][0]
    assert found.bytes_per_task == (found.bytes["second"] + found.bytes["third"]) / 2
    assert found.images_per_task == QUICK.min_steps * QUICK.batch_size
    row = found.rows()[1]
    assert sum(row[key] for key in row if key.startswith("bytes_")) == row["bytes"]
    assert "basis accuracy" in str(found)
    assert found._repr_html_().count("<tr>") == 4


@pytest.mark.parametrize(
    ("method", "settings", "line"),
    [
        (il.SupSup, {}, "a method is an object, not a class: give SupSup"),
        (SimpleNamespace(learn_task=print), {}, "SimpleNamespace has no predict"),
        (Scores(90), {}, r"task 'first': Scores must give an accuracy in \[0, 1\], got 90"),
        (Scores(1), {"basis": 4}, "basis = 4, but there are only 3 tasks in the stream"),
        (quick_learner(), {}, "task 'first': the bank is empty"),
        (Predicts(lambda inputs: None), {}, r"labels of shape \(96,\) for 96 inputs, got shape \("),
        (Predicts(lambda inputs: 1 / 0), {}, "predict of Predicts: ZeroDivisionError"),
    ],
)
def test_what_cannot_be_evaluated(method, settings, line):
    refused(line, il.evaluate, method, shifted(), **settings)


@pytest.mark.parametrize("size", [12.5, None])
def test_a_method_may_say_its_bytes_and_nothing_else(size):
    method = Scores(*[1] * 12)
    method.tasks_ = {"first": SimpleNamespace(bytes=size), "second": SimpleNamespace()}
    found = il.evaluate(method, shifted())
    assert dict(found.bytes) == ({} if size is None else {"first": size})
    assert not found.roles
    method.tasks_["first"].bytes = "much"
    refused(
        "task 'first': bytes must be a finite number of at least 0, got 'much'",
        il.evaluate,
        method,
        shifted(),
    )


def test_pixels_given_as_integers_are_evaluated():
    learner = quick_learner(preprocessing=il.Preprocessing(pixels=True)).add_random_masks(2)
    inputs, labels = blobs()
    integers = ((inputs - inputs.min()) / (inputs.max() - inputs.min()) * 255).long()
    result = il.evaluate(learner, dict.fromkeys("ab", ((integers, labels), (integers, labels))))
    assert result.matrix[-1][0] == learner.score((integers, labels), "a")
