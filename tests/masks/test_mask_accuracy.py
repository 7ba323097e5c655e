"""Masks over the frozen network, scored on a task."""

import copy

import pytest

from impresslearn import Recipe, adapt
from impresslearn.data import to_batches
from impresslearn.masks import accuracy, prune, train_mask
from impresslearn.networks.inputs import checked_examples
from impresslearn.networks.prediction import TaskView
from toys import ConvNet, blobs, lenet, pictures, refused

RECIPE = Recipe(optimizer="adam", lr=0.05, epochs=0, min_steps=40, batch_size=32)


def test_accuracy_takes_masks_and_what_was_trained(backbone, clouds):
    trained = train_mask(backbone, clouds, sparsity=0.75, recipe=RECIPE)
    arrays = {name: ones.numpy() for name, ones in trained.mask.items()}
    scores = {accuracy(backbone, mask, clouds) for mask in (trained, trained.mask, arrays)}
    assert len(scores) == 1
    assert scores.pop() > 0.95
    ones = clouds[0][1::2]  # all of one class: which output is theirs, the data do not show
    for label, right in (("left", True), ("right", False)):
        score = accuracy(backbone, trained, (ones, [label] * len(ones)), classes=["left", "right"])
        assert (score > 0.9) is right


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
    refused("keep statistics, which a mask alone does", accuracy, backbone, trained.mask, data)
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
        refused("made for a network of other weights", accuracy, other, trained, data)
        assert 0 <= accuracy(other, trained.mask, data) <= 1
        assert accuracy(copy.deepcopy(backbone), trained, data) == accuracy(backbone, trained, data)
    some = data[0], data[1] + 5
    refused("label . is not among", accuracy, backbone, ticket, some)
