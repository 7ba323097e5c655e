"""Many tasks or masks in one loop: the same bits as one by one; stacked, up to rounding."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from impresslearn.coefficients import quantized_parameters
from impresslearn.data import Examples
from impresslearn.errors import TrainingError
from impresslearn.learner import ImpressLearner, trainer
from impresslearn.masks import random_bank
from impresslearn.networks import adapt
from impresslearn.training import batched as loop
from impresslearn.training.loop import Recipe
from toys import blobs, lenet, pictures, refused, resnet, same

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
    sizes, run = [], loop._fit_together

    def recorded(problems, progress):
        sizes.append(len(problems))
        return run(problems, progress)

    monkeypatch.setattr(loop, "_fit_together", recorded)
    return sizes


@pytest.fixture(params=[False, True], ids=["one by one", "stacked"])
def is_stacked(request, monkeypatch):
    """Both ways: a processor's, and a GPU's."""
    for module in (loop, trainer):
        monkeypatch.setattr(module, "stacks", lambda device: request.param)
    return request.param


def equal(one, other, is_stacked=False):
    """Whether two learners have learned the same coefficients; stacked up to rounding."""
    assert set(one.tasks_) == set(other.tasks_)
    for name, ours in one.coefficients_.items():
        metrics, expected = (way.tasks_[name].history["metrics"] for way in (one, other))
        assert metrics.keys() == expected.keys()
        if "loss" in metrics:  # of a step or more
            rel = 1e-3 if is_stacked else 0
            assert metrics["loss"] == pytest.approx(expected["loss"], rel=rel)
        for pair in zip(ours.tensors(), other.coefficients_[name].tensors(), strict=True):
            torch.testing.assert_close(*pair, rtol=0, atol=1e-5 if is_stacked else 0)


def both_ways(tasks, make=learner):
    """The tasks learned side by side and in turn."""
    return [make().learn_tasks(tasks, batched=batched) for batched in (True, False)]


@pytest.mark.parametrize("count", [16, 17, 33])
def test_every_number_of_examples(count, runs, is_stacked):
    beside, in_turn = both_ways({f"t{i}": data(i, count) for i in range(3)})
    equal(beside, in_turn, is_stacked)
    for each, batched in ((beside, True), (in_turn, False)):
        each.learn_homogeneous("a", data(0, count), 3, batched=batched)
    assert runs == [3, 3]
    masks = [(beside.bank_.mask(name), in_turn.bank_.mask(name)) for name in ("a", "a/1", "a/2")]
    other = sum((one[layer] != two[layer]).sum() for one, two in masks for layer in one)
    # Rounding brings scores over the threshold; one step fewer: 18.
    assert other <= (6 if is_stacked else 0)


FEW = replace(RECIPE, epochs=0, min_steps=3)
WAYS = {
    "unit": {"granularity": "unit"},
    "output scale": {"output_scale": True},
    "penalty": {"penalty": 0.1},
    "coded": {"precision": "coded", "bit_price": 0.1},
    "budget": {"precision": "coded", "granularity": "unit", "max_bytes": 120},
    "smoothing": {"task_recipe": replace(RECIPE, label_smoothing=0.2)},
    "part of a batch": {"task_recipe": replace(RECIPE, min_steps=20, batch_fraction=0.5)},
    "adamw": {"task_recipe": replace(RECIPE, optimizer="adamw", warmup_epochs=1)},
    "batch norm": {"backbone": resnet("batch"), "task_recipe": FEW},
    "group norm": {"backbone": resnet("group"), "task_recipe": FEW},
    "double": {"backbone": adapt(lenet().module.double()), "task_recipe": FEW},
    "own heads": {"backbone": lenet(head="own"), "task_recipe": FEW},
}


@pytest.mark.parametrize("way", WAYS)
def test_settings_and_networks(way, runs, is_stacked):
    examples = pictures if way.endswith("norm") else blobs
    tasks = {f"t{i}": examples(i, count=17) for i in range(2)}
    equal(*both_ways(tasks, lambda: learner(**WAYS[way])), is_stacked)
    assert runs == [2]


def test_a_processor_steps_and_rounds_once_for_tasks_side_by_side(monkeypatch):
    done, counts, forward = list[str](), [], quantized_parameters._Step.forward
    counting = staticmethod(lambda *of: done.append("rounding") or forward(*of))
    monkeypatch.setattr(quantized_parameters._Step, "forward", counting)
    hook = register_optimizer_step_post_hook(lambda *_: done.append("step"))
    for number in (1, 4):
        tasks = {f"t{i}": data(i) for i in range(number)}
        learner(**WAYS["coded"]).learn_tasks(tasks, batched=True)
        counts.append({what: done.count(what) for what in ("step", "rounding")})
        done.clear()
    hook.remove()
    assert counts[1]["step"] == counts[0]["step"] > 0
    assert 0 < counts[1]["rounding"] <= counts[0]["rounding"] + 3  # to see how many fit


def test_tasks_of_other_sizes_shapes_and_formats_are_groups_of_their_own(runs, is_stacked):
    tasks = {f"t{i}": data(i) for i in range(2)} | {"other size": data(9, 33)}
    tasks |= {f"square{i}": (x.reshape(-1, 4, 4), y) for i, (x, y) in enumerate(tasks.values())}
    tasks |= {"half": (data(0)[0].half(), data(0)[1])}
    beside, in_turn = both_ways(tasks)
    equal(beside, in_turn, is_stacked)
    assert runs == ([2, 2] if is_stacked else [7])
    assert list(in_turn.tasks_) == list(tasks)


def test_what_cannot_be_stacked_is_learned_one_by_one(is_stacked):
    dropping = adapt(nn.Sequential(nn.Linear(16, 8), nn.Dropout(), nn.Linear(8, 3)))
    few = {"task_recipe": FEW}
    for backbone, examples in ((resnet("per_task"), pictures), (dropping, blobs)):
        tasks = {f"t{i}": examples(i, count=17) for i in range(2)}
        equal(*both_ways(tasks, lambda backbone=backbone: learner(backbone, **few)))


def with_norms():
    torch.manual_seed(0)
    parts = nn.Linear(16, 13), nn.BatchNorm1d(13), nn.ReLU(), nn.Dropout(0.3), nn.Linear(13, 3)
    return adapt(nn.Sequential(*parts), norm="shared", head="shared")


def drawing(inputs, generator):
    """An augmentation that draws from the global generator."""
    return inputs + 0.1 * torch.randn(inputs.shape)


CODED = {"precision": "coded", "bit_price": 0.1}
FOLDED = CODED | {"start": "network", "tune": ("norm",), "fold_after": 0.3}
FAST = CODED | {"granularity": "unit", "output_scale": True, "bit_price": 1.0}
FAST["task_recipe"] = Recipe(lr=0.5, momentum=0.5, epochs=0, min_steps=120, batch_size=1)
# Settings whose tasks once differed side by side: network, settings, augmentation.
ODD = {
    "shared statistics": (with_norms, {}, None),
    "folded": (with_norms, FOLDED, None),
    "no step": (lenet, {"task_recipe": Recipe(epochs=0)}, None),
    "augmented": (lenet, {}, drawing),
    "by NumPy": (lenet, {}, lambda x, _: x * torch.from_numpy(np.random.rand(16)).float()),
    "fast": (lenet, FAST, None),
}


@pytest.mark.parametrize("way", ODD)
def test_the_same_bits_in_odd_settings(way):
    network, settings, augment = ODD[way]
    tasks = {f"t{i}": Examples(*data(i), augment=augment) for i in range(3)}
    equal(*both_ways(tasks, lambda: learner(network(), **settings)))


def test_the_first_mask_gathers_statistics_for_masks_side_by_side():
    one, other = (learner(with_norms()) for _ in range(2))
    one.learn_homogeneous("a", data(0), 3, batched=True)
    other.learn_homogeneous("a", data(0), 3)
    for name in ("a", "a/1", "a/2"):
        assert same(one.bank_.mask(name), other.bank_.mask(name))


def unreadable(inputs, generator):
    raise KeyError("no such file")


FAULTS = {
    "error": (Examples(*data(2), augment=unreadable), KeyError, "no such file"),
    "divergence": ((data(2)[0].sign() * 3e38, data(2)[1]), TrainingError, "lower the learning"),
}


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_tasks_before_one_that_fails_are_kept_and_bad_data_change_nothing(fault, batched):
    bad, error, line = FAULTS[fault]
    many, tasks = learner(), {f"t{i}": data(i) for i in range(4)} | {"t2": bad}
    refused(line, many.learn_tasks, tasks, batched=batched, error=error)
    wrong = {"new": data(0), "bad": (torch.zeros(4, 16), [1, 1, 1, 1])}
    refused("two classes", many.learn_tasks, wrong)
    assert list(many.tasks_) == ["t0", "t1"]


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("granularity", ["layer", "unit", "weight"])
def test_nothing_of_a_training_stays_in_memory(granularity, batched):
    def tensors():
        gc.collect()
        return sum(isinstance(value, torch.Tensor) for value in gc.get_objects())

    many, counts = learner(granularity=granularity, precision="coded", cache_bytes=0), []
    gc.freeze()  # objects from before are neither collected nor counted, which takes seconds
    for _ in range(3):
        many.learn_tasks({"a": data(0), "b": data(1)}, batched=batched)
        many.remove_task("a").remove_task("b")
        counts.append(tensors())
    gc.unfreeze()
    assert counts[1] == counts[2]


def test_a_failing_task_leaves_the_prices_of_others():
    tight = {"precision": "coded", "granularity": "unit", "max_bytes": 60}
    tight["task_recipe"] = replace(RECIPE, min_steps=40)
    kept = []
    for batched in (True, False):
        steps = iter(range(30))

        def fail_late(inputs, generator, steps=steps):
            return inputs + 0 * next(steps)

        tasks = {f"t{i}": data(i) for i in range(2)} | {"t2": Examples(*data(2), augment=fail_late)}
        kept.append(learner(**tight))
        with pytest.raises(Exception, match="StopIteration|iterator"):
            kept[-1].learn_tasks(tasks, batched=batched)
    equal(*kept)


def test_what_autograd_keeps_bounds_how_many_run_at_once(runs, monkeypatch):
    # Of a batch autograd keeps far more than its weights and inputs take.
    monkeypatch.setattr(loop, "MEMORY", 2**25)
    tasks = {f"t{i}": pictures(i, count=64, size=32) for i in range(6)}
    few = {"task_recipe": Recipe(epochs=0, min_steps=1, batch_size=64)}
    equal(*both_ways(tasks, lambda: learner(resnet("group"), **few)))
    assert max(runs, default=1) < 6
