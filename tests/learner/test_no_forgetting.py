"""Learning a task changes nothing that any other task computes: logits equal bit for bit."""

from functools import partial

import pytest
import torch
from test_own_heads import own_heads

from impresslearn import Recipe, adapt
from impresslearn.errors import InputError
from toys import QUICK, ConvNet, blobs, pictures, quick_learner, resnet

CODED_HEADS = {"backbone": own_heads(), "precision": "coded", "bit_price": 0.1}


def snapshot(learner, inputs):
    """Everything that the tasks learned so far compute with, and what they compute."""
    found = {("logits", name): learner.logits(inputs, name) for name in learner.tasks_}
    for name in learner.bank_.names:
        found |= {("mask", name, key): bits for key, bits in learner.bank_.mask(name).items()}
    for name in learner.tasks_:
        statistics = learner.statistics_of(name) or {}
        found |= {("norm", name, key): value.clone() for key, value in statistics.items()}
    for name, kept in learner.coefficients_.items():
        found |= {("number", name, place): each for place, each in enumerate(kept.tensors())}
    return found


def check(learner, data):
    frozen, inputs = learner.backbone.fingerprint(), data(8)[0]
    learner.learn_basis("a", data(0)).learn_task("b", data(1))
    early = snapshot(learner, inputs)
    assert not torch.equal(early["logits", "a"], early["logits", "b"])
    learner.learn_basis("c", data(2)).learn_task("d", data(3))
    learner.learn_homogeneous("e", data(4), 2).add_random_masks(20)
    learner.learn_task("f", data(5)).learn_basis("g", data(6))
    with pytest.raises(InputError):
        learner.learn_task("h", data(7, 1))
    how = {} if learner.backbone.own_head else {"method": "alpha", "recipe": QUICK}
    learner.infer_task(data(3)[0], **how)
    late = snapshot(learner, inputs)
    learner.learn_task("i", data(9))
    last = snapshot(learner, inputs)
    for before, after in ((early, late), (late, last)):
        for what, tensor in before.items():
            assert torch.equal(tensor, after[what]), what
    assert learner.backbone.fingerprint() == frozen


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cache_bytes": 2**20},
        {"granularity": "unit", "precision": "int4"},
        {"output_scale": True, "precision": "int8"},
        {"granularity": "weight", "precision": "coded", "bit_price": 0.02},
        CODED_HEADS | {"granularity": "unit", "tune": ("norm", "bias")},
    ],
)
def test_lenet_and_a_trained_network(settings):
    check(quick_learner(**{"cache_bytes": 0} | settings), blobs)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("norm", "granularity"),
    [("batch", "unit"), ("per_task", "layer"), ("shared", "unit"), ("group", "layer")],
)
def test_resnet(norm, granularity):
    short = Recipe(epochs=6, batch_size=12)
    how = {"granularity": granularity, "basis_recipe": short, "task_recipe": short}
    learner = quick_learner(resnet(norm), cache_bytes=0, **how)
    # Group norm over maps of one pixel would leave nothing but zeros.
    check(learner, partial(pictures, size=16) if norm == "group" else pictures)


@pytest.mark.parametrize(
    "norm", ["per_task", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("batch", "shared"))]
)
def test_an_adapted_network_with_batch_norm_and_dropout(norm):
    check(quick_learner(adapt(ConvNet(), norm=norm, head="shared"), cache_bytes=0), pictures)
