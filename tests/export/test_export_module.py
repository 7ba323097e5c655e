"""Exported modules and files compute what the learner does, without it."""

import copy

import pytest
import torch
from export_cases import BACKBONES, IMAGES, learned
from torch import nn

from impresslearn.export import ExportedTask, TaskModel, export_task
from impresslearn.networks import adapt
from impresslearn.networks.prediction import TaskView
from toys import ConvNet, blobs, pictures, refused


@pytest.mark.parametrize("kind", BACKBONES)
def test_every_task_has_the_learners_logits(kind):
    learner, inputs = learned(kind)
    for name in ("basis", "new"):
        module = ExportedTask(learner.task_model(name))
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
    exported = ExportedTask(TaskModel(backbone, view, "t", (0, 1, 2)))
    assert torch.equal(exported(IMAGES), view.logits(backbone, IMAGES))


@pytest.mark.parametrize("kind", ["lenet", "tied", "resnet shared"])
def test_nothing_is_shared_with_the_learner(kind):
    learner, inputs = learned(kind)
    before, fingerprint = learner.logits(inputs, "new"), learner.backbone.fingerprint()
    first, second = (ExportedTask(learner.task_model("new")) for _ in range(2))
    with torch.no_grad():
        for value in first.state_dict().values():
            value.fill_(1)
    first.train().requires_grad_(True)
    assert learner.backbone.fingerprint() == fingerprint
    assert torch.equal(learner.logits(inputs, "new"), before)
    again = copy.deepcopy(second)
    assert (again.task, again.classes) == ("new", ("c", "d"))
    assert torch.equal(again(inputs), before)


class Fickle(nn.Linear):
    def forward(self, inputs):
        logits = super().forward(inputs)
        return logits if logits.sum() > 0 else logits.clone()


@pytest.mark.parametrize(
    ("kind", "fold"),
    [
        ("lenet", None),
        ("lenet", (1, 4, 4)),
        *((kind, None) for kind in ("transformer", "resnet batch", "resnet per_task")),
    ],
)
def test_torch_export_takes_the_module(kind, fold):
    learner, inputs = learned(kind)
    inputs = inputs if fold is None else inputs.reshape(-1, *fold)
    module, free = learner.export("new"), {0: torch.export.Dim("batch")}
    traced = torch.export.export(module, (inputs[:2],), dynamic_shapes={"inputs": (free,)})
    program = traced.module()
    for count in (1, 2, 9) if learner.backbone.norm != "batch" else (2, 9):
        torch.testing.assert_close(program(inputs[:count]), module(inputs[:count]))
    if kind == "lenet":
        assert torch.equal(program(inputs), learner.logits(inputs, "new"))


def test_what_cannot_be_exported_is_one_line_and_no_file(tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    task = learned("resnet group")[0].task_model("new")
    anything, fickle = (
        learned(adapt(kind(16, 3), head="shared"))[0].task_model("new")
        for kind in (nn.Linear, Fickle)
    )
    for model, example, words in (
        (fickle, blobs()[0], r"torch.export cannot trace Fickle: .*learner.export"),
        (task, None, r"resnet18 takes inputs of any size \(3, \*, \*\); pass example="),
        (task, torch.zeros(0, 3, 8, 8), "example holds no input"),
        (task, torch.zeros(2, 8, 8, 3), "channels come first"),
        (anything, None, "Linear takes inputs of any size; pass example="),
    ):
        refused(words, export_task, model, tmp_path / "new.onnx", example=example)
    assert list(tmp_path.iterdir()) == []
