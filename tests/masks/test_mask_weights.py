"""Weights under a mask: trained again, and scored."""

import copy

import numpy as np
import pytest
import torch

from impresslearn import Recipe, adapt
from impresslearn.errors import InputError
from impresslearn.masks import accuracy, prune, random_bank, train_mask, train_weights
from toys import ConvNet, blobs, lenet, pictures, refused, same

RECIPE = Recipe(optimizer="adam", lr=0.05, epochs=0, min_steps=40, batch_size=32)


def random_mask(backbone):
    return random_bank(backbone.layers, 1, sparsity=0.5, seed=0).mask("random-0")


def test_a_ticket_is_trained_from_its_first_weights_and_nothing_else_moves(backbone, clouds):
    frozen = {name: weight.clone() for name, weight in backbone.weights.items()}
    ticket = prune(backbone, clouds, sparsity=0.8, recipe=RECIPE)
    found = train_weights(backbone, ticket, clouds, recipe=RECIPE)
    for name, weight in found.weights.items():
        assert not weight[~ticket.mask[name]].any()
        assert (weight != frozen[name] * ticket.mask[name]).any()
    assert found.fit.steps == 40
    assert same(backbone.weights, frozen)
    assert accuracy(backbone, found, clouds) > 0.95
    nothing = Recipe(epochs=0, min_steps=0)
    for initial in (None, ticket.trained):
        start = train_weights(backbone, ticket.mask, clouds, initial=initial, recipe=nothing)
        first = frozen if initial is None else initial
        assert same(start.weights, {key: first[key] * ticket.mask[key] for key in first})


def test_accuracy_takes_masks_weights_and_what_was_trained(backbone, clouds):
    found = train_mask(backbone, clouds, sparsity=0.75, recipe=RECIPE)
    masked = {name: weight * found.mask[name] for name, weight in backbone.weights.items()}
    arrays = {name: ones.numpy() for name, ones in found.mask.items()}
    scores = {accuracy(backbone, each, clouds) for each in (found, found.mask, arrays)}
    for mask in (None, found.mask):
        scores.add(accuracy(backbone, mask, clouds, weights=masked))
    assert len(scores) == 1
    assert scores.pop() > 0.95
    ones = clouds[0][1::2]  # all of one class: which output is theirs, the data do not show
    for label, right in (("left", True), ("right", False)):
        told = accuracy(backbone, found, (ones, [label] * len(ones)), classes=["left", "right"])
        assert (told > 0.9) is right


@pytest.mark.parametrize("head", ["shared", "own"])
def test_statistics_and_heads_come_along(head):
    module, data = ConvNet(), pictures()
    backbone = adapt(module, norm="per_task", head=head)
    found = train_mask(backbone, data, sparsity=0.5, recipe=RECIPE)
    again = train_weights(backbone, found, data, recipe=RECIPE)
    assert accuracy(backbone, again, data) >= accuracy(backbone, found, data)
    for each in (found, again):
        assert bool(each.head) is (head == "own")
        assert each.statistics.keys() == backbone.initial_statistics().keys()
    if head == "own":
        with pytest.raises(InputError, match="a mask alone has none: give what train_mask"):
            accuracy(backbone, found.mask, data)
    else:
        with pytest.raises(InputError, match="keep statistics, which a mask alone does not have"):
            accuracy(backbone, found.mask, data)
        own, told = accuracy(backbone, found, data), found.statistics
        assert accuracy(backbone, found.mask, data, statistics=told) == own
        short = {name: value.reshape(-1)[:1] for name, value in told.items()}
        with pytest.raises(InputError, match="the statistic .* must be a tensor of shape"):
            accuracy(backbone, found.mask, data, statistics=short)
        measured = accuracy(backbone, found.mask, data, statistics=data)
        of_batch = adapt(module, norm="batch", head=head)
        assert measured == accuracy(of_batch, found.mask, data)
        ticket = prune(backbone, data, sparsity=0.5, rounds=1, recipe=RECIPE)
        with pytest.raises(InputError, match="keep statistics"):  # its own are of trained weights
            accuracy(backbone, ticket, data)
        of_mask = accuracy(backbone, ticket, data, statistics=data)
        assert of_mask == accuracy(of_batch, ticket, data)
        kept = accuracy(backbone, ticket, data, weights=ticket.trained)
        told = {"weights": ticket.trained, "statistics": ticket.statistics}
        assert kept == accuracy(backbone, ticket.mask, data, **told)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a mask maps layer names to tensors of booleans, got none"),
        (None, "give a mask, or weights=, or a mask to put over weights="),
        ({"0.weight": torch.ones(2, 2) > 0}, "must cover exactly the maskable layers"),
        ("mask", "a mask maps layer names to tensors of booleans, got str"),
        ({"0.weight": torch.ones(2, 2)}, "to tensors of booleans; 0.weight is torch.float32"),
    ],
)
def test_what_belongs_to_another_network_is_refused(backbone, clouds, given, message):
    with pytest.raises(InputError, match=message):
        accuracy(backbone, given, clouds)


def test_a_mask_of_other_weights_is_used_only_where_that_is_said():
    data = blobs()
    backbone, other = lenet(seed=0), lenet(seed=1)
    ticket = prune(backbone, data, sparsity=0.5, rounds=1, recipe=RECIPE)
    for found in (train_mask(backbone, data, recipe=RECIPE), ticket):
        for function in (accuracy, train_weights):
            refused("made for a network of other weights", function, other, found, data)
        assert 0 <= accuracy(other, found.mask, data) <= 1
        assert accuracy(copy.deepcopy(backbone), found, data) == accuracy(backbone, found, data)
    again = train_weights(other, ticket.mask, data, recipe=RECIPE)  # a ticket drawn anew
    assert accuracy(other, again, data) > 0.8


def test_the_dense_network_and_late_rewinding():
    data, backbone = blobs(), lenet()
    dense = train_weights(backbone, None, data, recipe=RECIPE)
    assert all((weight != 0).all() for weight in dense.weights.values())
    mask = prune(backbone, data, sparsity=0.5, rounds=1, recipe=RECIPE)
    late, same = (
        train_weights(backbone, mask, data, initial=initial, recipe=RECIPE)
        for initial in (dense, dense.weights)
    )
    for name, weight in late.weights.items():
        assert torch.equal(weight, same.weights[name])


def test_data_that_lack_a_class_are_scored_by_the_outputs_of_the_others():
    data = blobs()
    backbone = lenet()
    found = train_mask(backbone, data, recipe=RECIPE)
    again = train_weights(backbone, found, data, recipe=RECIPE)
    some = torch.from_numpy(np.flatnonzero(np.asarray(data[1]) != 0))
    few = data[0][some], np.asarray(data[1])[some]
    for trained in (found, again, prune(backbone, data, rounds=1, recipe=RECIPE)):
        assert trained.classes == (0, 1, 2)
        own = accuracy(backbone, trained, data, classes=[0, 1, 2])
        assert accuracy(backbone, trained, data) == own
        assert accuracy(backbone, trained, few) == accuracy(backbone, trained, few, [0, 1, 2])
    other = data[0], np.asarray(data[1]) + 5
    refused("label . was never seen", accuracy, backbone, found, other)
