"""What `advise` recommends fits the budget and works as it says; what it cannot do is a line."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import impresslearn as il
from impresslearn.cli.app import app
from impresslearn.coefficients.mixing import Coefficients
from impresslearn.data import StreamedExamples
from impresslearn.errors import InputError
from impresslearn.learner import advice as advice_module
from impresslearn.learner import search
from impresslearn.learner.candidates import CANDIDATES
from impresslearn.learner.presets import PRESETS
from impresslearn.learner.search import Trial
from impresslearn.networks.pretrained import load_resnet20
from impresslearn.tables import size_of
from toys import QUICK, blobs, lenet, pictures, resnet


@pytest.fixture(autouse=True)
def quick_presets(request, monkeypatch):
    """Presets whose trainings take 60 steps, and a few cases, but in slow tests."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(search, "ENOUGH", (20, 60))
        for name, each in PRESETS.items():
            quick = replace(each, task_recipe=QUICK, basis_recipe=QUICK)
            monkeypatch.setitem(PRESETS, name, quick)


TASKS = {f"task-{seed}": blobs(seed, count=120) for seed in range(4)}


WIDER = {"a": blobs(), "b": (torch.ones(9, 17), torch.arange(9) % 3)}


def advice(tasks=TASKS, budget="150B", **settings):
    given = {"backbone": lenet(), "progress": False} | settings
    return il.advise(tasks, budget, **given)


def test_the_recommended_learner_keeps_what_was_promised():
    found = advice(basis=2)
    assert found.best.bytes <= found.budget == 150
    assert found.best in found.trials
    fitting = [each for each in found.trials if each.bytes <= 150]
    whole = [each for each in fitting if each.cases == found.best.cases]
    assert found.best.accuracy == max(each.accuracy for each in whole) > 0.8
    learner = found.create_learner(progress=False)
    assert list(learner.tasks_) == list(found.basis)
    learner.learn_task("new", blobs(9, count=120))
    assert learner.score(blobs(9, count=300), "new") > 0.8
    assert learner.tasks_["new"].bytes <= found.budget
    for name, value in found.settings.items():
        assert getattr(learner, name) == value


def test_it_shows_what_was_tried():
    found = advice(basis=0)
    shown = repr(found)
    assert shown.startswith(found.best.candidate.name)
    lines = 4 + len(found.trials) + 2 * (found.cheaper is not None)
    assert len(shown.splitlines()) == lines
    assert shown.count("→") == 1
    assert found._repr_html_().count("<tr>") == 1 + len(found.trials)
    assert '"log"' in found.chart().to_json()


def test_a_cheaper_way_is_offered_beside_the_best(tmp_path, monkeypatch):
    monkeypatch.setattr(advice_module, "_cheaper", lambda best, trials: trials[1])
    found = advice(basis=0)
    cheaper = found.cheaper
    assert cheaper.best == found.trials[1]
    assert cheaper.cheaper is None
    assert cheaper.summary() in repr(found)
    learner = cheaper.create_learner(progress=False)
    learner.learn_task("new", blobs(9, count=120))
    assert learner.score(blobs(9, count=300), "new") > 0.8
    for name, (inputs, labels) in TASKS.items():
        np.savez(tmp_path / f"{name}.npz", inputs=inputs.numpy(), labels=labels)
    command = ["advise", "--tasks", str(tmp_path), "--budget", "150", "--basis", "0", "--quiet"]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert told["cheaper"]["best"] == told["trials"][1]
    shown = CliRunner().invoke(app, command).stdout
    assert "points behind: " in shown
    for line in told["commands"] + told["cheaper"]["commands"]:
        assert line in shown.replace("\n", "")


@pytest.mark.parametrize(
    ("accuracies", "size", "offered"),
    [
        ((0.91, 0.93, 0.88, 0.9), 50, True),  # 0.25 ± 0.8 points behind
        ((0.91, 0.93, 0.88, 0.9), 51, False),
        ((0.92, 0.93, 0.9, 0.9), 50, True),  # ahead
        ((0.904, 0.924, 0.884, 0.894), 50, False),  # 0.6 points behind in each case
        ((0.86, 0.98, 0.89, 0.9), 50, False),  # nothing is known: 0 ± 6.5 points
        ((0.91, 0.93, 0.89), 50, False),  # of fewer cases
    ],
)
def test_what_is_cheaper(accuracies, size, offered):
    with_masks = next(each for each in CANDIDATES if each.basis)
    alone = next(each for each in CANDIDATES if not each.basis)
    best = Trial(alone, 1.0, (0.91, 0.93, 0.89, 0.9), 100.0, 1.0)
    trial = Trial(alone, 9.0, accuracies, size, 1.0)
    assert advice_module._cheaper(best, [trial, best]) == (trial if offered else None)
    masks = replace(trial, candidate=with_masks)
    assert advice_module._cheaper(best, [masks, best]) is None


def test_the_same_seed_gives_the_same_advice():
    first, second = advice(basis=1, seed=3), advice(basis=1, seed=3)
    assert (first.best.candidate, first.best.price) == (second.best.candidate, second.best.price)
    assert [each.bytes for each in first.trials] == [each.bytes for each in second.trials]


def test_more_bytes_are_used_where_they_help_and_never_exceeded():
    found = {budget: advice(budget=budget, basis=0).best for budget in (70, 150, 600)}
    for budget, best in found.items():
        assert best.bytes <= budget
    assert found[70].accuracy <= found[150].accuracy + 0.02
    assert found[150].accuracy <= found[600].accuracy + 0.02


def test_without_a_network_one_is_made_for_the_data():
    images = {f"task-{seed}": pictures(seed, count=60, size=4) for seed in range(2)}
    found = advice(images, 400, backbone=None)
    assert found.best.bytes <= 400
    learner = found.create_learner(progress=False).learn_task("new", pictures(7, count=60, size=4))
    assert learner.score(pictures(7, count=60, size=4), "new") > 0.9


def test_own_heads_trained_networks_and_streamed_data():
    own = advice(backbone=lenet(head="own"), basis=1, budget=400)
    names = {each.candidate.name for each in own.trials}
    assert {"readout of the network", "readout under basis masks"} <= names
    torch.manual_seed(0)
    trained = il.adapt(
        torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)),
        head="own",
    )
    presets = {each.candidate.preset for each in advice(backbone=trained, budget=400).trials}
    assert presets == {"per_weight", "few_labels", "pretrained"}
    streamed = {
        name: StreamedExamples(TensorDataset(*data), data[1].numpy())
        for name, data in TASKS.items()
    }
    assert advice(streamed, basis=0).best.accuracy > 0.8


def test_masks_that_no_task_uses_are_left_out(monkeypatch):
    bank = il.random_bank(lenet().layers, 3, seed=0)
    numbers = [
        Coefficients((torch.tensor([0.0, 0.0, 1.0]), torch.zeros(3, 2))),
        Coefficients((torch.zeros(3), torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))),
    ]
    assert search.unused_masks(bank, numbers) == [bank.names[0]]
    layers = [each for each in search.CANDIDATES if each.name == "basis masks, a number a layer"]
    monkeypatch.setattr(search, "CANDIDATES", layers)
    monkeypatch.setattr(search, "unused_masks", lambda *_: ["task-0"])
    found = advice(basis=["task-0", "task-1"])
    assert found.basis == ("task-1",)
    assert list(found.create_learner(progress=False).tasks_) == ["task-1"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"budget": "2 apples"}, "written as 500, 2kB or 1.5MB, got '2 apples'"),
        ({"budget": 0}, "budget must be an integer of at least 1, got 0"),
        ({"budget": 3}, "no candidate fits 3 B a task; the smallest that was tried took"),
        ({"tasks": {}}, "tasks must map names to labelled data"),
        ({"tasks": [blobs()]}, "tasks must map names to labelled data, got list"),
        ({"basis": 4}, "all 4 tasks are basis tasks; leave one"),
        ({"basis": ["task-9"]}, "basis names 'task-9', which is none of the tasks"),
        ({"basis": -1}, "basis must be an integer"),
        ({"tasks": {"a": blobs(count=3)}}, "task 'a' has too few examples to hold some back"),
        ({"tasks": {"a": pictures()}}, "16"),
        ({"tasks": WIDER, "backbone": None}, "'b' has 17 values an input, task 'a' 16; tasks over"),
        ({"tasks": {"a": (torch.ones(9, 16), torch.zeros(9))}}, "at least two classes"),
        ({"backbone": torch.nn.Linear(2, 2)}, "backbone must come from create_backbone or adapt"),
    ],
)
def test_what_cannot_be_advised_is_a_line(change, line):
    given = {"tasks": TASKS, "budget": "150B"} | change
    with pytest.raises(InputError, match=line) as caught:
        advice(**given)
    assert "\n" not in str(caught.value)


def test_networks_that_readouts_cannot_use_are_advised_on_by_the_others():
    images = {f"task-{seed}": pictures(seed, count=40) for seed in range(2)}
    found = advice(images, "3kB", backbone=resnet("per_task", head="own"))
    assert "few_labels" not in {each.candidate.preset for each in found.trials}


@pytest.mark.parametrize(
    ("text", "count"), [("500", 500), ("2kB", 2000), (" 1.5 MB ", 1_500_000), ("20B", 20)]
)
def test_sizes(text, count):
    assert size_of(text) == count


@pytest.mark.slow
def test_the_command_prints_commands_that_make_such_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks").mkdir()
    stream = il.streams.rotated_digits(tasks=6, seed=1)
    for task in stream:
        part = task.train.subset(range(300))
        np.savez(tmp_path / "tasks" / f"{task.name}.npz", inputs=part.inputs, labels=part.labels)
    command = ["advise", "--tasks", "tasks", "--budget", "300", "--quiet"]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert told["best"]["bytes"] <= 300
    assert told["best"] in told["trials"]
    shown = CliRunner().invoke(app, command).stdout
    for line in told["commands"]:
        assert line.replace("STORE.impress", "") in shown.replace("STORE.impress", "")
        words = shlex.split(line)[1:]
        done = CliRunner().invoke(app, [*words, "--quiet"], catch_exceptions=False)
        assert done.exit_code == 0
    with il.open_store("STORE.impress", readonly=True) as learner:
        assert set(learner.tasks_) == set(stream.names)
        sizes = [task.bytes for task in learner.tasks_.values() if task.role == "learned"]
        assert np.mean(sizes) < 330
        task = next(name for name in learner.tasks_ if learner.tasks_[name].role == "learned")
        assert learner.score(stream[task].test, task) > told["best"]["accuracy"] - 0.1


@pytest.mark.slow
def test_advice_for_a_trained_network(resnet20_root, cifar100_root, monkeypatch):
    """By readouts alone: a candidate that trains takes a minute a task."""
    readouts = [each for each in search.CANDIDATES if each.preset == "few_labels"]
    monkeypatch.setattr(search, "CANDIDATES", readouts)
    module = load_resnet20(resnet20_root / "resnet20-cifar10.npz")
    backbone = il.adapt(module, norm="shared", head="own", input_shape=(3, 32, 32))
    stream = il.streams.split_cifar100(root=cifar100_root, subset=True, tasks=2, classes=range(10))
    tasks = {task.name: task.train.subset(range(200)) for task in stream}
    found = il.advise(tasks, "2kB", backbone=backbone, basis=0, progress=False)
    assert found.best.bytes <= 2000
    assert found.best.accuracy > 0.5
