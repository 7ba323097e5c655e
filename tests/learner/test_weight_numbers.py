"""Granularity "weight": a whole number for each weight, without masks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from test_own_heads import CLASSES, LONGER, data_of, own_heads, trained
from torch import nn

from impresslearn import ImpressLearner, adapt, create_backbone, load, open_store
from impresslearn.coefficients.coding import LARGEST_STEP, SMALLEST_STEP
from impresslearn.errors import InputError
from toys import blobs, lenet, quick_learner

INPUTS = blobs()[0]


def learner_of(backbone: object = None, **settings: object) -> ImpressLearner:
    chosen = {"granularity": "weight", "precision": "coded", "bit_price": 0.02} | settings
    return quick_learner(backbone or lenet(), task_recipe=LONGER, **chosen)


def test_tasks_are_learned_without_masks_and_nothing_is_forgotten(tmp_path: Path) -> None:
    learner, before = learner_of(), {}
    for seed, name in enumerate("abc"):
        learner.learn_task(name, blobs(seed))
        assert learner.score(blobs(seed), name) > 0.9
        before[name] = learner.logits(INPUTS, name)
    learner.learn_basis("basis", blobs(7))
    for name, logits in before.items():
        assert torch.equal(learner.logits(INPUTS, name), logits)
        assert torch.equal(learner.export(name)(INPUTS), logits)
        numbers = learner.coefficients_[name]
        assert (numbers.num_masks, numbers.alpha) == (0, ())
        assert all(bool((each >= 0).all()) for each in numbers.of("multipliers") or ())
    path = tmp_path / "a.impress"
    learner.save(path)
    with open_store(path, progress=False) as bound:
        bound.learn_task("d", blobs(4))
        for each in (load(path, progress=False), bound):
            for name, logits in before.items():
                assert torch.equal(each.logits(INPUTS, name), logits)
    assert load(path, progress=False).tasks_["d"].num_masks == 0


@pytest.mark.parametrize("method", ["exhaustive", "one_shot", "alpha"])
def test_their_task_is_found_beside_those_with_masks(method: str) -> None:
    learner = learner_of().learn_basis("basis", blobs(7))
    for seed, name in enumerate("abc"):
        learner.learn_task(name, blobs(seed))
    assert learner.infer_task(blobs(1)[0][:64], method=method).best in learner.tasks_
    assert learner.infer_task(blobs(1)[0], method="exhaustive").best == "b"


def test_a_higher_price_makes_it_smaller() -> None:
    sizes = []
    for price in (0.01, 1.0, 100.0):
        learner = learner_of(bit_price=price).learn_task("a", blobs())
        sizes.append(learner.tasks_["a"].bytes)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    assert sizes[-1] < 100


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
    assert learner.logits(INPUTS, "a").isfinite().all()


def test_over_a_trained_network_with_heads_and_norms(tmp_path: Path) -> None:
    learner = learner_of(own_heads(), tune=("norm", "bias"), bit_price=0.001)
    shown, before = data_of("two")[0], {}
    for name in CLASSES:
        learner.learn_task(name, data_of(name))
        assert learner.score(data_of(name), name) > 0.9
        before[name] = learner.logits(shown, name)
    signs = [
        torch.unique(each.sign()) for each in learner.coefficients_["five"].of("multipliers") or ()
    ]
    assert {-1.0, 1.0} <= {float(sign) for each in signs for sign in each}
    learner.save(tmp_path / "a.impress")
    copy = load(tmp_path / "a.impress", module=trained(), progress=False)
    for name, logits in before.items():
        assert torch.equal(learner.logits(shown, name), logits)
        assert torch.equal(copy.logits(shown, name), logits)


def test_the_price_of_a_trained_network_alone_is_nothing() -> None:
    """What starts at the network itself, and is too dear to change, stays the network itself."""
    learner = learner_of(own_heads(), bit_price=1000.0).learn_task("two", data_of("two"))
    assert not any(
        bool(each.any()) for each in learner.coefficients_["two"].of("multipliers") or ()
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match='set precision="coded"'):
        ImpressLearner(lenet(), granularity="weight")
    with pytest.raises(InputError, match="need no scales"):
        learner_of(output_scale=True)
    with pytest.raises(InputError, match="penalty is the penalty of a mixture"):
        learner_of(penalty=0.1)
