"""Extending from outside: a method, and a source of masks, a stream and a norm policy, which are
registered once and then used like the library's own.
"""

import numpy as np
import pytest
import torch
from torch import nn

import impresslearn as il
from impresslearn import masks, networks, streams
from toys import blobs, lenet, pictures, quick_learner, refused


@pytest.fixture(autouse=True)
def _only_here(monkeypatch):
    """Forgets what a test registers."""
    for module, name in (
        (masks.sources, "_sources"),
        (networks.norms, "_policies"),
    ):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))


class NearestMean:
    """Predicts the class whose mean is nearest, with means for each task."""

    def __init__(self, seed, power=2):
        self.seed, self.power, self.means = seed, power, {}

    def learn_task(self, name, data):
        labels = np.unique(data.labels)
        self.means[name] = labels, [data.inputs[data.labels == k].mean(0) for k in labels]

    def predict(self, inputs, task):
        labels, means = self.means[task]
        distances = [((inputs - mean).abs() ** self.power).flatten(1).sum(1) for mean in means]
        return labels[np.argmin(distances, 0)]

    def score(self, data, task):
        return float((self.predict(data.inputs, task) == data.labels).mean())


def pairs(tasks, *, shift=0):
    """Two Gaussian clusters a task, moved."""
    made = {f"t{i}": (blobs(i, classes=2), blobs(i, classes=2)) for i in range(tasks)}
    moved = {name: tuple((x + shift, y) for x, y in pair) for name, pair in made.items()}
    return streams.from_arrays(moved, "pairs")


def test_a_method_and_a_stream_are_compared_with_the_library_s():
    stream = pairs(3, shift=1)
    recipe = il.Recipe(epochs=0, min_steps=20)
    methods = {
        "mine": (NearestMean, {"power": 1}),
        "supsup": lambda seed: il.SupSup(lenet(), seed=seed, basis_recipe=recipe),
    }
    compared = il.compare(methods, stream, progress=False)
    mine = compared.runs[0].evaluation
    assert mine.tasks == ("t0", "t1", "t2")
    assert mine.accuracy > 0.9
    assert mine.forgetting == mine.backward_transfer == 0
    assert mine.bytes == mine.roles == {}


def first_weights(layers, ones, seed):
    """The first weights of each layer, moved on by the seed."""
    mask = {}
    for layer, count in zip(layers, ones, strict=True):
        flat = (torch.arange(layer.numel) - seed) % layer.numel < count
        mask[layer.name] = flat.reshape(layer.shape)
    return mask


def test_a_source_of_masks_fills_a_bank_and_survives_its_file(tmp_path):
    masks.register_mask_source("first", first_weights)
    assert masks.list_mask_sources() == ["random", "disjoint", "disjoint_kernels", "first"]
    learner = quick_learner().add_masks(2, source="first", seed=5).add_masks(1, source="first")
    assert learner.bank_.names == ("first-0", "first-1", "first-2")
    assert [(info.source, info.recipe) for info in learner.bank_.infos] == [
        ("first", {"seed": seed}) for seed in (5, 6, 2)
    ]
    learner.learn_task("a", blobs()).save(tmp_path / "own.impress")
    again = il.load(tmp_path / "own.impress")
    for name in learner.bank_.names:
        for layer, kept in learner.bank_.mask(name).items():
            assert torch.equal(again.bank_.mask(name)[layer], kept)
    masks.register_mask_source("odd", lambda layers, ones, seed: {"odd": torch.ones(1)})
    refused("must cover exactly the maskable layers", learner.add_masks, 1, source="odd")
    masks.register_mask_source("none", lambda layers, ones, seed: None)
    refused("none must give layer names with tensors", learner.add_masks, 1, source="none")


def test_a_norm_policy_normalises_networks_made_and_adapted(tmp_path):
    own = networks.NormPolicy(nn.InstanceNorm2d, networks.norms.batch_norms, tracked=True)
    networks.register_norm("instance", own)
    backbone = il.create_backbone("resnet18", 3, norm="instance", width=4)
    assert isinstance(backbone.module.stem[1], nn.InstanceNorm2d)
    inputs, labels = pictures(size=16)
    learner = quick_learner(backbone, task_recipe=il.Recipe(epochs=0, min_steps=3))
    learner.add_random_masks(2).learn_task("a", (inputs, labels)).save(tmp_path / "own.impress")
    again = il.load(tmp_path / "own.impress")
    assert torch.equal(again.logits(inputs, "a"), learner.logits(inputs, "a"))
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    module(inputs)
    assert il.adapt(module, norm="instance").has_task_statistics


@pytest.mark.parametrize(
    ("register", "names"),
    [
        (
            masks.register_mask_source,
            ["random", "disjoint", "disjoint_kernels", "edge_popup", "own"],
        ),
        (networks.register_norm, ["batch", "own"]),
    ],
)
def test_names_are_taken_once(register, names):
    own = None
    if register is networks.register_norm:
        refused("policy must be a NormPolicy, got NoneType", register, "own", None)
        own = networks.NormPolicy(None, networks.norms.batch_norms)
    register("own", own)
    for name in names:
        refused(f"'{name}'.* already", register, name, None)
