import copy
import subprocess
import sys
import textwrap

import pytest
import torch
from export_cases import (
    RESNET_NORMS,
    Encoder,
    Labelled,
    Tied,
    adapted_learner,
    finished,
    lenet_learner,
    resnet_learner,
)
from torch import fx, nn

from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.export import FinishedTask, export_module
from impresslearn.networks import adapt
from impresslearn.networks.prediction import TaskView
from toys import ConvNet, blobs, lenet, pictures, resnet


def check_same(learner, inputs, dtype=torch.float32):
    """Every task, exported, computes bit for bit what the learner does; returns the last module."""
    for name in ("basis", "new"):
        module = export_module(finished(learner, name))
        assert (module.task, module.classes) == (name, learner.tasks_[name].classes)
        assert not any(part.training for part in module.modules())
        assert not any(parameter.requires_grad for parameter in module.parameters())
        for count in (2, 7, len(inputs)):
            logits = module(inputs[:count].to(dtype))
            assert logits.shape == (count, len(module.classes))
            assert torch.equal(logits, learner.logits(inputs[:count], name))
    return module


@pytest.mark.parametrize("norm", RESNET_NORMS)
def test_a_residual_network_under_every_norm_policy(norm):
    learner = resnet_learner(norm)
    module = check_same(learner, pictures(5)[0])
    assert module.state_dict().keys() == learner.backbone.module.state_dict().keys()
    larger = pictures(6, size=12)[0]
    assert torch.equal(module(larger), learner.logits(larger, "new"))


def test_statistics_are_those_of_the_task():
    learner = resnet_learner("per_task")
    states = {name: export_module(finished(learner, name)).state_dict() for name in learner.tasks_}
    for name, state in states.items():
        for buffer, value in learner.statistics_of(name).items():
            assert torch.equal(state[buffer], value)
    key = "stem.1.running_mean"
    assert not torch.equal(states["basis"][key], states["new"][key])


def test_a_lenet_flattens_whatever_it_is_given():
    learner = lenet_learner()
    inputs = blobs(5)[0]
    module = check_same(learner, inputs)
    assert torch.equal(module(inputs.reshape(-1, 1, 4, 4)), module(inputs))
    fresh = lenet(3).module
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(fresh(inputs)[:, :2], module(inputs))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_number_formats(dtype):
    learner = adapted_learner(lenet(3).module.to(dtype), input_shape=(16,))
    module = check_same(learner, blobs(5)[0], dtype)
    assert {value.dtype for value in module.state_dict().values()} == {dtype}


@pytest.mark.parametrize("norm", ["batch", "per_task", "shared"])
def test_the_users_own_convolutions(norm):
    learner = adapted_learner(ConvNet(), small=False, norm=norm)
    check_same(learner, pictures(5)[0])
    whole = export_module(finished(learner, "basis"))
    assert type(whole) is ConvNet
    part = export_module(finished(learner, "new"))
    assert isinstance(part, fx.GraphModule)
    assert type(part.network) is ConvNet


def test_tied_weights_stay_tied():
    learner = adapted_learner(Tied())
    module = check_same(learner, blobs(5)[0]).network
    assert module.encode.weight is module.again.weight
    mixed = learner._state.view(learner.tasks_.learned("new")).weights["encode.weight"]
    assert torch.equal(module.encode.weight, mixed)


def test_a_transformer():
    learner = adapted_learner(nn.Sequential(nn.Unflatten(1, (2, 8)), Encoder()))
    check_same(learner, blobs(5)[0])


def test_a_module_of_the_users_that_takes_flat_inputs():
    learner = adapted_learner(nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 3)), input_shape=(16,))
    inputs = blobs(5)[0]
    check_same(learner, inputs)
    module = export_module(finished(learner, "basis"))
    assert torch.equal(module(inputs.reshape(-1, 4, 4)), learner.logits(inputs, "basis"))


def test_attributes_of_the_users_are_not_overwritten():
    learner = adapted_learner(Labelled())
    check_same(learner, blobs(5)[0])
    assert export_module(finished(learner, "basis")).network.classes == 3


def test_a_network_of_the_librarys_inside_the_users_module():
    block = resnet("group", 5).module
    learner = adapted_learner(nn.Sequential(nn.Dropout2d(0.5), block), small=False)
    check_same(learner, pictures(5)[0])
    module = export_module(finished(learner))
    own = [part for part in module.modules() if type(part).__module__.startswith("impresslearn")]
    assert own == []


def test_a_module_used_twice_stays_one_module():
    body = lenet(16).module
    learner = adapted_learner(nn.Sequential(body, body, nn.Linear(16, 3)))
    module = check_same(learner, blobs(5)[0]).network
    assert module[0] is module[1]


def test_a_view_that_normalises_by_the_batch():
    learner = resnet_learner("per_task")
    task = finished(learner)
    view = TaskView(task.view.weights, task.view.statistics, 2, mode="batch")
    inputs = pictures(5)[0]
    module = export_module(FinishedTask(learner.backbone, view, "new", task.classes))
    assert torch.equal(module(inputs), view.logits(learner.backbone, inputs))
    assert not torch.equal(module(inputs), export_module(task)(inputs))


def test_unknown_tasks_are_refused_as_the_learner_does():
    with pytest.raises(UnknownTaskError, match=r"no task named 'nwe' among 2; close: 'new'"):
        finished(lenet_learner(), "nwe")


def test_a_view_that_is_still_learned_is_refused():
    backbone = lenet()
    view = TaskView(backbone.weights, None, 3, mode="train")
    with pytest.raises(InputError, match="mode 'train' is still learned"):
        export_module(FinishedTask(backbone, view, "t", (0, 1, 2)))


def test_statistics_are_the_modules_own_where_a_task_has_none():
    module = ConvNet()
    module.body[1].running_mean.uniform_()
    backbone = adapt(module)
    view = TaskView(dict(backbone.weights), None, 3)
    inputs = pictures(5)[0]
    exported = export_module(FinishedTask(backbone, view, "t", (0, 1, 2)))
    assert torch.equal(exported(inputs), view.logits(backbone, inputs))


@pytest.mark.parametrize("make", [lenet_learner, lambda: adapted_learner(Tied())])
def test_nothing_is_shared_with_the_learner(make):
    learner = make()
    inputs = blobs(5)[0]
    before, fingerprint = learner.logits(inputs, "new"), learner.backbone.fingerprint()
    first, second = export_module(finished(learner)), export_module(finished(learner))
    with torch.no_grad():
        for value in first.state_dict().values():
            value.fill_(1)
    first.train().requires_grad_(True)
    assert learner.backbone.fingerprint() == fingerprint
    assert torch.equal(learner.logits(inputs, "new"), before)
    assert torch.equal(second(inputs), before)


def test_nothing_is_shared_with_the_norm_statistics():
    learner = resnet_learner("shared")
    inputs = pictures(5)[0]
    before = learner.logits(inputs, "new")
    for value in export_module(finished(learner)).state_dict().values():
        value.zero_()
    assert torch.equal(learner.logits(inputs, "new"), before)


def test_a_copy_keeps_the_labels():
    module = copy.deepcopy(export_module(finished(lenet_learner())))
    assert (module.task, module.classes) == ("new", ("c", "d"))
    inputs = blobs(5)[0]
    assert torch.equal(copy.deepcopy(module)(inputs), module(inputs))


def test_modules_load_where_the_library_is_not_installed(tmp_path):
    cases = {"lenet": (lenet_learner(), blobs(5)[0])}
    cases |= {norm: (resnet_learner(norm), pictures(5)[0]) for norm in RESNET_NORMS}
    plain = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    cases["adapted"] = (adapted_learner(plain), blobs(5)[0])
    for name, (learner, inputs) in cases.items():
        for task in learner.tasks_:
            module = export_module(finished(learner, task))
            saved = (module, inputs, learner.logits(inputs, task), module.classes)
            torch.save(saved, tmp_path / f"{name}-{task}.pt")
    script = """
        import pathlib, sys
        sys.modules["impresslearn"] = None
        import torch

        for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
            module, inputs, logits, classes = torch.load(path, weights_only=False)
            assert torch.equal(module(inputs), logits), path
            assert module.classes == classes and not module.training, path
            print(path.stem)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 2 * len(cases)
