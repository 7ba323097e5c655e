"""Learners are copied and sent to other processes."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch

import impresslearn as il
from toys import QUICK, blobs, lenet, quick_learner

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


@pytest.mark.parametrize("how", COPIES)
def test_baselines_are_copied(how):
    for method in (
        il.SupSup(lenet(), basis_recipe=QUICK, progress=False),
        il.FineTuning(lenet(), recipe=QUICK, progress=False),
    ):
        method.learn_task("a", blobs(1))
        inputs, _ = blobs(1)
        again = COPIES[how](method)
        assert (again.predict(inputs, "a") == method.predict(inputs, "a")).all()


def test_another_process_reads_what_was_pickled(tmp_path):
    learner = quick_learner(lenet()).add_random_masks(4).learn_task("a", blobs(1))
    inputs, _ = blobs(1)
    (tmp_path / "learner.pickle").write_bytes(pickle.dumps((learner, inputs)))
    code = (
        "import pickle, sys; learner, inputs = pickle.load(open(sys.argv[1], 'rb'));"
        "print(learner.predict(inputs, 'a').tolist())"
    )
    path = str(tmp_path / "learner.pickle")
    answer = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert answer.stdout.strip() == str(learner.predict(inputs, "a").tolist()), answer.stderr
