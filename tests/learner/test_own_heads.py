"""Tasks with heads of their own, and tuned norms and biases, over a network trained before."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from impresslearn import ImpressLearner, Recipe, adapt, create_backbone, load, open_store
from impresslearn.networks import Backbone
from toys import blobs, lenet, quick_learner

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


def data_of(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return blobs(seed=len(name) + CLASSES[name], classes=CLASSES[name], count=60)


def test_a_mixture_is_where_an_untrained_network_starts() -> None:
    assert quick_learner().start == quick_learner(lenet(head="own")).start == "mixture"
    assert quick_learner(own_heads()).start == "network"
    assert quick_learner(own_heads(), penalty=0.1).start == "mixture"


@pytest.mark.parametrize("code", [{}, {"precision": "coded", "bit_price": 0.01}])
def test_norm_statistics_are_folded_into_the_norms(tmp_path: Path, code: Any) -> None:
    """What was gathered in training is part of the task; the shared statistics stay as they are."""
    settings: dict[str, Any] = {"tune": ("norm",)} | code
    learner = learner_of(fold_after=1.0, **settings)
    inputs, labels = data_of("three")
    shifted = 5 * inputs + 3  # far from what the network's own statistics stand for
    learner.learn_task("folded", (shifted, labels))
    assert learner.tasks_["folded"].breakdown["statistics"] == 0
    assert learner.score((shifted, labels), "folded") > 0.9
    backbone = learner.backbone
    for name, each in backbone.initial_statistics().items():
        assert torch.equal(each, trained().get_buffer(name))
    plain = learner_of(**settings).learn_task("folded", (shifted, labels))
    own, changes = (each.coefficients_["folded"].of("deltas") for each in (learner, plain))
    assert own[1].abs().max() > 3 * changes[1].abs().max()
    still = Recipe(lr=1e-12, epochs=0, min_steps=30)
    learner.save(tmp_path / "a.impress")
    again = load(tmp_path / "a.impress", module=trained(), task_recipe=still)
    again.update_task("folded", (shifted, labels.flip(0)))
    assert again.score((shifted, labels), "folded") > 0.9


@pytest.mark.parametrize("preset", ["pretrained", "few_labels"])
@pytest.mark.parametrize("adapted", [False, True])
def test_networks_of_a_head_alone(tmp_path: Path, preset: str, adapted: bool) -> None:
    """As over features that were computed before."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)) if adapted else None
    linear = create_backbone("linear", in_features=16, head="own")
    network = adapt(module, input_shape=(16,)) if adapted else linear
    learner = ImpressLearner.from_preset(network, preset, progress=False)
    for name in CLASSES:
        learner.learn_task(name, data_of(name))
        assert learner.score(data_of(name), name) > 0.9
        assert learner.tasks_[name].bytes < 200
    path, (inputs, _) = tmp_path / "heads.impress", data_of("five")
    learner.save(path)
    with open_store(path, module=module) as opened:
        opened.learn_task("later", data_of("two"))
    again = load(path, module=module)
    assert list(again.tasks_) == [*CLASSES, "later"]
    for name in CLASSES:
        logits = learner.logits(inputs, name)
        assert torch.equal(again.logits(inputs, name), logits)
        assert torch.equal(learner.export(name)(inputs), logits)
