"""What is kept of a task's own inputs tells noise and inverted ones, and rejects few of its own."""

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.inference.unknown import TaskProfile, distances, exceeded_by, task_profile
from impresslearn.networks.prediction import TaskView
from toys import inferred

WIDE = 40


def profile_of(inputs):
    backbone = il.create_backbone("linear", 3, in_features=inputs.shape[1])
    view = TaskView(dict(backbone.weights), None, 3)
    return task_profile(backbone, view, inputs, view.outputs(backbone, inputs))


def excess(profile, inputs):
    return float(exceeded_by(profile.limits, distances([profile], inputs)[0]))


def test_a_threshold_rejects_a_twentieth_of_what_it_was_made_of():
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(4000, WIDE, generator=generator) * torch.linspace(0.01, 2, WIDE)
    profile = profile_of(own)
    assert set(profile.groups) == set(range(4))  # the quietest
    for size in (1, 8):
        rejected = [excess(profile, each) > 0 for each in own[1000:].split(size)]
        assert 0.01 < np.mean(rejected) < 0.12
    assert excess(profile, own[1000:1008] + 1) > 0
    content = profile.encode()
    assert len(content) == 21
    assert TaskProfile.decode(content, few_features=False) == profile


@pytest.mark.parametrize("rows", [60, pytest.param(120, marks=pytest.mark.nightly)])
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
