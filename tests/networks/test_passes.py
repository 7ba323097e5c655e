"""A pass leaves the frozen network as it was, and its rows do not depend on one another."""

import pytest
import torch
from torch import nn

import impresslearn as il
from impresslearn.errors import InputError
from toys import FEATURES, blobs, quick_learner


class Net(nn.Module):
    """A network whose subclasses do something odd with their features."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(FEATURES, 24), nn.Linear(24, 3)
        self.scale = nn.Parameter(torch.ones(24))
        self.register_buffer("seen", torch.zeros(24))
        self.state, self.past = None, []

    def forward(self, x):
        return self.head(self.odd(torch.relu(self.body(x))))


class WritesParameters(Net):
    def odd(self, x):
        self.scale.data = self.scale.data * 0.9
        return x * self.scale


class CopiesIntoParameters(Net):
    def odd(self, x):
        with torch.no_grad():
            self.scale.mul_(0.5).add_(x.mean())
        return x * self.scale


class DrawsNumbers(Net):
    def odd(self, x):
        return x + torch.randn_like(x)


class MixesRows(Net):
    def odd(self, x):
        return x - x.mean(0)


class SeesItsPlace(Net):
    def odd(self, x):
        return x * torch.arange(1.0, len(x) + 1)[:, None]


class RemembersInAList(Net):
    def odd(self, x):
        self.past.append(x.mean().detach())
        return x + sum(self.past)


class GathersABuffer(Net):
    def odd(self, x):
        if self.training:
            self.seen += x.mean(0).detach()
        return x - self.seen


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (WritesParameters, "writes to its parameter scale"),
        (CopiesIntoParameters, "writes to its parameter scale"),
        (DrawsNumbers, "gives other outputs"),
        (MixesRows, "gives other outputs"),
        (SeesItsPlace, "gives other outputs"),
        (RemembersInAList, "gives other outputs"),
        (GathersABuffer, "gathers the buffer seen"),
    ],
)
@pytest.mark.parametrize("verb", ["learn_task", "learn_basis"])
def test_odd_modules_are_named_before_anything_is_learned(kind, line, verb):
    backbone = il.adapt(kind())
    learner, before = quick_learner(backbone).add_random_masks(3), backbone.fingerprint()
    with pytest.raises(InputError, match=line):
        getattr(learner, verb)("a", blobs(1))
    assert backbone.fingerprint() == before
    assert not learner.tasks_


class KeepsAState(Net):
    def odd(self, x):
        state = 0 if self.state is None else self.state
        self.state = (x + state).mean()
        return x + self.state


class CountsCalls(Net):
    def odd(self, x):
        self.state = (self.state or 0) + 1
        return x * self.state


@pytest.mark.parametrize("kind", [CountsCalls])
def test_every_pass_begins_with_the_first_attributes(kind, tmp_path):
    inputs, labels = blobs(1)
    learner = quick_learner(il.adapt(kind())).add_random_masks(3)
    learner.learn_task("a", (inputs, labels))
    logits = learner.logits(inputs, "a")
    assert torch.equal(learner.logits(inputs, "a"), logits)
    learner.save(tmp_path / "a.impress")
    again = il.load(tmp_path / "a.impress", module=kind())
    for _ in range(2):
        assert torch.equal(again.logits(inputs, "a"), logits)
    quick_learner(il.adapt(kind())).add_random_masks(3).save(tmp_path / "b.impress")
    with il.open_store(tmp_path / "b.impress", module=kind(), progress=False) as learner:
        logits = learner.learn_task("a", (inputs, labels)).logits(inputs, "a")
    with il.open_store(tmp_path / "b.impress", module=kind(), readonly=True) as again:
        for _ in range(2):
            assert torch.equal(again.logits(inputs, "a"), logits)


def test_a_state_that_mixes_rows_is_named():
    learner = quick_learner(il.adapt(KeepsAState())).add_random_masks(3)
    with pytest.raises(InputError, match="gives other outputs"):
        learner.learn_task("a", blobs(1))
