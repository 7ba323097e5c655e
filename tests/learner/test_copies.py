"""Learners are copied and sent to other processes."""

import copy
import pickle

import pytest
import torch

import impresslearn as il
from toys import BASELINES, blobs, lenet, quick_learner

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_learner_answers_the_same_and_learns_alone(how):
    learner = quick_learner(lenet()).learn_basis("m", blobs(0)).learn_task("a", blobs(1))
    again = COPIES[how](learner)
    inputs, _ = blobs(1)
    for name in ("m", "a"):
        assert torch.equal(again.logits(inputs, name), learner.logits(inputs, name))
    again.learn_task("b", blobs(2)).remove_task("a")
    assert list(learner.tasks_) == ["m", "a"]
    assert list(again.tasks_) == ["m", "b"]
    assert again.bank_.names == learner.bank_.names


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_an_opened_store_opens_the_file_again(how, tmp_path):
    quick_learner(lenet()).add_random_masks(4).learn_task("a", blobs(1)).save(
        tmp_path / "a.impress"
    )
    with il.open_store(tmp_path / "a.impress", progress=False) as learner:
        with COPIES[how](learner) as again:
            again.learn_task("b", blobs(2))
        assert set(COPIES[how](learner.tasks_)) == {"a", "b"}


def predicted(method, inputs):
    return method.predict(inputs, "a").tolist()


def workers():
    """Processes that what they work on is pickled for, as joblib starts them."""
    return pytest.importorskip("joblib").Parallel(2, "loky")


METHODS = BASELINES | {"ImpressLearner": lambda: quick_learner(lenet()).add_random_masks(4)}


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_copied_and_sent(name):
    method, (inputs, _) = METHODS[name]().learn_task("a", blobs(1)), blobs(1)
    expected = predicted(method, inputs)
    for copied in COPIES.values():
        again = copied(method)
        assert predicted(again, inputs) == expected
        again.learn_task("b", blobs(2))
        assert list(method.tasks_) == ["a"]
    assert list(workers()([(predicted, (method, inputs), {})])) == [expected]


RESULTS = {
    "Comparison": lambda learner: il.compare(
        {"ours": lambda seed: quick_learner(lenet()).add_random_masks(3)},
        {name: (blobs(1), blobs(1)) for name in "ab"},
        progress=False,
    ),
    "Advice": lambda learner: il.advise({"a": blobs(1)}, lenet(), max_seconds=5),
    "Stream": lambda learner: il.streams.rotated_digits(tasks=2),
    "Backbone": lambda learner: learner.backbone,
    "MaskBank": lambda learner: learner.bank_,
    "Preprocessing": lambda learner: il.Preprocessing.standardising(blobs(1)[0]),
    "TaskGuess": lambda learner: learner.infer_task(blobs(1)[0][:8]),
    "export": lambda learner: learner.export("a"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_copied_and_sent(name):
    learner = quick_learner(lenet()).add_random_masks(3)
    result = RESULTS[name](learner.learn_task("a", blobs(1)).learn_task("b", blobs(2)))
    for copied in (*COPIES.values(), lambda it: next(iter(workers()([(copy.copy, (it,), {})])))):
        assert repr(copied(result)) == repr(result)
