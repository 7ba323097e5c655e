"""Masks trained on one task, by edge-popup and by pruning."""

import pytest
import torch

from impresslearn import Recipe
from impresslearn.data import to_batches
from impresslearn.masks import prune, train_mask
from impresslearn.masks.edge_popup import RULES, top_mask
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks import create_backbone
from impresslearn.networks.inputs import training_examples
from impresslearn.networks.prediction import TaskView
from toys import same

FEW_STEPS = Recipe(optimizer="adam", lr=0.05, epochs=0, min_steps=40, batch_size=32)
NOTHING = Recipe(epochs=0, min_steps=0)


def accuracy(backbone, weights, data):
    examples, classes = training_examples(backbone, data)
    batches = to_batches(examples, classes, backbone.device)
    return TaskView(weights, None, len(classes)).accuracy(backbone, batches)


def masked(weights, mask):
    return {name: weight * mask[name] for name, weight in weights.items()}


@pytest.mark.parametrize("score_rule", RULES)
def test_a_trained_mask_solves_its_task_on_the_frozen_network(backbone, clouds, score_rule):
    frozen = {name: weight.clone() for name, weight in backbone.weights.items()}
    settings = {"sparsity": 0.75, "score_rule": score_rule, "recipe": FEW_STEPS}
    trained = train_mask(backbone, clouds, **settings, seed=1)
    ones = ones_per_layer(backbone.layers, 0.75, "erdos_renyi")
    assert tuple(int(mask.sum()) for mask in trained.mask.values()) == ones
    for count, (name, scores) in zip(ones, trained.scores.items(), strict=True):
        assert torch.equal(trained.mask[name], top_mask(scores, count, score_rule))
    assert same(backbone.weights, frozen)
    assert accuracy(backbone, masked(frozen, trained.mask), clouds) > 0.95
    assert trained.fit.steps == 40
    assert trained.statistics is None
    assert same(train_mask(backbone, clouds, **settings, seed=1).mask, trained.mask)
    assert not same(train_mask(backbone, clouds, **settings, seed=2).mask, trained.mask)


def test_pruning_keeps_the_ones_asked_for_and_gives_the_weights_back(backbone, clouds):
    frozen = {name: weight.clone() for name, weight in backbone.weights.items()}
    for sparsity, rounds in ((0.75, 4), (0.99, 3), (0.7, 1)):
        settings = {"sparsity": sparsity, "rounds": rounds, "recipe": FEW_STEPS}
        pruned = prune(backbone, clouds, **settings)
        ones = ones_per_layer(backbone.layers, sparsity, "erdos_renyi")
        assert tuple(int(each.sum()) for each in pruned.mask.values()) == ones
        assert same(pruned.initial, frozen)
        assert not same(pruned.trained, frozen)
        assert same(prune(backbone, clouds, **settings).mask, pruned.mask)
    assert same(backbone.weights, frozen)
    assert accuracy(backbone, masked(pruned.trained, pruned.mask), clouds) > 0.95


def test_pruning_keeps_the_largest_trained_weights(clouds):
    kaiming = {"init": "kaiming_normal", "in_features": 10, "widths": [24]}
    backbone = create_backbone("lenet_300_100", 2, **kaiming)
    # Without training the first weights decide.
    mask = prune(backbone, clouds, sparsity=0.8, rounds=1, recipe=NOTHING).mask
    for name, weight in backbone.weights.items():
        assert weight[mask[name]].abs().min() >= weight[~mask[name]].abs().max()
