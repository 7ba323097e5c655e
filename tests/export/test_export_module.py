"""An exported module computes what the learner does and shares nothing with it."""

import copy

import pytest
import torch
from export_cases import BACKBONES, IMAGES, learned

from impresslearn.export import TaskModel, export_module
from impresslearn.networks import adapt
from impresslearn.networks.prediction import TaskView
from toys import ConvNet, pictures


@pytest.mark.parametrize("kind", BACKBONES)
def test_every_task_has_the_learners_logits(kind):
    learner, inputs = learned(kind)
    for name in ("basis", "new"):
        module = export_module(learner.task_model(name))
        assert (module.task, module.classes) == (name, learner.tasks_[name].classes)
        assert not any(part.training for part in module.modules())
        assert not any(parameter.requires_grad for parameter in module.parameters())
        assert {value.dtype for value in module.parameters()} == {learner.backbone.dtype}
        for count in (2, 7, len(inputs)):
            logits = module(inputs[:count])
            assert logits.shape == (count, len(module.classes))
            assert torch.equal(logits, learner.logits(inputs[:count], name))
    if learner.backbone.spec is not None:
        state = module.networks[0].state_dict()
        assert state.keys() == learner.backbone.module.state_dict().keys()
    if kind.startswith("resnet"):
        larger = pictures(6, size=12)[0]
        assert torch.equal(module(larger), learner.logits(larger, "new"))
    if kind == "lenet":
        assert torch.equal(module(inputs.reshape(-1, 1, 4, 4)), module(inputs))


def test_a_task_without_statistics_has_the_modules_own():
    backbone = adapt(ConvNet())
    backbone.module.body[1].running_mean.uniform_()
    view = TaskView(dict(backbone.weights), None, 3)
    exported = export_module(TaskModel(backbone, view, "t", (0, 1, 2)))
    assert torch.equal(exported(IMAGES), view.logits(backbone, IMAGES))


@pytest.mark.parametrize("kind", ["lenet", "tied", "resnet shared"])
def test_nothing_is_shared_with_the_learner(kind):
    learner, inputs = learned(kind)
    before, fingerprint = learner.logits(inputs, "new"), learner.backbone.fingerprint()
    first, second = (
        export_module(learner.task_model("new")),
        export_module(learner.task_model("new")),
    )
    with torch.no_grad():
        for value in first.state_dict().values():
            value.fill_(1)
    first.train().requires_grad_(True)
    assert learner.backbone.fingerprint() == fingerprint
    assert torch.equal(learner.logits(inputs, "new"), before)
    again = copy.deepcopy(second)
    assert (again.task, again.classes) == ("new", ("c", "d"))
    assert torch.equal(again(inputs), before)
