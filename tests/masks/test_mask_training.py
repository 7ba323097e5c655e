"""Masks trained on one task, by edge-popup and by pruning, and their accuracy."""

import copy

import pytest

from impresslearn import Recipe, adapt
from impresslearn.data import to_batches
from impresslearn.masks import accuracy, prune, train_mask
from impresslearn.masks.edge_popup import RULES, top_mask
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks.inputs import checked_examples
from impresslearn.networks.prediction import TaskView
from toys import ConvNet, blobs, lenet, pictures, refused, resnet, same

RECIPE = Recipe(optimizer="adam", lr=0.05, epochs=0, min_steps=40, batch_size=32)


@pytest.fixture
def backbone():
    return lenet(2)


@pytest.fixture
def clouds():
    """Two clouds of points, and their names."""
    inputs, targets = blobs(classes=2)
    return inputs, ["left" if target else "right" for target in targets]


def ones_of(mask):
    return tuple(int(each.sum()) for each in mask.values())


@pytest.mark.parametrize("score_rule", RULES)
def test_a_trained_mask_solves_its_task_on_the_frozen_network(backbone, clouds, score_rule):
    frozen = {name: weight.clone() for name, weight in backbone.weights.items()}
    settings = {"sparsity": 0.75, "score_rule": score_rule, "recipe": RECIPE}
    trained = train_mask(backbone, clouds, **settings, seed=1)
    ones = ones_per_layer(backbone.layers, 0.75, "erdos_renyi")
    assert ones_of(trained.mask) == ones
    for count, (name, scores) in zip(ones, trained.scores.items(), strict=True):
        assert (trained.mask[name] == top_mask(scores, count, score_rule)).all()
    assert same(backbone.weights, frozen)
    assert trained.fit.steps == 40
    assert same(train_mask(backbone, clouds, **settings, seed=1).mask, trained.mask)
    assert not same(train_mask(backbone, clouds, **settings, seed=2).mask, trained.mask)
    arrays = {name: ones.numpy() for name, ones in trained.mask.items()}
    scores = {accuracy(backbone, mask, clouds) for mask in (trained, trained.mask, arrays)}
    assert len(scores) == 1
    assert scores.pop() > 0.95
    ones = clouds[0][1::2]  # all of one class: which output is theirs, the data do not show
    for label, right in (("left", True), ("right", False)):
        score = accuracy(backbone, trained, (ones, [label] * len(ones)), classes=["left", "right"])
        assert (score > 0.9) is right


@pytest.mark.parametrize(("sparsity", "rounds"), [(0.75, 4), (0.99, 3), (0.7, 1)])
def test_pruning_keeps_the_ones_asked_for_and_gives_the_weights_back(
    backbone, clouds, sparsity, rounds
):
    frozen = {name: weight.clone() for name, weight in backbone.weights.items()}
    settings = {"sparsity": sparsity, "rounds": rounds, "recipe": RECIPE}
    pruned = prune(backbone, clouds, **settings)
    assert ones_of(pruned.mask) == ones_per_layer(backbone.layers, sparsity, "erdos_renyi")
    assert same(pruned.initial, frozen)
    assert same(backbone.weights, frozen)
    assert not same(pruned.trained, frozen)
    assert same(prune(backbone, clouds, **settings).mask, pruned.mask)
    weights = {name: weight * pruned.mask[name] for name, weight in pruned.trained.items()}
    predicted = backbone.forward(weights, clouds[0]).argmax(1)
    right = [clouds[1][row] == ["left", "right"][guess] for row, guess in enumerate(predicted)]
    assert rounds != 4 or sum(right) > 0.95 * len(right)


def test_pruning_keeps_the_largest_weights(clouds):
    backbone = lenet(2, init="kaiming_normal")
    # Without training the first weights decide.
    nothing = Recipe(epochs=0, min_steps=0)
    mask = prune(backbone, clouds, sparsity=0.8, rounds=1, recipe=nothing).mask
    for name, weight in backbone.weights.items():
        assert weight[mask[name]].abs().min() >= weight[~mask[name]].abs().max()


def test_statistics_of_a_pruned_network_are_from_the_last_round():
    network, data = resnet("per_task"), pictures()
    how = {"sparsity": 0.0, "recipe": Recipe(epochs=0, min_steps=2)}
    once, twice = (prune(network, data, rounds=rounds, **how) for rounds in (1, 2))
    assert same(once.statistics, twice.statistics)


@pytest.mark.parametrize("head", ["shared", "own"])
def test_statistics_and_heads_come_along(head):
    module, data = ConvNet(), pictures()
    backbone = adapt(module, norm="per_task", head=head)
    trained = train_mask(backbone, data, sparsity=0.5, recipe=RECIPE)
    assert bool(trained.head) is (head == "own")
    assert trained.statistics.keys() == backbone.initial_statistics().keys()
    network = {name: weight * trained.mask[name] for name, weight in backbone.weights.items()}
    view = TaskView(network | trained.head, trained.statistics, 3)
    examples = to_batches(checked_examples(backbone, data), (0, 1, 2), backbone.device)
    assert accuracy(backbone, trained, data) == view.accuracy(backbone, examples)
    if head == "own":
        refused("a mask alone has none: give the result", accuracy, backbone, trained.mask, data)
        return
    refused("keep statistics, which only", accuracy, backbone, trained.mask, data)
    ticket = prune(backbone, data, sparsity=0.5, rounds=1, recipe=RECIPE)
    refused("keep statistics", accuracy, backbone, ticket, data)  # its own are of trained weights
    of_batch = adapt(module, norm="batch", head=head)
    score = TaskView(network, None, 3).accuracy(of_batch, examples)
    assert accuracy(of_batch, trained.mask, data) == score


def test_a_mask_of_other_weights_is_used_only_where_that_is_said():
    data, backbone, other = blobs(), lenet(seed=0), lenet(seed=1)
    ticket = prune(backbone, data, sparsity=0.5, rounds=1, recipe=RECIPE)
    for trained in (train_mask(backbone, data, recipe=RECIPE), ticket):
        assert trained.classes == (0, 1, 2)
        refused("trained on other weights", accuracy, other, trained, data)
        assert 0 <= accuracy(other, trained.mask, data) <= 1
        assert accuracy(copy.deepcopy(backbone), trained, data) == accuracy(backbone, trained, data)
