"""What is trained gets a gradient, or one line says which layers do not."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import impresslearn as il
from impresslearn.errors import InputError
from toys import FEATURES, blobs, quick_learner


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.unused = nn.Linear(FEATURES, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(torch.relu(self.b(torch.relu(self.a(x)))))


class NoGrad(Net):
    def forward(self, x):
        with torch.no_grad():
            x = torch.relu(self.a(x))
        return self.head(torch.relu(self.b(x)))


class Detached(Net):
    def forward(self, x):
        return self.head(torch.relu(self.b(torch.relu(self.a(x)).detach())))


class Rounded(Net):
    def forward(self, x):
        return self.head(torch.relu(self.b((torch.relu(self.a(x)) > 0).float())))


class Numpy(Net):
    def forward(self, x):
        hidden = torch.from_numpy(torch.relu(self.a(x)).detach().numpy())
        return self.head(torch.relu(self.b(hidden)))


class Reentrant(Net):
    def forward(self, x):
        return self.head(torch.relu(checkpoint(self.b, self.a(x), use_reentrant=True)))


class Checkpointed(Net):
    def forward(self, x):
        return self.head(torch.relu(checkpoint(self.b, self.a(x), use_reentrant=False)))


SKIP = {"skip": ["unused.*"]}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("head", ["own", "shared"])
@pytest.mark.parametrize(
    ("kind", "settings", "line"),
    [
        (Net, {}, "no gradient reaches unused.weight"),
        (NoGrad, SKIP, "no gradient reaches a.weight of NoGrad"),
        (Detached, SKIP, "no gradient reaches a.weight"),
        (Rounded, SKIP, "no gradient reaches a.weight"),
        (Numpy, SKIP, "no gradient reaches a.weight"),
        (Reentrant, SKIP, "no gradient reaches .*b.weight"),
        (Checkpointed, SKIP, "Checkpointed uses activation checkpointing"),
    ],
)
def test_layers_without_a_gradient_are_named(kind, settings, line, head):
    learner = quick_learner(il.adapt(kind(), head=head, **settings)).add_random_masks(3)
    for verb in (learner.learn_task, learner.learn_basis):
        with pytest.raises(InputError, match=line):
            verb("a", blobs(1))
    assert not learner.tasks_
    assert len(learner.bank_) == 3


@pytest.mark.parametrize("last", [nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Identity, nn.GELU])
@pytest.mark.parametrize("precision", ["float32", "coded"])
def test_heads_learn_in_front_of_a_function(last, precision):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, 3), last())
    price = {"precision": "coded", "bit_price": 0.01} if precision == "coded" else {}
    learner = quick_learner(il.adapt(module), **price).add_random_masks(3)
    inputs, labels = blobs(1)
    learner.learn_task("a", (inputs[labels < 2], labels[labels < 2]))
    learner.update_task("a", (inputs, labels)).learn_basis("b", (inputs, labels))
    for task in ("a", "b"):
        assert learner.score((inputs, labels), task) > 0.8


def test_a_head_without_a_bias_cannot_start_above_a_relu():
    module = nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, 3, False), nn.ReLU())
    with pytest.raises(InputError, match="its last layer has no bias to start above"):
        quick_learner(il.adapt(module)).add_random_masks(3).learn_task("a", blobs(1))
