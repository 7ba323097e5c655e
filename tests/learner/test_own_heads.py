"""Tasks with heads of their own, and tuned norms and biases, over a network trained before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from impresslearn import ImpressLearner, Recipe, adapt, create_backbone, load, open_store
from impresslearn.coefficients.deltas import NormBiasDeltas, folded
from impresslearn.coefficients.masks import MaskMixture
from impresslearn.coefficients.parametrisation import Coefficients, task_weights
from impresslearn.masks import random_bank
from impresslearn.methods import (
    FineTuning,
    SupSup,
)
from impresslearn.networks import Backbone
from toys import blobs, lenet, pictures, quick_learner, refused

CLASSES = {"two": 2, "three": 3, "five": 5}
LONGER = Recipe(lr=0.03, epochs=0, min_steps=150, batch_size=32)


def trained(seed: int = 0) -> nn.Module:
    """A network whose running statistics are no longer new."""
    generator = torch.Generator().manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
        nn.Linear(32, 3),
    )  # fmt: skip
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    with torch.no_grad():
        for _ in range(20):
            network(2 * torch.randn(64, 16, generator=generator))
    return network.eval()


def own_heads(**settings: Any) -> Backbone:
    return adapt(trained(), input_shape=(16,), **settings)


def learner_of(backbone: Backbone | None = None, **settings: Any) -> ImpressLearner:
    settings = {"task_recipe": LONGER, "granularity": "unit"} | settings
    return quick_learner(backbone or own_heads(), **settings).add_masks(4, source="disjoint")


def priced(precision: str, price: float) -> dict[str, float]:
    """The price of a bit where there is one."""
    return {"bit_price": price} if precision == "coded" else {}


def data_of(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return blobs(seed=len(name) + CLASSES[name], classes=CLASSES[name], count=60)


@pytest.mark.parametrize("precision", ["float32", "int4", "coded"])
def test_tasks_of_different_numbers_of_classes(tmp_path: Path, precision: Any) -> None:
    learner = learner_of(precision=precision, tune=("norm", "bias"), **priced(precision, 0.1))
    before: dict[str, torch.Tensor] = {}
    learner.learn_basis("basis", data_of("three"))
    shown = data_of("two")[0]
    for name in CLASSES:
        inputs, labels = data_of(name)
        learner.learn_task(name, (inputs, labels))
        assert learner.logits(inputs, name).shape == (60, CLASSES[name])
        assert learner.score((inputs, labels), name) > 0.9
        before = {old: learner.logits(shown, old) for old in learner.tasks_} | before
    for old, logits in before.items():
        assert torch.equal(learner.logits(shown, old), logits)
    learner.save(tmp_path / "a.impress")
    with open_store(tmp_path / "a.impress", module=trained(1)) as opened:
        for again in (load(tmp_path / "a.impress", module=trained(1)), opened):
            assert again.backbone.head == "own"
            for name, logits in before.items():
                assert torch.equal(again.logits(shown, name), logits)
                assert again.tasks_[name].bytes == learner.tasks_[name].bytes
        opened.learn_task("later", data_of("five"))


def test_learning_starts_at_the_network_itself() -> None:
    learner = learner_of(task_recipe=Recipe(epochs=0), tune=("norm", "bias"))
    learner.learn_task("task", data_of("three"))
    view = learner._store.view(learner.tasks_.learned("task"))
    frozen = learner.backbone
    for name, weight in view.weights.items():
        if name not in frozen.own_head.shapes:
            assert torch.equal(weight, frozen.module.get_parameter(name))


def test_a_mixture_is_where_an_untrained_network_starts(tmp_path: Path) -> None:
    assert quick_learner().start == quick_learner(lenet(head="own")).start == "mixture"
    assert quick_learner(own_heads()).start == "network"
    assert quick_learner(own_heads(), penalty=0.1).start == "mixture"
    refused("penalty", quick_learner, own_heads(), penalty=0.1, start="network")
    refused("tune", quick_learner, own_heads(), tune=("norms",))
    refused("fold_after", quick_learner, own_heads(), fold_after=0.5)
    refused("fold_after", quick_learner, own_heads(), fold_after=2, tune=("norm",))
    refused("no effect", quick_learner, own_heads(norm="per_task"), fold_after=1, tune=("norm",))
    refused("no effect", quick_learner, lenet(), fold_after=1, tune=("norm",))
    refused("start", quick_learner, own_heads(), start="anywhere")


@pytest.mark.parametrize("precision", ["float32", "coded"])
def test_norm_statistics_are_folded_into_the_norms(precision: Any) -> None:
    """What was gathered in training is part of the task; the shared statistics stay as they are."""
    settings: dict[str, Any] = {"precision": precision, "tune": ("norm",)} | priced(precision, 0.01)
    learner = learner_of(fold_after=1.0, **settings)
    inputs, labels = data_of("three")
    shifted = 5 * inputs + 3  # far from what the network's own statistics stand for
    learner.learn_task("folded", (shifted, labels))
    assert learner.tasks_["folded"].breakdown["statistics"] == 0
    assert learner.score((shifted, labels), "folded") > 0.9
    backbone = learner.backbone
    for name, each in backbone.initial_statistics().items():
        assert torch.equal(each, trained().get_buffer(name))
    changes = (
        learner_of(**settings).learn_task("t", (shifted, labels)).coefficients_["t"].of("deltas")
    )
    assert changes is not None
    own = learner.coefficients_["folded"].of("deltas")
    assert own is not None
    assert own[1].abs().max() > 3 * changes[1].abs().max()


def test_folding_changes_no_prediction() -> None:
    backbone = own_heads()
    generator = torch.Generator().manual_seed(3)
    inputs = 4 * torch.randn(50, 16, generator=generator) + 1
    kept = backbone.initial_statistics()
    gathered = {name: each.clone() for name, each in kept.items()}
    for _ in range(40):
        backbone.forward({}, inputs, gathered, "train")
    zeros = [torch.zeros(32), torch.zeros(32)]
    deltas = NormBiasDeltas(("norm",))
    changes = tuple(folded(backbone, deltas, zeros, gathered, kept))
    bank = random_bank(backbone.layers, 1)
    alpha = tuple(torch.zeros(1) for _ in backbone.layers)
    task = Coefficients((MaskMixture(residual=True), deltas), (alpha, changes), 1)
    found = backbone.forward(task_weights(bank, backbone, task), inputs, kept)
    assert torch.allclose(found, backbone.forward({}, inputs, gathered), atol=1e-4)
    assert not torch.allclose(found, backbone.forward({}, inputs, kept), atol=0.1)


def test_the_preset_for_trained_networks_is_complete(tmp_path: Path) -> None:
    few = Recipe(lr=0.02, epochs=5, batch_size=16)
    learner = ImpressLearner.from_preset(own_heads(), "pretrained", task_recipe=few, progress=False)
    for name in CLASSES:
        learner.learn_task(name, data_of(name))
        assert learner.score(data_of(name), name) > 0.8
    learner.save(tmp_path / "p.impress")
    again = load(tmp_path / "p.impress", module=trained(1))
    shown = data_of("two")[0]
    assert torch.equal(again.logits(shown, "five"), learner.logits(shown, "five"))
    refused('head="own"', ImpressLearner.from_preset, adapt(trained(), head="shared"), "pretrained")


def test_a_head_alone(tmp_path: Path) -> None:
    """Without a mask, the head and what else is tuned are learned."""
    learner = quick_learner(own_heads(), task_recipe=LONGER, precision="coded", bit_price=0.1)
    for name in CLASSES:
        learner.learn_task(name, data_of(name))
        assert learner.score(data_of(name), name) > 0.8
    assert learner.tasks_["two"].num_masks == 0
    learner.save(tmp_path / "h.impress")
    learner.add_random_masks(1).learn_task("later", data_of("two"))
    again, shown = load(tmp_path / "h.impress", module=trained(1)), data_of("two")[0]
    assert torch.equal(again.logits(shown, "five"), learner.logits(shown, "five"))
    refused("bank is empty", quick_learner().learn_task, "t", blobs())


def test_what_is_not_the_layer_that_gives_the_logits() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.other = (
                nn.Linear(16, 32),
                nn.Linear(32, 3),
                nn.Linear(32, 3),
            )

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(inputs).relu())

    normed = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 5), nn.LayerNorm(5))
    for module in (Auxiliary(), normed):
        learner = quick_learner(adapt(module))
        refused("the layer that was defined last", learner.learn_task, "t", data_of("three"))
    learner = quick_learner(own_heads())
    refused("expects 16 values|expects inputs", learner.learn_task, "t", pictures())


def test_where_nothing_can_be_folded_it_is_refused() -> None:
    module = nn.Sequential(
        nn.Linear(16, 8), nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.Linear(8, 3)
    )
    module(torch.randn(64, 16))
    network = adapt(module.eval())
    refused("no effect on Sequential", quick_learner, network, tune=("norm",), fold_after=0.5)
    refused("no effect", ImpressLearner.from_preset, network, "pretrained", fold_after=0.5)


@pytest.mark.parametrize("method", [SupSup, FineTuning])
def test_other_methods(method: Any) -> None:
    recipe = {"basis_recipe": LONGER} if method is SupSup else {"recipe": LONGER}
    learned = method(own_heads(), progress=False, **recipe)
    for name in CLASSES:
        learned.learn_task(name, data_of(name))
    if isinstance(learned, SupSup):
        assert learned.infer_task(data_of("two")[0]).method == "exhaustive"
    for name in CLASSES:
        assert learned.score(data_of(name), name) > 0.9
        assert set(learned.predict(data_of(name)[0], name)) <= set(range(CLASSES[name]))


@pytest.mark.parametrize("network", ["lenet_300_100", "resnet18"])
def test_random_networks(tmp_path: Path, network: str) -> None:
    """Also where the head is a convolution."""
    sizes: dict[str, Any] = {"in_features": 16, "widths": (24, 12)}
    data = {name: data_of(name) for name in CLASSES}
    if network == "resnet18":
        sizes = {"width": 4, "norm": "group"}
        data = {name: pictures(classes=count, count=40) for name, count in CLASSES.items()}
    backbone = create_backbone(network, head="own", **sizes)
    learner = quick_learner(backbone).learn_basis("basis", data["three"])
    for name in CLASSES:
        learner.learn_task(name, data[name])
        assert learner.logits(data[name][0], name).shape[1] == CLASSES[name]
    learner.save(tmp_path / "r.impress", weights="seed")
    again = load(tmp_path / "r.impress")
    for name in learner.tasks_:
        inputs = data["five"][0]
        assert torch.equal(again.logits(inputs, name), learner.logits(inputs, name))
    assert torch.equal(learner.export("two")(inputs), learner.logits(inputs, "two"))
