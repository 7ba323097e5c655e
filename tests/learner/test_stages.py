"""Tasks in stages: a readout first, then the network where held-out examples say so."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from impresslearn import ImpressLearner, adapt, load
from impresslearn.coefficients.readout import Readout
from impresslearn.errors import NotLearnedWarning
from toys import blobs, pictures


def turned() -> nn.Module:
    """Features of the first two axes, zero for most inputs until the norm is moved."""
    generator = torch.Generator().manual_seed(0)
    first, norm, head = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 2)
    for parameter in (first.weight, first.bias, head.weight):
        nn.init.normal_(parameter, generator=generator)
    with torch.no_grad():
        first.weight[:, 2:] = 0
        norm.bias.fill_(-3.0)  # a unit is active for few inputs
        norm.running_var.fill_(3.0)
    return nn.Sequential(first, norm, nn.ReLU(), head)


def learner_of(module: nn.Module, **settings: Any) -> ImpressLearner:
    recipe = {"epochs": 0, "min_steps": 150, "lr": 0.1}
    settings = {"task_recipe": recipe, "progress": False, "staged": True} | settings
    network = adapt(module.eval(), input_shape=(16,))
    return ImpressLearner.from_preset(network, "pretrained", **settings)


def rings(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs whose label is whether they lie inside a circle of the first two axes."""
    inputs = torch.randn(480, 16, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, :2].square().sum(1) > 1.4).long()


def evidence(learner: ImpressLearner, name: str) -> tuple[str, list[float]]:
    metrics = learner.tasks_[name].history["metrics"]
    return metrics["stage"], metrics.get("held_out_loss", [])


def test_the_network_is_changed_where_held_out_examples_say_so(tmp_path: Path) -> None:
    learner = learner_of(turned()).learn_task("rings", rings(), seed=-1)
    stage, (before, after) = evidence(learner, "rings")
    assert stage == "network"
    assert after < before
    parts = learner.coefficients_["rings"].parts
    assert len(parts) > 1
    assert isinstance(parts[-1], Readout)
    assert learner.score(rings(1), "rings") > 0.8
    learner.learn_task("others", blobs(3, count=120))
    learner.save(tmp_path / "s.impress")
    again, inputs = load(tmp_path / "s.impress", module=turned().eval()), rings(1)[0]
    assert torch.equal(again.logits(inputs, "rings"), learner.logits(inputs, "rings"))
    assert torch.equal(learner.export("rings")(inputs), learner.logits(inputs, "rings"))
    assert all(info.bytes <= 2000 for info in learner.tasks_.values())


def test_a_readout_is_enough_where_it_explains_the_labels() -> None:
    learner = learner_of(nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 2)))
    learner.learn_task("blobs", blobs(3, count=120))
    stage, losses = evidence(learner, "blobs")
    assert stage == "readout"
    assert len(losses) == 1
    few = blobs(3, count=10)
    assert evidence(learner.learn_task("few", few), "few") == ("readout", [])


def test_an_update_keeps_the_stage() -> None:
    learner = learner_of(turned()).learn_task("rings", rings())
    learner.learn_task("blobs", blobs(3, count=120))
    for name, data in {"rings": rings(2), "blobs": blobs(3, count=120)}.items():
        stage, _ = evidence(learner, name)
        assert evidence(learner.update_task(name, data), name)[0] == stage
    assert learner.score(rings(1), "rings") > 0.8
    assert learner.restore_task("rings", 1).tasks_["rings"].version == 3


def test_an_update_in_stages_keeps_what_was_learned_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.impress"
    learner_of(turned(), staged=False).learn_task("rings", rings()).save(path)
    staged = load(path, module=turned().eval(), staged=True)
    parts = staged.update_task("rings", rings(2)).coefficients_["rings"].parts
    assert [part.kind for part in parts] == ["masks", "deltas", "readout"]
    assert staged.score(rings(1), "rings") > 0.8


def test_what_fits_as_a_readout_is_never_refused_for_the_network() -> None:
    for max_bytes in (50, 54, 58, 62, 70, 78, 86, 150, 400):
        recipe = {"epochs": 0, "min_steps": 40, "lr": 0.1}
        learner = learner_of(turned(), max_bytes=max_bytes, task_recipe=recipe)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotLearnedWarning)
            learner.learn_task("rings", rings())
        assert learner.tasks_["rings"].bytes <= max_bytes
        if max_bytes > 60:
            assert learner.score(rings(1), "rings") > 0.6


@pytest.mark.parametrize("max_bytes", [2000, None])
def test_a_training_that_diverges_leaves_the_readout(max_bytes: int | None) -> None:
    recipe = {"epochs": 0, "min_steps": 40, "lr": 1e30}
    learner = learner_of(turned(), max_bytes=max_bytes, task_recipe=recipe)
    with pytest.warns(NotLearnedWarning, match="stays a readout .* lower the learning rate"):
        learner.learn_task("rings", rings())
    assert evidence(learner, "rings")[0] == "readout"
    assert learner.score(rings(1), "rings") > 0.6


def test_a_head_over_positions_is_trained_with_the_network() -> None:
    torch.manual_seed(0)
    recipe = {"epochs": 0, "min_steps": 40, "lr": 0.05}
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 3, 1), nn.ReLU()
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network, (images, labels) = adapt(module, input_shape=(3, 8, 8)), pictures(count=120)
    learner = ImpressLearner.from_preset(network, "pretrained", task_recipe=recipe, progress=False)
    learner.learn_task("a", (images, labels))
    assert "stage" not in learner.tasks_["a"].history["metrics"]
    assert learner.score((images, labels), "a") > 0.9
    assert learner.infer_task(images).best == "a"
