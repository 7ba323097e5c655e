"""What is kept of a task's own inputs tells noise and inverted ones, and rejects few of its own."""

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.inference.unknown import TaskProfile, distances, exceeded_by, task_profile
from impresslearn.networks.prediction import TaskView
from toys import inferred

WIDE = 40
STREAM = il.streams.permuted_digits(tasks=5, seed=0)


@pytest.fixture(scope="module")
def digits():
    backbone = il.create_backbone("lenet_300_100", 10, in_features=64, widths=(40, 20))
    learner = il.ImpressLearner(backbone, granularity="unit", progress=False).add_random_masks(12)
    for task in STREAM[:4]:
        learner.learn_task(task.name, task.train)
    return learner


def profile_of(inputs):
    backbone = il.create_backbone("linear", 3, in_features=inputs.shape[1])
    view = TaskView(dict(backbone.weights), None, 3)
    return task_profile(backbone, view, inputs, view.outputs(backbone, inputs))


def excess(profile, inputs):
    return float(exceeded_by(profile.limits, distances([profile], inputs)[0]))


def batches(inputs, size):
    return [part for part in inputs.split(size) if len(part) == size]


@pytest.mark.parametrize("size", [8, 32])
def test_noise_and_inverted_digits_are_unknown_and_own_digits_are_not(digits, size):
    generator = torch.Generator().manual_seed(0)
    rejected = []
    for task in STREAM[:4]:
        own = task.test.inputs
        low, high = own.min(), own.max()
        noise = torch.rand(64, *own.shape[1:], generator=generator) * (high - low) + low
        for foreign in (low + high - own, noise, torch.randn(64, *own.shape[1:])):
            assert all(digits.infer_task(each).unknown for each in batches(foreign, size)[:4])
        guesses = [digits.infer_task(each) for each in batches(own, size)]
        rejected += [guess.unknown for guess in guesses if guess.best == task.name]
    assert len(rejected) > 16
    assert np.mean(rejected) < 0.2


def test_a_threshold_rejects_a_twentieth_of_what_it_was_made_of():
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(4000, WIDE, generator=generator) * torch.linspace(0.01, 2, WIDE)
    profile = profile_of(own)
    assert set(profile.groups) == set(range(4))  # the quietest
    for size in (1, 8):
        rejected = [excess(profile, each) > 0 for each in batches(own[1000:], size)]
        assert 0.01 < np.mean(rejected) < 0.12
    assert excess(profile, own[1000:1008] + 1) > 0
    content = profile.encode()
    assert len(content) == 21
    assert TaskProfile.decode(content, few_features=False) == profile


@pytest.mark.parametrize("rows", [60, 120])
def test_tables_are_told_by_the_values_of_their_columns(rows):
    """Sites whose sensors are set differently, though one site's rule suits the others too."""
    generator = np.random.default_rng(0)
    backbone = il.create_backbone("linear", head="own", in_features=12)
    learner = il.ImpressLearner.from_preset(backbone, "few_labels", progress=False)
    tests = {}
    for number in range(30):
        offset, rule = generator.normal(0, 0.5, 12), generator.normal(size=(12, 3))
        inputs = generator.normal(size=(rows + 200, 12)).astype(np.float32)
        labels = (inputs @ rule).argmax(1)
        inputs += offset.astype(np.float32)
        learner.learn_task(f"site {number}", (inputs[:rows], labels[:rows]))
        tests[f"site {number}"] = inputs[rows:]
    for count, least in ((10, 0.7), (50, 0.9)):
        right, rejected = inferred(learner, tests, count, trials=2)
        assert right > least
        assert rejected < 0.15
    foreign = generator.normal(size=(50, 12)).astype(np.float32) * 3
    assert learner.infer_task(foreign).unknown


def test_too_few_inputs_and_too_large_ones_have_no_statistics():
    own = torch.randn(40, WIDE, generator=torch.Generator().manual_seed(0))
    for each in (own[:3], own[:1], 1e6 * own):
        assert not profile_of(each).means
        assert len(profile_of(each).encode()) == 2
    ones = torch.ones(40, WIDE)
    constant = profile_of(ones)
    assert excess(constant, ones[:8]) <= 0 < excess(constant, -ones[:8])
