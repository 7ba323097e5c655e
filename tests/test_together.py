"""Many tasks or masks in one loop: the same as one by one, up to rounding."""

import pytest
import torch
from torch import nn

from impresslearn.backbones import adapt
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.sources import random_bank
from impresslearn.training import Recipe
from toys import blobs, lenet

RECIPE = Recipe(lr=0.02, epochs=2, min_steps=12, batch_size=16)


def data(seed, count=40):
    inputs, labels = blobs()
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:count]
    return inputs[order], labels[order]


def learner(**settings):
    backbone = lenet()
    bank = random_bank(backbone.layers, 5, 0.5)
    chosen = {"task_recipe": RECIPE, "basis_recipe": RECIPE, "progress": False} | settings
    return ImpressLearner(backbone, bank=bank, **chosen)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"granularity": "unit"},
        {"output_scale": True, "input_scale": True},
        {"penalty": 0.1},
    ],
)
def test_batched_tasks_equal_tasks_in_turn(settings):
    tasks = {f"t{i}": data(i) for i in range(4)} | {"other size": data(9, 33)}
    in_turn = learner(**settings).learn_tasks(tasks, batched=False)
    together = learner(**settings).learn_tasks(tasks, batched=True)
    assert set(together.tasks_) == set(in_turn.tasks_) == set(tasks)
    for name in tasks:
        ours = together.coefficients_[name].tensors()
        theirs = in_turn.coefficients_[name].tensors()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_in_turn_equals_learn_task_bit_for_bit():
    tasks = {f"t{i}": data(i) for i in range(3)}
    many, one = learner().learn_tasks(tasks), learner()
    for name, examples in tasks.items():
        one.learn_task(name, examples)
    for name in tasks:
        pairs = zip(many.coefficients_[name].alpha, one.coefficients_[name].alpha, strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_batched_masks_equal_masks_in_turn():
    inputs = data(0)
    in_turn = learner().learn_homogeneous("a", inputs, 3, batched=False)
    together = learner().learn_homogeneous("a", inputs, 3, batched=True)
    for name in ("a", "a/1", "a/2"):
        ours, theirs = together.bank_.mask(name), in_turn.bank_.mask(name)
        for layer, mask in ours.items():
            assert mask.sum() == theirs[layer].sum()
            assert (mask != theirs[layer]).float().mean() < 0.02  # ties of rounding at most


def test_a_bad_task_among_many_changes_nothing():
    many = learner()
    with pytest.raises(InputError, match="two classes"):
        many.learn_tasks({"good": data(0), "bad": (torch.zeros(4, 16), [1, 1, 1, 1])})
    assert len(many.tasks_) == 0


def test_networks_with_dropout_learn_in_turn():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(), nn.Linear(8, 3))
    backbone = adapt(module)
    bank = random_bank(backbone.layers, 3, 0.5)
    settings = {"bank": bank, "task_recipe": RECIPE, "progress": False}
    tasks = {f"t{i}": data(i) for i in range(2)}
    together = ImpressLearner(backbone, **settings).learn_tasks(tasks, batched=True)
    in_turn = ImpressLearner(backbone, **settings).learn_tasks(tasks, batched=False)
    for name in tasks:
        pairs = zip(
            together.coefficients_[name].alpha, in_turn.coefficients_[name].alpha, strict=True
        )
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
