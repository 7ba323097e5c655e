"""Bad input: one clear line each, no wrong answer, a learner as if nothing had happened."""

from functools import partial

import numpy as np
import pytest
import torch

import impresslearn as il
import impresslearn.store.store
from impresslearn import ImpressLearner, Recipe
from impresslearn.data import Examples
from impresslearn.errors import InputError, MissingDataError, TrainingError, UnknownTaskError
from impresslearn.learner import create_learner
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
    statistics = {name: learner.statistics_of(name) for name in learner.tasks_}
    return {
        "tasks": dict(learner.tasks_),
        "masks": learner.bank_.infos,
        "bits": [
            layer.tolist()
            for mask in map(learner.bank_.mask, learner.bank_.names)
            for layer in mask.values()
        ],
        "coefficients": [
            tensor.tolist() for each in learner.coefficients_.values() for tensor in each.tensors()
        ],
        "statistics": [
            {key: value.tolist() for key, value in (each or {}).items()}
            for each in (*statistics.values(), learner.shared_statistics_)
        ],
        "backbone": learner.backbone.fingerprint(),
    }


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
    ("no such task to predict", lambda it: it.predict(X, "digit"), UnknownTaskError,
     r"no task named 'digit' among 2; close: 'digits'"),
    ("no such task in a batch", lambda it: it.predict(X, ["digits"] * 95 + ["leters"]),
     UnknownTaskError, r"no task named 'leters' among 2; close: 'letters'"),
    ("no such group of tasks", lambda it: it.infer_task(X, among="new"), InputError,
     "among must be all, basis, learned or a list of names, got 'new'"),
    ("no such method", lambda it: it.infer_task(X, method="guess"), InputError,
     "method must be one of auto, exhaustive, one_shot, alpha, got 'guess'"),
    ("a task that is no name", lambda it: it.predict(X, 3), InputError, "got 3"),
    ("names of another number", lambda it: it.predict(X, ["digits"] * 5), InputError,
     "96 inputs came with 5 task names"),
    ("inputs of another size to predict", lambda it: it.predict(X[:, :9], "digits"), InputError,
     r"expects 16 values per input, got shape \(9,\) = 9"),
    ("a single input without a batch", lambda it: it.predict(X[0], "digits"), InputError,
     "add a batch dimension"),
    ("NaN to predict", lambda it: it.predict(NAN, "digits"), InputError, "1 NaN or infinite"),
    ("a label never seen", lambda it: it.score((X, Y + 7), "digits"), InputError,
     "label 7 is not among the known classes 0, 1, 2"),
    *[(f"no folder {number}", action, MissingDataError, "no image folder at /nowhere")
      for number, action in enumerate(learn("/nowhere"))],
    *[(f"{what} {number}", action, InputError, message)
      for what, data, message in [
          ("images of another size", (X[:, :9], Y), r"expects 16 values .*, got shape \(9,\)"),
          ("an empty task", (X[:0], Y[:0]), "hold no example"),
          ("a single class", (X, torch.full((96,), 4)), "at least two classes; all labels are 4"),
          ("NaN", (NAN, Y), "inputs hold 1 NaN or infinite values"),
          ("too many classes", (X, torch.arange(96) % 7), "7 classes, the network 3 outputs"),
          ("fewer labels than inputs", (X, Y[:50]), "96 inputs came with 50 labels"),
      ]
      for number, action in enumerate(learn(data))],
    *[(f"{what} {number}", action, InputError, message)
      for what, name, message in [
          ("a task twice", "digits", "'digits' was learned already"),
          ("a mask twice", "random-0", "a mask named 'random-0'"),
          ("a name that is no string", 3, "non-empty string, got 3"),
      ]
      for number, action in enumerate(learn((X, Y), name))
      if (name, number) != ("random-0", 1)],
]  # fmt: skip


@pytest.fixture(scope="module")
def shared_learner():
    return fresh()


@pytest.mark.parametrize(("action", "error", "message"), [m[1:] for m in MISTAKES],
                         ids=[m[0] for m in MISTAKES])  # fmt: skip
def test_one_line_and_nothing_changes(shared_learner, action, error, message):
    before = state(shared_learner)
    with pytest.raises(error, match=message) as caught:
        action(shared_learner)
    assert "\n" not in str(caught.value)
    assert 10 < len(str(caught.value)) < 200
    assert state(shared_learner) == before


def test_after_many_mistakes_tasks_are_learned_as_if_there_had_been_none():
    learner = fresh()
    before = state(learner)
    for _, action, error, _ in MISTAKES:
        with pytest.raises(error):
            action(learner)
    assert_as_if_nothing_had_happened(learner, before, fresh(), blobs)


def test_an_empty_learner_knows_no_task_and_has_no_mask():
    learner = fresh(empty=True)
    refused("nothing was learned yet", learner.predict, X, "digits", error=UnknownTaskError)
    refused("no task to choose from; learn one first", learner.predict, X)
    message = "bank is empty; learn a basis task or add random masks"
    refused(message, learner.learn_task, "new", (X, Y))
    assert len(learner.tasks_) == len(learner.bank_) == 0


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


@pytest.mark.parametrize("kind", NETWORKS)
def test_an_interrupt_after_learning_and_before_the_task_is_kept(kind, monkeypatch):
    data = NETWORKS[kind][1]
    learner = fresh(kind)
    before = state(learner)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(impresslearn.store.store, "task_profile", interrupt)
        for verb in learn(data(2)):
            with pytest.raises(KeyboardInterrupt):
                verb(learner)
    assert_as_if_nothing_had_happened(learner, before, fresh(kind), data)


@pytest.mark.parametrize("kind", ["lenet", "shared"])
def test_learning_that_diverges(kind):
    data = NETWORKS[kind][1]
    learner = fresh(kind)
    before = state(learner)
    wild = Recipe(lr=1e38, schedule="constant", epochs=0, min_steps=4)
    diverging = ImpressLearner(learner.backbone, task_recipe=wild, progress=False)
    diverging._store = learner._store
    message = "lower the learning rate"
    refused(message, diverging.learn_task, "new", data(2), error=TrainingError)
    assert_as_if_nothing_had_happened(learner, before, fresh(kind), data)


def test_a_flat_network_keeps_the_shape_of_its_first_images():
    learner = create_learner((6, 6, 3), 3, preprocessing=il.Preprocessing())
    assert learner.preprocessing.shape == (6, 6, 3)
    for same in ((2, 6, 6, 3), (2, 108)):
        learner.prepare(np.zeros(same))
    refused("cannot be given the shape", learner.prepare, np.zeros((2, 3, 6, 6)))


def test_outputs_that_are_no_numbers_are_no_answers(shared_learner):
    huge = torch.full((3, 16), 3e38)
    it, line = shared_learner, "are NaN or infinite; check the scale"
    for verb in (it.predict, it.logits):
        refused(line, verb, huge, "letters")
    for verb in (it.predict, it.infer_task):
        refused(line, verb, huge)
    refused(line, it.score, (huge, [0, 1, 0]), "letters")
