"""Bad input and interrupts: no wrong answer, and a learner as if nothing had happened."""

from functools import partial

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn import Recipe
from impresslearn.data import Examples
from impresslearn.errors import ImpressLearnError
from impresslearn.learner.loading import create_learner
from toys import blobs, lenet, pictures, quick_learner, refused, resnet

X, Y = blobs(0)
NAN = X.clone()
NAN[5, 3] = np.nan

NETWORKS = {
    "lenet": (lenet, blobs),
    "per_task": (partial(resnet, "per_task"), pictures),
    "shared": (partial(resnet, "shared"), pictures),
}


def fresh(kind="lenet", empty=False):
    """A learner with two masks, a basis task and a learned task, or with none of them."""
    network, data = NETWORKS[kind]
    short = Recipe(epochs=4, batch_size=12)
    learner = quick_learner(network(), basis_recipe=short, task_recipe=short, granularity="unit")
    if not empty:
        learner.learn_basis("digits", data(0)).learn_task("letters", data(1)).add_random_masks(1)
    return learner


def state(learner):
    """All that a learner holds, as plain values."""
    parts = [learner.bank_.mask(name) for name in learner.bank_.names]
    parts += [learner.statistics_of(name) or {} for name in learner.tasks_]
    tensors = [value for part in parts for value in part.values()]
    tensors += [value for each in learner.coefficients_.values() for value in each.tensors()]
    tensors += (learner.shared_statistics_ or {}).values()
    values = [tensor.tolist() for tensor in tensors]
    return dict(learner.tasks_), learner.bank_.infos, values, learner.backbone.fingerprint()


def assert_as_if_nothing_had_happened(learner, before, untouched, data):
    """The state is what it was, and the next tasks come out as for a learner without the error."""
    assert state(learner) == before
    for each in (learner, untouched):
        each.learn_task("next", data(5)).learn_basis("after", data(6))
    assert state(learner) == state(untouched)


def learn(data, name="new"):
    return [
        lambda it: it.learn_basis(name, data),
        lambda it: it.learn_task(name, data),
        lambda it: it.learn_homogeneous(name, data, 2),
    ]


MISTAKES = [
    lambda it: it.predict(X, "digit"),
    lambda it: it.infer_task(X, among="new"),
    lambda it: it.score((X, Y + 7), "digits"),
    *learn("/nowhere"),
    *learn((X[:, :9], Y)),
    *learn((NAN, Y)),
    *learn((X, torch.arange(96) % 7)),
    *learn((X, Y), "digits"),
    learn((X, Y), "random-0")[0],
    learn((X, Y), "random-0")[2],
]
"""Whose lines are in messages/messages.md, or those of their likes."""


def test_after_many_mistakes_tasks_are_learned_as_if_there_had_been_none():
    learner = fresh()
    before = state(learner)
    for action in MISTAKES:
        with pytest.raises(ImpressLearnError):
            action(learner)
        assert state(learner) == before
    assert_as_if_nothing_had_happened(learner, before, fresh(), blobs)


def interrupting(inputs, labels, after):
    """Examples whose batch number `after` is interrupted as by Ctrl-C."""
    calls = []

    def augment(batch, generator):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return batch

    return Examples(inputs, labels.numpy(), augment)


@pytest.mark.parametrize("empty", [False, True], ids=["with tasks", "empty"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_an_interrupt_in_the_middle_of_learning(kind, empty):
    data = NETWORKS[kind][1]
    learner = fresh(kind, empty)
    before = state(learner)
    for after in (0, 3):
        for number in (0, 2) if empty else range(3):
            with pytest.raises(KeyboardInterrupt):
                learn(interrupting(*data(2), after))[number](learner)
    with pytest.raises(KeyboardInterrupt):  # the second of two homogeneous masks
        learn(interrupting(*data(2, count=24), 10))[2](learner)
    untouched = fresh(kind, empty)
    if empty:
        assert state(learner) == before
        for each in (learner, untouched):
            each.learn_basis("first", data(4))
        before = state(untouched)
    assert_as_if_nothing_had_happened(learner, before, untouched, data)


def test_a_flat_network_keeps_the_shape_of_its_first_images():
    learner = create_learner((6, 6, 3), 3, preprocessing=il.Preprocessing())
    assert learner.preprocessing.shape == (6, 6, 3)
    for same in ((2, 6, 6, 3), (2, 108)):
        learner.prepare(np.zeros(same))
    refused("cannot be given the shape", learner.prepare, np.zeros((2, 3, 6, 6)))


def test_outputs_that_are_no_numbers_are_no_answers():
    huge = torch.full((3, 16), 3e38)
    it, line = fresh(), "are NaN or infinite; check the scale"
    for verb in (it.predict, it.logits):
        refused(line, verb, huge, "letters")
    for verb in (it.predict, it.infer_task):
        refused(line, verb, huge)
    refused(line, it.score, (huge, [0, 1, 0]), "letters")
