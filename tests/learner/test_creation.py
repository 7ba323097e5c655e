"""What a new store is made from, and settings that its tasks contradict."""

import pytest

from impresslearn import InputError, Recipe
from impresslearn.learner.creation import CreationSettings, check_agreement, create_learner
from impresslearn.store import describe_store
from toys import lenet, quick_learner


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
