"""Class maps: tasks of a network are told apart by single inputs."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

import impresslearn as il
from impresslearn.inference import ClassMap
from toys import blobs, few_labels, mlp

TASKS = {name: blobs(seed, count=300) for seed, name in enumerate("abc")}


@pytest.fixture
def learner():
    learner = few_labels(mlp(24))
    for name, (inputs, labels) in TASKS.items():
        learner.learn_task(name, (inputs[:200], labels[:200]))
    return learner


def tell_apart(learner, names):
    return learner.tell_apart({name: [part[:200] for part in TASKS[name]] for name in names})


def features(seed, width=6, count=4000):
    """Two classes with the covariance of all seeds, and their means."""
    generator = torch.Generator().manual_seed(seed)
    mixing = 0.1 * torch.randn(width, width, generator=torch.Generator().manual_seed(99)).double()
    mixing += torch.eye(width)
    means = torch.randn(2, width, generator=generator).double()
    targets = torch.arange(count) % 2
    noise = torch.randn(count, width, generator=generator).double()
    return means[targets] + noise @ mixing, targets, means, mixing.T @ mixing


@pytest.mark.parametrize("older", [False, True])
def test_scores_are_the_likelihoods_of_gaussians(older, monkeypatch):
    if older:  # a map of before: four directions in whole steps, and it says neither
        for name, value in (("DIRECTIONS", 4), ("PARTS", 1), ("_NUMBERS", ("roots", "count"))):
            monkeypatch.setattr(f"impresslearn.inference.class_map.{name}", value)
    drawn = {name: features(seed) for seed, name in enumerate("ab")}
    known = ClassMap.of({name: each[:2] for name, each in drawn.items()})
    some = torch.cat([each[0][:50] for each in drawn.values()])
    expected = []
    for _, _, means, covariance in drawn.values():
        likely = [multivariate_normal(mean, covariance).pdf(some) for mean in means]
        expected.append(np.log(np.mean(likely, axis=0)))
    first, second = (known.temperature * each for each in known.scores(some, ["a", "b"]))
    ratio = (second.logsumexp(dim=1) - first.logsumexp(dim=1)).numpy()
    assert np.corrcoef(ratio, expected[1] - expected[0])[0, 1] > 0.99
    assert ratio == pytest.approx(expected[1] - expected[0], abs=1)


def test_single_inputs_find_their_task(learner, tmp_path):
    mixed = torch.cat([data[0][200:] for data in TASKS.values()])
    names = np.repeat(list(TASKS), 100)
    logits = learner.logits(mixed, "a")
    tell_apart(learner, "ab")  # a map grows
    with pytest.warns(UserWarning, match="it lacks 1 of 3 tasks or some of their classes; pass"):
        learner.infer_task(mixed[:1])
    guesses = tell_apart(learner, "c").infer_tasks(mixed)
    assert np.mean([guess.best for guess in guesses] == names) > 0.97
    labels = learner.predict(mixed, per_input=True)
    assert np.mean(labels == np.concatenate([data[1][200:] for data in TASKS.values()])) > 0.9
    assert torch.equal(learner.logits(mixed, "a"), logits)
    assert learner.infer_task(TASKS["b"][0][200:]).best == "b"
    kept = learner.features(mixed)
    assert [guess.best for guess in learner.infer_tasks(kept)] == [g.best for g in guesses]
    assert {each.best for each in learner.infer_tasks(mixed, among=["a", "b"])} == {"a", "b"}
    learner.save(tmp_path / "all.impress")
    again = il.load(tmp_path / "all.impress", module=learner.backbone.module)
    assert [guess.posterior for guess in again.infer_tasks(mixed)] == [g.posterior for g in guesses]
    learner.save(tmp_path / "some.impress", tasks=["a", "c"])
    some = il.load(tmp_path / "some.impress", module=learner.backbone.module)
    learner.remove_task("b")
    assert list(some.class_map_.codes) == list(learner.class_map_.codes) == ["a", "c"]
    grown = np.where(np.arange(300) < 280, TASKS["c"][1], max(TASKS["c"][1]) + 1)
    learner.update_task("c", (TASKS["c"][0], grown))  # the map lacks the new class
    with pytest.warns(UserWarning, match="the class map is not used"):
        assert learner.infer_task(TASKS["c"][0][200:201]).class_index is None
    assert learner.infer_task(TASKS["a"][0][200:201], among=["a"]).class_index is not None
    learner.tell_apart({"c": (TASKS["c"][0], grown)}).restore_task("c", 1)
    learner.update_task("c", (TASKS["c"][0], np.where(grown == max(grown), 99, grown)))
    assert list(learner.class_map_.codes) == ["a"]  # "c" has as many classes, but others
