"""A pass leaves the frozen network as it was, and its rows do not depend on one another."""

import numpy as np
import pytest
import torch
from torch import nn

import impresslearn as il
from impresslearn.errors import InputError
from toys import FEATURES, blobs, quick_learner


class Net(nn.Module):
    """A network whose subclasses do something odd with their features."""

    total = 0

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(FEATURES, 24), nn.Linear(24, 3)
        self.scale = nn.Parameter(torch.ones(24))
        self.register_buffer("seen", torch.zeros(24))
        self.register_buffer("var", torch.zeros(24))
        self.state, self.past, self.plain = 0.0, [], torch.zeros(24)

    def forward(self, x):
        return self.head(self.odd(torch.relu(self.body(x))))


def writes_parameters_in_training(self, x):
    if self.training:
        self.scale.data.mul_(0.9).add_(0.1 * x.std(0))
    return x * self.scale


def replaces_parameters_in_training(self, x):
    if self.training:
        self.scale = nn.Parameter(self.scale.detach() * 0.9)
    return x * self.scale


def replaces_layers(self, x):
    self.head = nn.Linear(24, 3)
    return x


def remembers_in_a_list(self, x):
    self.past.append(x.mean().detach())
    return x + sum(self.past)


def places(self, x):
    return x * torch.arange(1.0, len(x) + 1)[:, None]


FROZEN = "writes to its parameter"
REPEATED = "gives other outputs"
NOT_FROZEN = {
    writes_parameters_in_training: f"{FROZEN} scale",
    replaces_parameters_in_training: f"{FROZEN} scale",
    replaces_layers: f"{FROZEN} head.weight",
    remembers_in_a_list: REPEATED,
    places: REPEATED,
    lambda _, x: x + torch.randn_like(x): REPEATED,
    lambda _, x: x * torch.from_numpy(np.random.rand(*x.shape)).float(): REPEATED,
    lambda _, x: x - x.mean(0): REPEATED,
}


def gathers(remember):
    """What a network does that remembers means of its training, to take them off afterwards."""

    def odd(self, x):
        if self.training:
            remember(self, x.mean(0).detach())
        return x - self.seen - self.state - self.plain - sum(self.past) - self.total

    return odd


BUFFER, SOMETHING = "gathers the buffer seen", "gathers something"
GATHERED = [
    (gathers(lambda m, mean: m.seen.lerp_(mean, 1e-6)), BUFFER),
    (gathers(lambda m, mean: m.seen.any() or m.seen.copy_(mean)), BUFFER),  # the first batch
    (gathers(lambda m, mean: setattr(m, "state", m.state + mean / 1e3)), SOMETHING),
    (gathers(lambda m, mean: m.plain.add_(mean)), SOMETHING),
    (gathers(lambda m, mean: m.past.append(mean)), SOMETHING),
    (gathers(lambda m, mean: setattr(type(m), "total", type(m).total + 1)), SOMETHING),
]


def keeps_a_state(self, x):
    self.state = (x + self.state).mean()
    return x + self.state


CASES = [*NOT_FROZEN.items(), *GATHERED, (keeps_a_state, REPEATED)]


@pytest.mark.parametrize(("odd", "line"), CASES)
@pytest.mark.parametrize("verb", ["learn_task", "learn_basis"])
def test_odd_modules_are_named_before_anything_is_learned(odd, line, verb):
    backbone = il.adapt(type("Odd", (Net,), {"odd": odd})())
    learner, before = quick_learner(backbone).add_random_masks(3), backbone.fingerprint()
    with pytest.raises(InputError, match=line):
        getattr(learner, verb)("a", blobs(1))
    assert backbone.fingerprint() == before
    assert not learner.tasks_


def counts_calls(self, x):
    self.state += 1
    return x * self.state


def anneals_in_training(self, x):
    self.state += self.training
    return x * (1 + self.state / 10) if self.training else x


@pytest.mark.parametrize("odd", [counts_calls, anneals_in_training])
def test_every_pass_begins_with_the_first_attributes(odd, tmp_path):
    kind, inputs = type("Odd", (Net,), {"odd": odd}), blobs(1)[0]
    learner = quick_learner(il.adapt(kind())).add_random_masks(3)
    learner.learn_task("b", blobs(2)).learn_task("a", blobs(1), seed=1)
    logits = learner.logits(inputs, "a")
    learner.save(tmp_path / "a.impress")
    loaded = il.load(tmp_path / "a.impress", module=kind())
    quick_learner(il.adapt(kind())).add_random_masks(3).save(tmp_path / "b.impress")
    with il.open_store(tmp_path / "b.impress", module=kind(), progress=False) as alone:
        alone.learn_task("a", blobs(1), seed=1)
    alone = il.open_store(tmp_path / "b.impress", module=kind(), readonly=True)
    for each in (learner, loaded, alone):
        for _ in range(2):
            assert torch.equal(each.logits(inputs, "a"), logits)
