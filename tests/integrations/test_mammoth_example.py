"""The example for Mammoth, against the few parts of Mammoth's interface that it uses."""

import importlib.util
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from toys import FEATURES, blobs, refused

EXAMPLE = Path(__file__).parents[2] / "examples" / "mammoth" / "impresslearn.py"


class ContinualModel(nn.Module):
    """What the example takes from Mammoth's class of this name."""

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__()
        self.net, self.args, self.dataset = backbone, args, dataset
        self.num_classes, self.device = dataset.N_CLASSES, torch.device("cpu")


class Net(nn.Module):
    """A network in Mammoth's form, whose classifier the example does without."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU())
        self.classifier = nn.Linear(24, 6)

    def forward(self, inputs, returnt="out"):
        features = self.body(inputs)
        return features if returnt == "features" else self.classifier(features)


class Items(Dataset):
    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return self.inputs[place], self.labels[place], self.inputs[place]


@pytest.fixture
def example(monkeypatch):
    parts = {name: ModuleType(name) for name in ("models", "models.utils")}
    parts["models.utils.continual_model"] = SimpleNamespace(ContinualModel=ContinualModel)
    for name, module in parts.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("mammoth_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_of(example, setting, **options):
    parser = ArgumentParser()
    for name, kind in (("lr", float), ("batch_size", int), ("n_epochs", int), ("seed", int)):
        parser.add_argument(f"--{name}", type=kind)
    args = example.ImpressLearn.get_parser(parser).parse_args([])
    args = Namespace(**vars(args) | {"non_verbose": 1, "task_epochs": 20} | options)
    dataset = SimpleNamespace(SETTING=setting, NAME="toy", N_CLASSES=6)
    torch.manual_seed(0)
    return example.ImpressLearn(Net(), None, args, None, dataset)


def learn(model, shift):
    """Three tasks of two clusters; shift: of the labels from task to task."""
    tests = []
    for task in range(3):
        inputs, labels = blobs(task, classes=2)
        labels = labels + shift * task
        assert model.observe(inputs, labels, inputs) == 0
        model.end_task(SimpleNamespace(train_loader=DataLoader(Items(inputs, labels))))
        tests.append((inputs, labels))
    return tests


def test_tasks_that_are_told(example, capsys):
    model = model_of(example, "class-il")
    assert model.COMPATIBILITY == ("task-il",)
    for place, (inputs, labels) in enumerate(learn(model, shift=2)):
        outputs = model(inputs, place)
        assert outputs.shape == (96, 6)
        assert (outputs.argmax(1) == labels).float().mean() > 0.95
        wrong = model(inputs, (place + 1) % 3).argmax(1)
        assert set(wrong.tolist()) <= {2 * ((place + 1) % 3), 2 * ((place + 1) % 3) + 1}
    assert "3 tasks take" in capsys.readouterr().out
    assert not any("classifier" in layer.name for layer in model.learner.backbone.layers)


def test_tasks_that_are_inferred(example):
    model = model_of(example, "class-il", infer_task=1)
    assert "class-il" in model.COMPATIBILITY
    for place, (inputs, labels) in enumerate(learn(model, shift=2)):
        best = model.learner.infer_task(inputs).best
        outputs = model(inputs)
        assert (outputs.argmax(1) // 2 == int(best[-1])).all()
        outputs[:, : 2 * place], outputs[:, 2 * place + 2 :] = -torch.inf, -torch.inf
        assert (outputs.argmax(1) == labels).float().mean() > 0.95  # Mammoth's Task-IL


def test_tasks_of_the_same_classes(example):
    refused("toy has no Task-IL accuracy in Mammoth; use --infer_task 1",
            model_of, example, "domain-il")  # fmt: skip
    model = model_of(example, "domain-il", infer_task=1)
    assert model(blobs()[0]).shape == (96, 6)  # before anything is learned
    for inputs, _ in learn(model, shift=0):
        best = model.learner.infer_task(inputs).best
        logits = model.learner.logits(inputs, best)
        assert torch.equal(model(inputs).argmax(1), logits.argmax(1))
