"""Your own method, source of masks and stream are used like the library's."""

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn import masks, streams
from toys import blobs, lenet, quick_learner, refused


@pytest.fixture(autouse=True)
def _only_here(monkeypatch):
    """Forgets what a test registers."""
    for module, name in ((masks.sources, "_sources"),):
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
    refused("tensors of booleans; odd is", learner.add_masks, 1, source="odd")
    masks.register_mask_source("none", lambda layers, ones, seed: None)
    refused("to tensors of booleans, got NoneType", learner.add_masks, 1, source="none")


def test_names_are_taken_once():
    masks.register_mask_source("own", None)
    for name in ("random", "disjoint", "disjoint_kernels", "edge_popup", "own"):
        refused(f"'{name}'.* already", masks.register_mask_source, name, None)
