"""Over a pretrained network a task knows its inputs by their features, and few others pass."""

import numpy as np
import pytest
import torch
from torch import nn

import impresslearn as il
from impresslearn.inference import TaskProfile
from impresslearn.inference.feature_scores import FeatureProfile

WIDTH, CLASSES = 24, 4


def module(features=32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, features), nn.Tanh(), nn.Linear(features, 3))


def blobs(seed, rows=400, classes=CLASSES):
    """Inputs about class means of this seed, all in one subspace, as images are."""
    shared = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(99))
    means = torch.randn(classes, 8, generator=torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(100 + seed + rows)
    labels = torch.arange(rows) % classes
    spread = 0.4 * torch.randn(rows, 8, generator=generator)
    noise = 0.1 * torch.randn(rows, WIDTH, generator=generator)
    return (means[labels] + spread) @ shared / 4 + noise, labels


def learner_of(seeds=(0, 1, 2), preset="few_labels", features=32, **settings):
    backbone = il.adapt(module(features), input_shape=(WIDTH,))
    learner = il.ImpressLearner.from_preset(backbone, preset, progress=False, **settings)
    for seed in seeds:
        learner.learn_task(f"t{seed}", blobs(seed))
    return learner


@pytest.fixture(scope="module")
def learned():
    return learner_of()


def rejected(learner, inputs, size, task):
    parts = [part for part in inputs.split(size) if len(part) == size]
    return np.mean([learner.infer_task(part, among=[task]).unknown for part in parts[:100]])


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("task", ["t0", "t1"])  # the first one's features gave the coordinates
def test_a_twentieth_of_own_inputs_and_nearly_all_noise_is_rejected(learned, task, size):
    own = blobs(int(task[1]), rows=1000)[0][torch.randperm(1000)]
    assert rejected(learned, own, size, task) <= 0.12
    generator = torch.Generator().manual_seed(0)
    loud = 2 * torch.randn(200, WIDTH, generator=generator)
    faint = 1e-3 * torch.randn(200, WIDTH, generator=generator)
    assert rejected(learned, loud, size, task) > 0.9
    if size == 8:
        assert rejected(learned, faint, size, task) == 1
        assert rejected(learned, blobs(7)[0], size, task) > 0.9


def test_few_examples_of_many_features_set_no_limit_that_new_inputs_exceed():
    backbone = il.create_backbone("linear", in_features=384, head="own")
    learner = il.ImpressLearner.from_preset(backbone, "few_labels", progress=False, max_bytes=3000)
    torch.manual_seed(0)
    labels, sizes = torch.arange(800) % 15, torch.arange(1, 385) ** -0.25
    for name in ("t0", "t1", "t2"):
        inputs = sizes * (0.3 * torch.randn(15, 384)[labels] + torch.randn(800, 384))
        learner.learn_task(name, (inputs[:300], labels[:300]))
        assert np.mean([g.unknown for g in learner.infer_tasks(inputs[300:], among=[name])]) < 0.07


def test_single_inputs_find_their_task_and_those_of_none_raise(learned):
    for seed in (0, 1, 2):
        guesses = learned.infer_tasks(blobs(seed, rows=60)[0])
        assert np.mean([guess.best == f"t{seed}" for guess in guesses]) > 0.8
        one = learned.infer_task(blobs(seed, rows=60)[0][:1])
        assert one.unknown_probability == pytest.approx(guesses[0].unknown_probability, abs=1e-4)
    with pytest.raises(il.UnknownTaskError):
        learned.predict(5 * torch.randn(4, WIDTH))


def test_what_older_tasks_know_stays_and_travels(tmp_path):
    learner = learner_of(seeds=(0, 1))
    inputs = blobs(1, rows=40)[0]
    before, guess = learner.tasks_.stored("t1").profile, learner.infer_task(inputs, among=["t1"])
    learner.learn_task("t2", blobs(2))
    learner.save(tmp_path / "a.impress")
    loaded = il.load(tmp_path / "a.impress", module=module())
    for each in (learner, loaded):
        assert each.tasks_.stored("t1").profile == before
        assert each.infer_task(inputs, among=["t1"]) == guess


@pytest.mark.parametrize("max_bytes", [120, 500])
def test_a_profile_takes_its_share_of_the_budget(max_bytes):
    learner = learner_of(seeds=(0, 1), max_bytes=max_bytes)
    for task in ("t0", "t1"):
        info, profile = learner.tasks_[task], learner.tasks_.stored(task).profile
        assert isinstance(profile, FeatureProfile)
        assert info.breakdown["profile"] == len(profile.encode()) <= max(36, max_bytes / 6)
        assert info.bytes <= max_bytes
        assert FeatureProfile.decode(profile.encode()) == profile


def test_trained_tasks_know_their_features_too():
    quick = {"task_recipe": {"epochs": 0, "min_steps": 5}, "max_bytes": None}
    learner = learner_of((0, 1), "pretrained", features=600, **quick)
    assert learner._store.space.projection == 1  # wide features are projected
    assert isinstance(learner.tasks_.stored("t1").profile, FeatureProfile)
    assert learner.infer_task(3 * torch.randn(8, WIDTH), among=["t1"]).unknown
    assert learner.infer_task(blobs(1, rows=80)[0][:16]).best == "t1"


def test_a_first_task_of_few_examples_has_a_profile_of_its_inputs():
    learner = learner_of(()).learn_task("few", blobs(0, rows=20))
    assert isinstance(learner.tasks_.stored("few").profile, TaskProfile)
    learner.learn_task("more", blobs(1))
    assert isinstance(learner.tasks_.stored("more").profile, FeatureProfile)
    assert learner.infer_task(blobs(1, rows=40)[0]).best == "more"


@pytest.mark.parametrize(
    ("width", "known", "projections"), [(32, 0, 0), (64, 64, 0), (300, 300, 1)]
)
def test_inputs_of_linear_are_features_unless_they_are_few(width, known, projections):
    backbone = il.create_backbone("linear", in_features=width, head="own")
    learner = il.ImpressLearner.from_preset(backbone, "few_labels", progress=False)
    inputs, labels = torch.randn(256, width), [str(row % 4) for row in range(256)]
    learner.learn_task("t", (inputs, labels))
    space = learner._store.space
    # The class means keep all features, also where the readout has a projection.
    assert len(space.mean if space else ()) == known
    assert learner._store.rows.last_projection()[0] == projections
