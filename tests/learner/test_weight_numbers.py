"""Whole numbers for single weights, without masks; and a budget of bytes for each task."""

import pytest
import torch
from sklearn.datasets import load_digits
from test_own_heads import LONGER, data_of, own_heads
from torch import nn

import impresslearn as il
from impresslearn import ImpressLearner, adapt, create_backbone
from impresslearn.coefficients.coding import LARGEST_STEP, SMALLEST_STEP
from toys import blobs, lenet, quick_learner, refused


def learner_of(backbone: object = None, **settings: object) -> ImpressLearner:
    chosen = {"granularity": "weight", "precision": "coded", "bit_price": 0.02} | settings
    return quick_learner(backbone or lenet(), task_recipe=LONGER, **chosen)


def test_a_price_that_rises_leaves_something_to_learn_with() -> None:
    """At its full price from the first step, all numbers are gone before the loss is."""
    images, digits = load_digits(return_X_y=True)
    data = images.astype("float32") / 16, digits
    network = create_backbone("lenet_300_100", 10, in_features=64)
    learner = ImpressLearner.from_preset(network, "per_weight", progress=False)
    learner.learn_task("digits", tuple(each[:500] for each in data))
    assert learner.score(tuple(each[500:] for each in data), "digits") > 0.7


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-6, 1e8])
def test_weights_of_any_size_give_steps_that_a_code_knows(scale: float) -> None:
    module = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        module[0].weight.mul_(scale)
    network = adapt(module, input_shape=(16,), head="shared")
    learner = learner_of(network).learn_task("a", blobs())
    steps = [grid.step for grid in learner.coefficients_["a"].grids or ()]
    # Numbers that are all zero keep no step.
    assert all(not step or SMALLEST_STEP <= step <= LARGEST_STEP for step in steps)
    assert learner.logits(blobs()[0], "a").isfinite().all()


def test_the_price_of_a_trained_network_alone_is_nothing() -> None:
    """What starts at the network itself, and is too dear to change, stays the network itself."""
    learner = learner_of(own_heads(), bit_price=1000.0).learn_task("two", data_of("two"))
    assert not any(each.any() for each in learner.coefficients_["two"].of("multipliers"))


STREAM = il.streams.rotated_digits(tasks=2, seed=0)
QUICK = il.Recipe(lr=0.02, epochs=0, min_steps=150)
WAYS = {
    "weight": ("per_weight", {"bit_price": 0.3, "task_recipe": QUICK}, 0),
    "change": ("per_weight", {"bit_price": 0.3, "task_recipe": QUICK, "start": "network"}, 0),
    "unit": ("default", {"granularity": "unit", "precision": "coded", "task_recipe": QUICK}, 20),
    "readout": ("few_labels", {"bit_price": 0.0003}, 0),
}


def learner_under(way, **settings):
    preset, own, masks = WAYS[way]
    head = "own" if preset == "few_labels" else "shared"
    network = {"in_features": 64, "widths": [40, 20], "head": head}
    backbone = il.create_backbone("lenet_300_100", 10, **network)
    chosen = {"bit_price": 0.1, "progress": False} | own | settings
    learner = il.ImpressLearner.from_preset(backbone, preset, **chosen)
    return learner.add_random_masks(masks) if masks else learner


def learned(way, **settings):
    return learner_under(way, **settings).learn_tasks({task.name: task.train for task in STREAM})


@pytest.mark.parametrize("way", WAYS)
def test_every_task_keeps_to_its_budget_and_uses_most_of_it(way, tmp_path):
    free = learned(way)
    most = min(task.bytes for task in free.tasks_.values()) * 2 // 3
    capped = learned(way, max_bytes=most)
    for task in STREAM:
        assert 0.8 * most <= capped.tasks_[task.name].bytes <= most
        assert capped.score(task.test, task.name) > free.score(task.test, task.name) - 0.15
    capped.save(tmp_path / "s.impress")
    with il.open_store(tmp_path / "s.impress") as store:
        assert store.max_bytes == most
        store.update_task(STREAM.names[0], STREAM[1].train)
        assert store.tasks_[STREAM.names[0]].bytes <= most
    line = "does not fit into max_bytes = 20: .* make a learner with a larger max_bytes"
    poor = learner_under(way, max_bytes=20)
    refused(line, poor.learn_task, "a", STREAM[0].train)
    assert not poor.tasks_
