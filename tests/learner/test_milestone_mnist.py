"""The bars of the first milestone on real MNIST, in versions that take seconds.

`impresslearn reproduce` measures them in full.
"""

from dataclasses import replace

import pytest
import torch

import impresslearn as il
from impresslearn.learner.presets import preset
from impresslearn.masks import random_bank
from impresslearn.methods import single_mask_accuracy

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def backbone():
    settings = preset("default").backbone_settings()
    assert settings == {"init": "signed_constant", "gain": 2}
    return il.create_backbone("lenet_300_100", 10, seed=0, **settings)


@pytest.fixture(scope="module")
def permuted(mnist_root):
    return il.streams.permuted_mnist(tasks=4, seed=0, root=mnist_root, download=False)


def learner(backbone, **settings):
    return il.ImpressLearner.from_preset(backbone, "default", progress=False, **settings)


def test_a_dedicated_mask_in_one_epoch(backbone, permuted):
    recipe = replace(preset("default").basis_recipe, epochs=1)
    one = learner(backbone, basis_recipe=recipe).learn_basis("mask", permuted[0].train)
    assert one.score(permuted[0].test, "mask") >= 0.96
    assert single_mask_accuracy(one, "mask", permuted[1].test) <= 0.2


def test_coefficients_of_four_bits_over_random_masks_in_one_epoch(backbone, permuted):
    one = learner(
        backbone,
        bank=random_bank(backbone.layers, 20, seed=0),
        granularity="unit",
        precision="int4",
        task_recipe=replace(preset("default").task_recipe, epochs=1),
    )
    one.learn_task("random", permuted[0].train)
    assert one.score(permuted[0].test, "random") >= 0.95
    assert one.tasks_["random"].bytes == (300 + 100 + 10) * (20 // 2 + 2) + 2 + 32


def test_the_right_task_is_inferred_and_nothing_is_forgotten(mnist_root, backbone):
    stream = il.streams.permuted_mnist(
        tasks=6, seed=0, root=mnist_root, download=False, train_size=5000
    )
    several = learner(
        backbone,
        cache_bytes=0,
        basis_recipe=replace(preset("default").basis_recipe, epochs=0, min_steps=150),
    )
    first = several.learn_basis(stream[0].name, stream[0].train)
    inputs = stream[0].test.inputs[:500]
    before = first.logits(inputs, stream[0].name)
    for task in stream[1:]:
        several.learn_basis(task.name, task.train)
    assert torch.equal(several.logits(inputs, stream[0].name), before)
    for task in stream:
        assert several.infer_task(task.test.inputs[:128]).task == task.name
        assert several.infer_task(task.test.inputs[:8]).best == task.name
    name, test = stream[0].name, stream[0].test
    guess = several.infer_task(test.inputs[:2000], method="alpha")
    mixture = (several.predict_with(test.inputs, guess) == test.labels).mean()
    assert guess.task == name
    assert mixture >= several.score(test, name) - 0.005
