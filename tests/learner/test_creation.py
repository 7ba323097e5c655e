"""What a new store is made from; notes kept through it, and tasks before their rounding."""

import pytest
import torch

from impresslearn import InputError, Recipe, load
from impresslearn.learner.creation import CreationSettings, check_agreement, create_learner
from impresslearn.store import describe_store
from toys import blobs, lenet, quick_learner


def test_a_note_is_kept_through_a_file(tmp_path):
    note = {"customer": "x", "site": [1, 2]}
    learner = quick_learner().learn_basis("a", blobs(), note=note)
    learner.learn_task("b", blobs(1), note=note).learn_task("c", blobs(2))
    learner.learn_homogeneous("d", blobs(3), 2, note=note).save(tmp_path / "s")
    for each in (learner, load(tmp_path / "s")):
        kept = [each.tasks_[name].history["metrics"].get("note") for name in "abcd"]
        assert kept == [note, note, None, note]


def test_the_task_learned_last_can_be_run_unrounded():
    learner = quick_learner(precision="int4", granularity="unit").add_random_masks(4)
    exact = quick_learner(granularity="unit").add_random_masks(4)
    for name, seed in (("a", 0), ("b", 1)):
        learner.learn_task(name, blobs(seed), seed=seed)
        exact.learn_task(name, blobs(seed), seed=seed)
    inputs = blobs(1)[0]
    state = learner._state
    assert state.unrounded_view(learner.tasks_.learned("a")) is None
    view = state.unrounded_view(learner.tasks_.learned("b"))
    found = view.logits(learner.backbone, inputs)
    torch.testing.assert_close(found, exact.logits(inputs, "b"))
    assert not torch.equal(found, learner.logits(inputs, "b"))
    assert not found.requires_grad


def test_a_learner_is_founded_on_the_shape_of_the_data():
    learner = create_learner(CreationSettings(network={"widths": [5, 4]}, seed=3), 7, (2, 3, 4))
    assert learner.backbone.spec["in_features"] == 24
    assert (learner.backbone.num_classes, learner.backbone.spec["seed"], learner.seed) == (7, 3, 3)
    learner = create_learner(CreationSettings("resnet18", {"width": 2}, classes=9), 7, (1, 8, 8))
    assert learner.backbone.spec["in_channels"] == 1
    assert learner.backbone.num_classes == 9


def test_settings_agree_or_are_named(tmp_path):
    learner = quick_learner(lenet(), task_recipe=Recipe(lr=0.5))
    learner.save(tmp_path / "s")
    told = describe_store(tmp_path / "s")
    check_agreement(CreationSettings(), told, "s")
    check_agreement(CreationSettings("lenet_300_100", {"in_features": 16}, 3, "none", 0), told, "s")
    for given, words in (
        (CreationSettings("resnet18"), "backbone 'lenet_300_100', not 'resnet18'"),
        (CreationSettings(classes=4), "classes 3, not 4"),
        (CreationSettings(output_scale=True), "output_scale False, not True"),
        (CreationSettings(network={"depth": 3}), "depth None, not 3"),
        (CreationSettings(preset="default"), "as in the preset 'default'"),
    ):
        with pytest.raises(InputError, match=words):
            check_agreement(given, told, "s")
