"""Networks that are nothing but a head of each task's own, over features computed before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from impresslearn import ImpressLearner, adapt, create_backbone, load, open_store
from impresslearn.masks import train_mask
from impresslearn.methods import SupSup
from impresslearn.networks import Backbone
from toys import FEATURES, QUICK, blobs, refused

CLASSES = {"two": 2, "three": 3, "five": 5}
NOTHING = "nothing but the last layer is left to mask"


def networks() -> list[Backbone]:
    module = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 3))
    return [
        create_backbone("linear", in_features=FEATURES, head="own"),
        adapt(module, input_shape=(FEATURES,)),
    ]


@pytest.mark.parametrize("preset", ["pretrained", "few_labels"])
@pytest.mark.parametrize("network", networks(), ids=["linear", "adapted"])
def test_tasks_are_learned_kept_and_exported(
    tmp_path: Path, preset: str, network: Backbone
) -> None:
    learner = ImpressLearner.from_preset(network, preset, progress=False)
    assert len(learner.bank_) == 0
    for name, count in CLASSES.items():
        learner.learn_task(name, blobs(classes=count))
        assert learner.score(blobs(classes=count), name) > 0.9
        assert learner.tasks_[name].bytes < 200
    path, (inputs, _) = tmp_path / "heads.impress", blobs(classes=5)
    learner.save(path)
    module = None if network.spec else network.module
    with open_store(path, module=module) as opened:
        opened.learn_task("later", blobs(classes=4))
    again = load(path, module=module)
    assert list(again.tasks_) == [*CLASSES, "later"]
    for name in CLASSES:
        logits = learner.logits(inputs, name)
        assert torch.equal(again.logits(inputs, name), logits)
        assert torch.equal(learner.export(name)(inputs), logits)


def test_where_nothing_is_masked_no_mask_is_drawn_or_trained() -> None:
    network = networks()[0]
    learner = ImpressLearner(network, progress=False)
    refused(NOTHING, learner.add_masks, 2)
    refused(NOTHING, learner.add_masks, 2, source="disjoint")
    refused(NOTHING, learner.learn_basis, "b", blobs())
    refused(NOTHING, train_mask, network, blobs(), recipe=QUICK)
    supsup = SupSup(network, progress=False)
    refused(NOTHING, supsup.learn_task, "b", blobs())
