import pytest

from impresslearn import ImpressLearner, SupSup, create_backbone
from impresslearn.errors import InputError
from impresslearn.learner.presets import list_presets, preset
from toys import FEATURES, WIDTHS, blobs


def test_names():
    assert list_presets() == ["default", "paper_lenet", "paper_resnet18", "paper_resnet50"]
    with pytest.raises(InputError, match="no preset named 'papr'; choose from default, paper_le"):
        preset("papr")


@pytest.mark.parametrize("name", list_presets())
def test_every_preset_makes_a_network_and_learners(name):
    chosen = preset(name)
    backbone = create_backbone(
        "lenet_300_100", 3, in_features=FEATURES, widths=WIDTHS, **chosen.backbone_settings()
    )
    learner = ImpressLearner.from_preset(backbone, name, progress=False)
    assert learner.task_recipe == chosen.task_recipe
    assert learner.basis_recipe == chosen.basis_recipe
    assert (learner.penalty, learner.sparsity) == (chosen.penalty, 0.9)
    assert (learner.allocation, learner.score_rule) == (chosen.allocation, chosen.score_rule)
    SupSup(backbone, **chosen.mask_settings())
    learner.add_random_masks(2).learn_task("t", blobs())
    assert learner.tasks_["t"].num_masks == 2


def test_without_arguments_there_is_what_we_recommend():
    learner, chosen = ImpressLearner(), preset("default")
    for name, value in chosen.learner_settings().items():
        assert getattr(learner, name) == value
    assert chosen.backbone_settings() == {"init": "signed_constant", "gain": 2}
    for name, value in chosen.backbone_settings().items():
        assert learner.backbone.spec[name] == value
    for recipe in (chosen.basis_recipe, chosen.task_recipe):
        assert (recipe.optimizer, recipe.schedule, recipe.min_steps) == ("adam", "cosine", 300)


def test_settings_can_be_overridden():
    backbone = create_backbone("lenet_300_100", 3, in_features=FEATURES)
    learner = ImpressLearner.from_preset(backbone, "paper_lenet", sparsity=0.5, penalty=0.1)
    assert (learner.sparsity, learner.penalty) == (0.5, 0.1)
    assert learner.score_rule == "score"


def test_table_2_of_the_paper():
    lenet, small, large = (preset(name) for name in list_presets()[1:])
    assert {p.init for p in (lenet, small, large)} == {"kaiming_normal"}
    assert [p.task_recipe.optimizer for p in (lenet, small, large)] == ["rmsprop", "adam", "adam"]
    assert [p.task_recipe.lr for p in (lenet, small, large)] == [0.002, 0.02, 0.0025]
    assert [p.task_recipe.batch_size for p in (lenet, small, large)] == [128, 64, 96]
    assert [p.penalty for p in (lenet, small, large)] == [0, 0.005, 0.005]
    for chosen in (small, large):
        assert chosen.task_recipe.momentum == 0.9
        assert chosen.task_recipe.weight_decay == 0.1
