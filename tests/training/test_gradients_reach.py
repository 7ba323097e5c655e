"""What is trained gets a gradient, or one line says which layers do not."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import impresslearn as il
from impresslearn.errors import InputError, NotLearnedWarning
from toys import FEATURES, blobs, quick_learner


class Net(nn.Module):
    """Its subclasses do something odd between two layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.unused = nn.Linear(FEATURES, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(torch.relu(self.odd(x)))

    def odd(self, x):
        return self.b(torch.relu(self.a(x)))


class NoBackward(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x.clone())
    backward = staticmethod(lambda ctx, gradient: None)


def inferred(m, x):
    with torch.inference_mode():
        x = m.a(x)
    return m.b(x.clone())


CUT = [
    lambda m, x: m.b(torch.no_grad()(m.a)(x)),
    inferred,
    lambda m, x: m.b(m.a(x).detach()),
    lambda m, x: m.b(m.a(x).detach() if m.training else m.a(x)),
    lambda m, x: m.b((4 * m.a(x)).int().float()),
    lambda m, x: m.b(torch.from_numpy(m.a(x).detach().numpy())),
    lambda m, x: m.b(torch.tensor(m.a(x).tolist())),
    lambda m, x: m.b(functional.linear(x, m.a.weight.data)),
    lambda m, x: m.b(NoBackward.apply(m.a(x))),
]
SKIP = {"skip": ["unused.*"]}


def odd(function):
    return type("Odd", (Net,), {"odd": function})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("head", ["own", "shared"])
@pytest.mark.parametrize(
    ("kind", "settings", "line"),
    [
        (Net, {}, "no gradient reaches unused.weight"),
        *((odd(function), SKIP, "no gradient reaches .*a.weight") for function in CUT),
        (odd(lambda m, x: checkpoint(m.b, m.a(x), use_reentrant=True)), SKIP, "reaches .*b.weight"),
        (
            odd(lambda m, x: checkpoint(m.b, m.a(x), use_reentrant=False)), SKIP,
            "Odd uses activation checkpointing",
        ),
    ],
)  # fmt: skip
def test_layers_without_a_gradient_are_named(kind, settings, line, head):
    learner = quick_learner(il.adapt(kind(), head=head, **settings)).add_random_masks(3)
    for verb in (learner.learn_task, learner.learn_basis):
        with pytest.raises(InputError, match=line):
            verb("a", blobs(1))
    assert not learner.tasks_
    assert len(learner.bank_) == 3


@pytest.mark.parametrize("flat", [torch.sign, torch.round, lambda x: torch.relu(x - 1000)])
@pytest.mark.filterwarnings("ignore:'a' was not learned")
def test_gradients_of_zero_are_told(flat):
    kind = odd(lambda m, x: m.b(flat(m.a(x))))
    learner = quick_learner(il.adapt(kind(), **SKIP)).add_random_masks(3)
    with pytest.warns(NotLearnedWarning, match=r"the gradient of a.weight.* of Odd is 0 so far"):
        learner.learn_task("a", blobs(1))


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
