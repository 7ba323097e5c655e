"""Presets: what belongs together, and what is recommended."""

import pytest

from impresslearn import ImpressLearner, SupSup, create_backbone
from impresslearn.errors import InputError
from impresslearn.learner.presets import list_presets, preset
from toys import FEATURES, WIDTHS, blobs


@pytest.mark.parametrize("name", list_presets())
def test_every_preset_makes_a_network_and_learners(name):
    chosen = preset(name)
    backbone = create_backbone(
        "lenet_300_100", 3, in_features=FEATURES, widths=WIDTHS, **chosen.backbone_settings()
    )
    learner = ImpressLearner.from_preset(backbone, name, seed=5, progress=False)
    for setting, value in chosen.learner_settings().items():
        assert getattr(learner, setting) == value
    assert learner.seed == 5
    SupSup(backbone, **chosen.mask_settings())
    learner.add_random_masks(2).learn_task("t", blobs())
    assert learner.tasks_["t"].num_masks == 2
    assert ImpressLearner.from_preset(backbone, name, penalty=0.7).penalty == 0.7


def test_without_arguments_there_is_what_we_recommend():
    learner, chosen = ImpressLearner(), preset("default")
    for name, value in chosen.learner_settings().items():
        assert getattr(learner, name) == value
    for name, value in chosen.backbone_settings().items():
        assert learner.backbone.spec[name] == value
    with pytest.raises(InputError, match="no preset named 'papr'; choose from default, paper_le"):
        preset("papr")


def test_table_2_of_the_paper():
    lenet, small, large = (preset(name) for name in list_presets()[1:])
    assert {p.init for p in (lenet, small, large)} == {"kaiming_normal"}
    assert [p.task_recipe.optimizer for p in (lenet, small, large)] == ["rmsprop", "adam", "adam"]
    assert [p.task_recipe.lr for p in (lenet, small, large)] == [0.002, 0.02, 0.0025]
    assert [p.task_recipe.batch_size for p in (lenet, small, large)] == [128, 64, 96]
    assert [p.penalty for p in (lenet, small, large)] == [0, 0.005, 0.005]
