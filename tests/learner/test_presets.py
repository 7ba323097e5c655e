"""Presets, and new learners: what belongs together, is recommended and contradicts a store."""

import pytest

from impresslearn import ImpressLearner, SupSup
from impresslearn.errors import InputError
from impresslearn.learner import create_learner
from impresslearn.learner.presets import list_presets, preset
from toys import blobs, lenet, refused


@pytest.mark.parametrize("name", [each for each in list_presets() if not preset(each).own_head])
def test_every_preset_makes_a_network_and_learners(name):
    chosen = preset(name)
    backbone = lenet(**chosen.backbone_settings())
    learner = ImpressLearner.from_preset(backbone, name, seed=5, progress=False)
    for setting, value in chosen.learner_settings().items():
        assert getattr(learner, setting) == value
    assert learner.seed == 5
    SupSup(backbone, **chosen.mask_settings())
    learner.add_random_masks(2).learn_task("t", blobs())
    over_masks = learner.granularity != "weight"
    assert learner.tasks_["t"].num_masks == (2 if over_masks else 0)
    price = ImpressLearner.from_preset(backbone, name, precision="coded", bit_price=0.7).bit_price
    assert price == 0.7


def test_without_arguments_there_is_what_we_recommend():
    learner, chosen = ImpressLearner(), preset("default")
    for name, value in chosen.learner_settings().items():
        assert getattr(learner, name) == value
    for name, value in chosen.backbone_settings().items():
        assert learner.backbone.spec[name] == value
    with pytest.raises(InputError, match="the preset must be one of default, pretrained"):
        preset("papr")


def test_table_2_of_the_paper():
    found = [preset(name) for name in ("paper_lenet", "paper_resnet18", "paper_resnet50")]
    recipes = [each.task_recipe for each in found]
    assert {each.init for each in found} == {"kaiming_normal"}
    assert [each.optimizer for each in recipes] == ["rmsprop", "adam", "adam"]
    assert [each.lr for each in recipes] == [0.002, 0.02, 0.0025]
    assert [each.batch_size for each in recipes] == [128, 64, 96]
    assert [each.penalty for each in found] == [0, 0.005, 0.005]


def test_a_learner_is_created_for_the_shape_of_the_data():
    learner = create_learner((2, 3, 4), 7, network={"widths": [5, 4]}, seed=3)
    assert learner.backbone.spec["in_features"] == 24
    assert (learner.backbone.num_classes, learner.backbone.spec["seed"], learner.seed) == (7, 3, 3)
    learner = create_learner((1, 8, 8), 9, backbone="resnet18", network={"width": 2})
    assert learner.backbone.spec["in_channels"] == 1
    assert learner.backbone.num_classes == 9
    narrow = create_learner((2, 3, 4), 2, network={"in_features": 5})  # for a part of the data, say
    assert narrow.backbone.spec["in_features"] == 5
    refused("needs a pretrained network", create_learner, (16,), 3, preset="pretrained")
