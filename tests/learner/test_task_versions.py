"""The life of a task: updated from its present numbers, restored bit for bit, removed."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

import impresslearn as il
from toys import FEATURES, KINDS, blobs, lenet, mlp, quick_learner, refused

STILL = il.Recipe(lr=1e-12, epochs=0, min_steps=2)
"""Two steps that move nothing: what is learned is what was there."""


def own(classes: int = 5) -> il.Backbone:
    return il.adapt(mlp(12, classes))


def learner_of(kind, backbone=None, **settings):
    backbone = lenet(4) if backbone is None else backbone
    bank = il.random_bank(backbone.layers, 6, 0.8, seed=1)
    return quick_learner(backbone, bank=bank, **KINDS[kind] | settings)


def normed():
    """A network whose tasks keep statistics of their own, for inputs far from new ones'."""
    layers = nn.Linear(FEATURES, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3)
    return il.adapt(nn.Sequential(*layers), norm="per_task", input_shape=(FEATURES,))


@pytest.mark.parametrize("network", [lenet, own, normed])
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_starts_from_the_present_numbers(kind, network, tmp_path):
    learner, (inputs, labels) = learner_of(kind, network()), blobs(1)
    if network is normed:
        inputs = 5 * inputs + 30
    learner.learn_task("a", (inputs, labels)).save(tmp_path / "a.impress")
    before, module = learner.logits(inputs, "a"), learner.backbone.module
    given = {} if network is lenet else {"module": module}
    still = il.load(tmp_path / "a.impress", **given, task_recipe=STILL, progress=False)
    still.update_task("a", (inputs, labels.flip(0)))
    assert still.tasks_["a"].version == 2
    close = {"atol": 0.3, "rtol": 0.1} if network is normed else {"atol": 2e-3, "rtol": 2e-3}
    torch.testing.assert_close(still.logits(inputs, "a"), before, **close)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_the_new_data_and_the_old_version_comes_back(kind, tmp_path):
    learner = learner_of(kind)
    (inputs, labels), new = blobs(1), blobs(10)
    learner.learn_task("a", (inputs, labels)).learn_task("b", blobs(3))
    first, other = learner.logits(inputs, "a"), learner.logits(inputs, "b")
    poor = learner.score(new, "a")
    learner.update_task("a", new, note={"why": "drift"})
    second = learner.logits(inputs, "a")
    assert learner.score(new, "a") > poor + 0.3
    assert learner.logits(inputs, "b").equal(other)
    assert list(learner.tasks_) == ["a", "b"]
    assert learner.tasks_["a"].history["metrics"]["note"] == {"why": "drift"}
    learner.restore_task("a", 1)
    assert learner.logits(inputs, "a").equal(first)
    learner.restore_task("a", 2)
    assert learner.logits(inputs, "a").equal(second)
    versions = learner.versions("a")
    assert [each.version for each in versions] == [1, 2, 3, 4]
    assert [each.history["metrics"].get("restored") for each in versions] == [None, None, 1, 2]
    assert versions[-1] == learner.tasks_["a"]
    refused("is at version 4 and has the former versions 1 to 3", learner.restore_task, "a", 4)
    learner.save(tmp_path / "a.impress")
    for back in (il.load(tmp_path / "a.impress"), il.open_store(tmp_path / "a.impress")):
        assert back.logits(inputs, "a").equal(second)
        assert back.versions("a") == versions
        assert back.restore_task("a", 1).logits(inputs, "a").equal(first)
        assert back.logits(inputs, "b").equal(other)
        back.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", [lenet, own])
def test_classes_that_come_later_stand_behind_the_others(kind, network, tmp_path):
    learner = learner_of(kind, network(4))
    inputs, labels = blobs(1, classes=4, count=160)
    names = np.array(["cat", "dog", "bee", "ant"])[labels]
    early = np.isin(names, ["cat", "dog", "bee"])
    learner.learn_task("a", (inputs[early], names[early]))
    assert learner.tasks_["a"].classes == ("bee", "cat", "dog")
    old = learner.logits(inputs, "a")
    learner.update_task("a", (inputs, names))
    assert learner.tasks_["a"].classes == ("bee", "cat", "dog", "ant")
    assert learner.score((inputs, names), "a") > 0.8
    assert set(learner.predict(inputs, "a")) == set(names)
    learner.save(tmp_path / "a.impress")
    back = il.load(tmp_path / "a.impress", module=mlp(12, 4) if network is own else None)
    assert (back.predict(inputs, "a") == learner.predict(inputs, "a")).all()
    assert back.restore_task("a", 1).logits(inputs, "a").equal(old)
    exported = learner.export("a")
    assert exported(inputs).argmax(1).equal(learner.logits(inputs, "a").argmax(1))


def test_a_removed_task_is_gone_and_its_name_is_free():
    learner = learner_of("a layer").learn_task("a", blobs(1)).learn_task("b", blobs(2))
    learner.learn_basis("basis", blobs(4)).update_task("a", blobs(3))
    inputs, masks = blobs(1)[0], len(learner.bank_)
    kept = learner.logits(inputs, "b")
    before = learner.logits(inputs, "a")
    learner.remove_task("a").remove_task("basis")
    assert list(learner.tasks_) == ["b"]
    assert len(learner.bank_) == masks
    refused("'basis'", learner.learn_basis, "basis", blobs(4))  # its mask is there still
    refused("no task named 'a'", learner.predict, inputs, "a", error=il.UnknownTaskError)
    learner.learn_task("a", blobs(9))
    assert [each.version for each in learner.versions("a")] == [1]
    assert not learner.logits(inputs, "a").equal(before)  # from no cache
    assert learner.logits(inputs, "b").equal(kept)


def test_an_update_without_a_known_class_says_so():
    inputs, labels = blobs(1)
    learner = quick_learner().add_random_masks(4).learn_task("a", (inputs, labels))
    few = labels < 2
    with pytest.warns(UserWarning, match=r"no example of 1 of the 3 classes of 'a' \(2\)"):
        learner.update_task("a", (inputs[few], labels[few]))


def test_tasks_updated_while_all_are_read_are_read_once():
    learner = quick_learner().add_random_masks(3)
    learner.learn_tasks({"a": blobs(1), "b": blobs(2)})
    seen = []
    for task in islice(learner.tasks_.all(), 5):
        seen.append(task.name)
        learner.update_task(task.name, blobs(3))
    assert seen == ["a", "b"]
