"""Class-incremental evaluation: single inputs of all tasks, without the name of the task."""

import numpy as np
import pytest

import impresslearn as il
from impresslearn.errors import InputError, UnknownTaskError
from toys import refused

STREAM = il.streams.permuted_digits(tasks=3, seed=0)


@pytest.fixture(scope="module")
def digits():
    backbone = il.create_backbone("lenet_300_100", 10, in_features=64, widths=(40, 20))
    learner = il.ImpressLearner(backbone, sparsity=0.8, progress=False)
    for task in STREAM:
        learner.learn_basis(task.name, task.train)
    return learner


class Memory:
    """Remembers every input; labels without a name come from the inputs of all tasks."""

    def __init__(self, wrong_task=None):
        self.seen, self.wrong_task, self.learned = {}, wrong_task, []

    def learn_task(self, name, data):
        self.learned.append(name)
        for row, label in zip(data.inputs.numpy(), data.labels, strict=True):
            self.seen[row.tobytes()] = label

    def predict(self, inputs, task):
        labels = np.array([self.seen[row.tobytes()] for row in inputs.numpy()])
        return labels + (task is None and self.wrong_task in self.learned)


def numbers(first):
    inputs = np.arange(first, first + 40, dtype=np.float32).reshape(20, 2)
    return inputs, np.arange(20) % 2 + first


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
    refused("per_input infers", digits.predict, inputs, STREAM[0].name, per_input=True)
    refused("no example", digits.infer_tasks, inputs[:0])
    only = digits.infer_tasks(inputs, among=[STREAM[1].name])
    assert {guess.best for guess in only} == {STREAM[1].name}


def test_a_batch_of_several_tasks_is_named(digits):
    inputs = np.concatenate([task.test.inputs[:30].numpy() for task in STREAM])
    assert digits.infer_task(inputs).unknown
    with pytest.raises(UnknownTaskError, match="one by one like several.*per_input=True"):
        digits.predict(inputs)
    noise = np.random.default_rng(0).normal(0, 3, inputs.shape)
    with pytest.raises(UnknownTaskError, match="look like none of the tasks: best match"):
        digits.predict(noise)


def test_class_and_task_incremental_accuracy_side_by_side(digits):
    result = il.class_incremental(digits, STREAM)
    tests = {task.name: task.test for task in STREAM}
    (expected,) = il.score_inference(digits, tests, inputs=1, trials=60).rows
    summary = result.summary()
    assert summary["task_accuracy"] == pytest.approx(expected["task_accuracy"], abs=0.1)
    assert result.class_il <= result.task_il + 0.02
    assert result.task_il == pytest.approx(
        np.mean([digits.score(task.test, task.name) for task in STREAM])
    )
    for row, task in zip(result.rows, STREAM, strict=True):
        right = digits.predict(task.test.inputs, per_input=True) == task.test.labels
        assert row["class_il"] == pytest.approx(right.mean())
        assert 0 <= row["unknown"] < 0.5
    assert "mean" in str(result)
    assert "mean" in result._repr_html_()


def test_a_method_that_infers_no_task():
    stream = {"a": (numbers(0), numbers(0)), "b": (numbers(100), numbers(100))}
    result = il.class_incremental(Memory(), stream)
    assert (result.class_il, result.task_il) == (1, 1)
    assert result.summary()["unknown"] is None
    method = Memory(wrong_task="b")  # asked after all tasks, not after each
    assert il.class_incremental(method, stream).class_il == 0
    assert method.learned == ["a", "b"]


def test_wrong_methods_and_streams():
    refused("has no learn_task", il.class_incremental, object(), STREAM)
    refused("no task", il.class_incremental, Memory(), [])
    broken = Memory()
    broken.predict = lambda inputs, task: np.zeros(3)
    stream = {"a": (numbers(0), numbers(0))}
    with pytest.raises(InputError, match=r"task 'a': predict of Memory must give labels of shape"):
        il.class_incremental(broken, stream)
