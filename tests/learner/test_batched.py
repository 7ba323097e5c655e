"""Many tasks or masks in one loop: the same as one by one, up to rounding."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from impresslearn.data import Examples
from impresslearn.errors import InputError, TrainingError
from impresslearn.learner import ImpressLearner
from impresslearn.masks import random_bank
from impresslearn.networks import adapt
from impresslearn.training import batched as loop
from impresslearn.training.loop import Recipe
from toys import blobs, lenet, pictures, resnet

RECIPE = Recipe(lr=0.02, epochs=2, min_steps=6, batch_size=16)


def data(seed, count=40):
    inputs, labels = blobs()
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:count]
    return inputs[order], labels[order]


def learner(backbone=None, **settings):
    backbone = lenet() if backbone is None else backbone
    bank = random_bank(backbone.layers, 5, 0.5)
    chosen = {"task_recipe": RECIPE, "basis_recipe": RECIPE, "progress": False} | settings
    return ImpressLearner(backbone, bank=bank, **chosen)


@pytest.fixture
def runs(monkeypatch):
    """How many problems each batched run held."""
    sizes, run = [], loop._run

    monkeypatch.setattr(loop, "_run", lambda *given: [sizes.append(len(given[0])), run(*given)])
    return sizes


def equal(one, other, tolerance=1e-5):
    """Whether two learners have learned the same coefficients, up to rounding."""
    assert set(one.tasks_) == set(other.tasks_)
    for name, ours in one.coefficients_.items():
        for pair in zip(ours.tensors(), other.coefficients_[name].tensors(), strict=True):
            torch.testing.assert_close(*pair, rtol=0, atol=tolerance)


def both_ways(tasks, make=learner, **settings):
    """The tasks learned side by side and in turn."""
    return tuple(make(**settings).learn_tasks(tasks, batched=batched) for batched in (True, False))


@pytest.mark.parametrize("count", [16, 17, 33])
def test_every_number_of_examples(count, runs):
    beside, in_turn = both_ways({f"t{i}": data(i, count) for i in range(3)})
    equal(beside, in_turn)
    for each, batched in ((beside, True), (in_turn, False)):
        each.learn_homogeneous("a", data(0, count), 3, batched=batched)
    assert runs == [3, 3]
    masks = [(beside.bank_.mask(name), in_turn.bank_.mask(name)) for name in ("a", "a/1", "a/2")]
    other = sum((one[layer] != two[layer]).sum() for one, two in masks for layer in one)
    assert other <= 6  # scores that rounding brings over the threshold; one step fewer: 18


@pytest.mark.parametrize(
    "settings",
    [
        {"granularity": "unit"},
        {"output_scale": True, "input_scale": True},
        {"penalty": 0.1},
        {"precision": "coded", "bit_price": 0.1},
        {"task_recipe": replace(RECIPE, label_smoothing=0.2)},
        {"task_recipe": replace(RECIPE, min_steps=20, batch_fraction=0.5)},
        {"task_recipe": replace(RECIPE, optimizer="adamw", weight_decay=0.1, warmup_epochs=1)},
    ],
    ids=str,
)
def test_settings(settings, runs):
    equal(*both_ways({f"t{i}": data(i, 33) for i in range(4)}, **settings))
    assert runs == [4]


def test_tasks_of_other_sizes_shapes_and_formats_are_groups_of_their_own(runs):
    tasks = {f"t{i}": data(i) for i in range(2)} | {"other size": data(9, 33)}
    tasks |= {f"square{i}": (x.reshape(-1, 4, 4), y) for i, (x, y) in enumerate(tasks.values())}
    tasks |= {"half": (data(0)[0].half(), data(0)[1])}
    beside, in_turn = both_ways(tasks)
    equal(beside, in_turn)
    assert runs == [2, 2]
    assert list(in_turn.tasks_) == list(tasks)


@pytest.mark.parametrize("given", [True, False])
def test_augmentation_side_by_side_if_it_draws_from_the_generator_given(given, runs):
    def noisy(batch, generator):
        return batch + torch.randn(batch.shape, generator=generator if given else None)

    equal(*both_ways({f"t{i}": Examples(*data(i, 33), augment=noisy) for i in range(3)}))
    assert runs == [3] * given


@pytest.mark.parametrize(
    ("make", "examples"),
    [
        (lambda: resnet("batch"), pictures),
        (lambda: resnet("group"), pictures),
        (lambda: adapt(lenet().module.double()), blobs),
    ],
    ids=["batch", "group", "double"],
)
def test_other_networks(make, examples, runs):
    tasks = {f"t{i}": examples(i, count=17) for i in range(2)}
    few = Recipe(lr=0.02, epochs=0, min_steps=3, batch_size=16)
    equal(*both_ways(tasks, lambda: learner(make(), task_recipe=few)))
    assert runs == [2]


class Odd(nn.Module):
    """Two layers and something between them; `state` is deep-copied with the module."""

    def __init__(self, between, state=None):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 12), nn.Linear(12, 3)
        self.between, self.state = between, state

    def forward(self, inputs):
        hidden = self.first(inputs)
        return self.last(self.between(self, hidden).relu())


class Unbatchable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden):
        return hidden * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def count(module, hidden):
    module.state["passes"] += 1
    return hidden * (1 + module.state["passes"] / 100)


ODD = {  # what lies between the layers, and its state
    "dropout": (lambda module, hidden: F.dropout(hidden, 0.5, module.training), None),
    "noisy relu": (lambda module, hidden: F.rrelu(hidden, training=module.training), None),
    "torch's generator": (lambda module, hidden: hidden * (0.5 - torch.rand(())).sign(), None),
    "Python's generator": (lambda module, hidden: hidden * (random.random() + 0.5), None),
    "NumPy's generator": (lambda module, hidden: hidden * (np.random.random() + 0.5), None),
    "a generator": (
        lambda module, hidden: hidden * (module.state.random() + 0.5), np.random.default_rng(0)
    ),
    "a counter": (count, {"passes": 0}),
    "a decision": (lambda module, hidden: hidden if hidden.mean() > 0 else -hidden, None),
    "out of torch": (lambda module, hidden: hidden * float(hidden.detach().numpy().std()), None),
    "no batching rule": (lambda module, hidden: Unbatchable.apply(hidden), None),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_networks_that_a_batched_pass_would_change_learn_in_turn(odd, runs):
    tasks = {f"t{i}": data(i) for i in range(3)}
    found = []
    for batched in (True, False):
        random.seed(0)
        np.random.seed(0)
        found.append(learner(adapt(Odd(*ODD[odd]))).learn_tasks(tasks, batched=batched))
    equal(*found, tolerance=0)
    assert runs == []


@pytest.mark.parametrize(("norm", "batched"), [("shared", [3, 3]), ("per_task", [])])
def test_norm_statistics_are_gathered_in_turn_and_used_side_by_side(norm, batched, runs):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    module(blobs()[0])
    tasks = {f"t{i}": data(i) for i in range(3)}
    beside, in_turn = both_ways(tasks, lambda: learner(adapt(module, norm=norm)))
    for each, side_by_side in ((beside, True), (in_turn, False)):
        each.learn_homogeneous("a", data(0), 3, batched=side_by_side)
    equal(beside, in_turn)
    assert runs == batched
    torch.testing.assert_close(beside.statistics_of("a"), in_turn.statistics_of("a"))


def test_memory_bounds_how_many_run_at_once(runs, monkeypatch):
    tasks = {f"t{i}": data(i) for i in range(7)}
    measured, estimate, run = [], loop._bytes_of, loop._run
    with monkeypatch.context() as patched:
        patched.setattr(
            loop, "_bytes_of", lambda *rest: measured.append(estimate(*rest)) or measured[-1]
        )
        whole = learner().learn_tasks(tasks, batched=True)
    numbers = sum(weight.numel() for weight in whole.backbone.weights.values())
    assert 4 * numbers < measured[0] < 40 * numbers + 8 * data(0)[0].nbytes
    with monkeypatch.context() as patched:
        patched.setattr(loop, "MEMORY", 3 * measured[0])
        equal(learner().learn_tasks(tasks, batched=True), whole)
    assert runs == [7, 3, 3]  # and one alone

    def small(problems, progress):
        if len(problems) > 2:
            raise torch.OutOfMemoryError
        run(problems, progress)

    monkeypatch.setattr(loop, "_run", small)
    equal(learner().learn_tasks(tasks, batched=True), whole)
    assert runs == [7, 3, 3]


def test_tasks_before_one_that_diverges_are_kept_and_bad_data_change_nothing():
    tasks = {f"t{i}": data(i) for i in range(4)}
    tasks["t2"] = (tasks["t2"][0].sign() * 3e38, tasks["t2"][1])
    for batched in (True, False):
        many = learner()
        with pytest.raises(TrainingError, match="lower the learning rate"):
            many.learn_tasks(tasks, batched=batched)
        assert list(many.tasks_) == ["t0", "t1"]
        with pytest.raises(InputError, match="two classes"):
            many.learn_tasks({"new": data(0), "bad": (torch.zeros(4, 16), [1, 1, 1, 1])})
        assert list(many.tasks_) == ["t0", "t1"]
