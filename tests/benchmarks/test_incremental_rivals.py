"""Rivals of class-incremental learning over features, and the job that compares ours with them."""

import numpy as np
import pytest
import torch
from benchmarks.rivals.incremental import INCREMENTAL, RanPAC
from sklearn.linear_model import Ridge

import impresslearn as il
from toys import blobs


def tasks():
    """Two tasks of three classes in 16 features, with labels of their own: train, test."""
    made = {}
    for seed, name in enumerate("ab"):
        table, labels = blobs(seed, count=200)
        labels = np.array([f"{name}{label}" for label in labels])
        halves = slice(0, 120), slice(120, 200)
        made[name] = [il.Examples(table[each], labels[each]) for each in halves]
    return made


@pytest.mark.parametrize("name", INCREMENTAL)
def test_rivals_learn_classes_in_turn(name, monkeypatch):
    monkeypatch.setattr("benchmarks.rivals.incremental._table", lambda inputs: inputs)
    method = INCREMENTAL[name]() if name != "ranpac" else RanPAC(400)
    for _ in range(2):  # asked again after it has learned more
        for task, (train, test) in tasks().items():
            if task not in method.tasks_:
                method.learn_task(task, train)
            assert (method.predict(test.inputs, task) == test.labels).mean() > 0.9
    result = il.class_incremental(method, tasks())
    assert result.class_il > 0.9
    assert result.task_il >= result.class_il
    assert method.bytes <= method.state_bytes
    expected = {"nearest_mean": 4 * 6 * 16, "ranpac": 4 * 6 * 400, "joint": 4 * 6 * 17}
    assert method.bytes == expected[name]


def test_ranpac_is_ridge_regression_of_random_features(monkeypatch):
    monkeypatch.setattr("benchmarks.rivals.incremental._table", lambda inputs: inputs)
    monkeypatch.setattr("benchmarks.rivals.incremental.PENALTIES", np.array([0.01]))
    method = RanPAC(50)
    (train, test), _ = tasks().values()
    method.learn_task("a", train)
    random = method._random(train.inputs)
    penalty = 0.01 * float((random @ random.T).trace()) / len(random)
    onehot = torch.eye(3)[np.unique(train.labels, return_inverse=True)[1]]
    ridge = Ridge(penalty, fit_intercept=False).fit(random, onehot)
    expected = ridge.predict(method._random(test.inputs))
    assert method.scores(test.inputs).numpy() == pytest.approx(expected, abs=1e-3)


def test_the_job_measures_ours_and_rivals(monkeypatch):
    from benchmarks.jobs import JobContext
    from benchmarks.work import incremental

    network = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 6))
    backbone = il.adapt(network, input_shape=(16,))
    data = [(name, *parts) for name, parts in tasks().items()]
    monkeypatch.setattr(incremental, "load_backbone", lambda settings, place: backbone)
    monkeypatch.setattr(incremental, "load_task", lambda settings, place: data[settings["task"]])
    settings = {"tasks": [0, 1], "preset": "few_labels", "learner": {}, "rivals": ["nearest_mean"]}
    rows = incremental.tasks_of_single_inputs(settings, (), JobContext()).values["rows"]
    assert [row.get("setting") for row in rows] == [None, "without a map", "with a class map"]
    for row in rows:
        assert row["class_il"] <= row["task_il"] + 1e-9
    assert rows[2]["class_il"] > 0.9
    assert rows[2]["bytes"] > rows[1]["bytes"]
    assert rows[2]["task_il"] == rows[1]["task_il"]
