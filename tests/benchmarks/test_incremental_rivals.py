"""Rivals of class-incremental learning over features, and the job that compares ours with them."""

import numpy as np
import pytest
import torch
from benchmarks.rivals.incremental import INCREMENTAL, PENALTIES, RanPAC
from benchmarks.work import incremental
from sklearn.linear_model import Ridge
from torch import nn

import impresslearn as il
from toys import blobs


def tasks(names="ab"):
    """Tasks of three classes in 16 features, with labels of their own: train, test."""
    made = {}
    for seed, name in enumerate(names):
        table, labels = blobs(seed, count=200)
        labels = np.array([f"{name}{label}" for label in labels])
        halves = slice(0, 120), slice(120, 200)
        made[name] = [il.Examples(table[each], labels[each]) for each in halves]
    return made


@pytest.fixture(autouse=True)
def plain_inputs(monkeypatch):
    """The rivals take tensors as features."""
    monkeypatch.setattr("benchmarks.rivals.incremental._table", lambda inputs: inputs)


@pytest.mark.parametrize("name", ["nearest_mean", "replay", "der++", "ranpac", "joint"])
def test_rivals_learn_classes_in_turn(name):
    method = INCREMENTAL[name]() if name != "ranpac" else RanPAC(400)
    for _ in range(2):  # asked again after it has learned more
        for task, (train, test) in tasks().items():
            if task not in method.tasks_:
                method.learn_task(task, train)
            assert (method.predict(test.inputs, task) == test.labels).mean() > 0.9
    means = il.class_incremental(method, tasks()).summary()
    assert means["task_il"] >= means["class_il"] > 0.9
    assert method.bytes <= method.state_bytes
    expected = {"nearest_mean": 4 * 6 * 16, "ranpac": 4 * 6 * 400}
    assert method.bytes == expected.get(name, 4 * 6 * 17)


def test_heads_without_replay_forget_in_the_known_order():
    """As published for Class-IL (Buzzega et al. 2020, table 2): replay alone helps much."""
    names, stream = ("finetuned_head", "ewc", "lwf", "replay", "der++"), tasks("abcdefgh")
    results = {name: il.class_incremental(INCREMENTAL[name](), stream) for name in names}
    accuracy = {name: result.summary()["class_il"] for name, result in results.items()}
    assert accuracy["finetuned_head"] < min(accuracy["ewc"], accuracy["lwf"])
    assert max(accuracy["ewc"], accuracy["lwf"]) < min(accuracy["replay"], accuracy["der++"]) - 0.1
    assert min(result.summary()["task_il"] for result in results.values()) > 0.9


def test_ranpac_is_ridge_regression_of_random_features(monkeypatch):
    assert np.log10(PENALTIES) == pytest.approx(range(-8, 9))  # as in the published code
    monkeypatch.setattr("benchmarks.rivals.incremental.PENALTIES", [10.0])
    method = RanPAC(50)
    (train, test), _ = tasks().values()
    method.learn_task("a", train)
    random = method._random(train.inputs)
    onehot = torch.eye(3)[np.unique(train.labels, return_inverse=True)[1]]
    ridge = Ridge(10.0, fit_intercept=False).fit(random, onehot)
    expected = ridge.predict(method._random(test.inputs))
    assert method.scores(test.inputs).numpy() == pytest.approx(expected, abs=1e-3)


def test_kept_examples_are_int8():
    method = INCREMENTAL["der++"]()
    for task, (train, _) in tasks().items():
        method.learn_task(task, train)
    levels = 127 * method.buffer[0] / method.buffer[0].abs().amax(dim=1, keepdim=True)
    assert levels.numpy() == pytest.approx(levels.round().numpy(), abs=1e-3)
    assert method.state_bytes == method.bytes + 240 * (17 + 6 + 16)


def test_ours_learns_its_class_map_in_turn_like_the_rivals(monkeypatch):
    learn, given = il.ImpressLearner.tell_apart, []
    network = il.adapt(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)))
    stream = [(name, *parts) for name, parts in tasks().items()]
    monkeypatch.setattr(incremental, "load_backbone", lambda *_: network)
    monkeypatch.setattr(incremental, "load_task", lambda settings, _: stream[settings["task"]])
    record = lambda self, data: given.append([*data]) or learn(self, data)  # noqa: E731
    monkeypatch.setattr(il.ImpressLearner, "tell_apart", record)
    settings = {"tasks": [0, 1], "preset": "few_labels", "learner": {}, "rivals": []}
    incremental.tasks_of_single_inputs(settings, (), None)
    assert given == [["a"], ["b"]]
