"""Odd modules learn a task that is kept and exported as it was, or a line says why they cannot."""

import pytest
import torch
from module_table import check
from oddities import ODDITIES, ROWS, Net
from torch import nn

import impresslearn as il
from impresslearn.errors import InputError

# Words of torch that tell a user of this library nothing.
INTERNAL = (
    "mat1 and mat2", "Traceback", "grad_fn", "view size", "Expected all tensors", "aten::",
    "not implemented for", "must match the size", "'NoneType' object", "graph leaves",
    "allow_unused", "running_mean should", "does not require grad",
)  # fmt: skip
REPEATED = "gives other outputs for the same inputs in another pass, order or batch"
NOT_LOGITS = "return the tensor of logits alone"
DIMENSIONS = "expected two dimensions"
NOT_LAST = "the layer that was defined last, cannot be replaced by a task's head of 2 outputs"
NOTHING = "nothing but the last layer is left to mask"
ELSEWHERE = "or tensors that are no parameters or buffers"
REFUSED = {
    "weight norm, the old hook": "cannot be copied: weight of layer of Net was computed with",
    "lazy layers": "run the module on a batch once",
    "a tuple of inputs as one argument": "does not take Inputs(0: (8,) float32, 1: (1,) float32)",
    "a dictionary as one argument": "does not take Inputs(image: (8,) float32)",
    "returns a tuple": NOT_LOGITS,
    "returns a dictionary without logits": NOT_LOGITS,
    "returns (n, classes, 1, 1)": DIMENSIONS,
    "returns squeezed logits": DIMENSIONS,
    "returns numpy": NOT_LOGITS,
    "returns nothing": NOT_LOGITS,
    "a tuple in training": "in training, returned tuple; " + NOT_LOGITS,
    "a scripted block": "a of Net is TorchScript",
    "scripted as a whole": "is TorchScript",
    "a running mean of its own": "gathers the buffer mean while it trains",
    "counts passes in a buffer": "gathers the buffer buffer while it trains",
    "a hook that refers to its network": "a hook or lambda of body of HookOfItsOwn refers to",
    "a lambda that refers to its network": "a hook or lambda of LambdaOfItsOwn refers to",
    "activation checkpointing": "uses activation checkpointing",
    "branches on the batch": REPEATED,
    "exits early": NOT_LAST,
    "dropout that is always on": REPEATED,
    "only an LSTM": NOTHING,
    "attention over the batch": REPEATED,
    "a map of logits": NOTHING,
    "a head that is not flattened": DIMENSIONS,
    "one output, flattened": DIMENSIONS,
    "softmax at the end": "ends in softmax",
    "sigmoid at the end": "ends in sigmoid",
    "batch norm at the end": NOT_LAST,
    "the first head of two": NOT_LAST,
    "the head defined first": 'define head last, or use head="shared", num_classes=3',
    "the sum of two heads": NOT_LAST,
    "no layer, only parameters": "has no maskable layer",
    "a cosine head": "no gradient reaches head.bias",
    "fake quantisation": REPEATED,
    "a mixture of experts": "no gradient reaches route.weight",
    "returns a view of its parameter": NOT_LAST,
    "a body under no_grad": "no gradient reaches body.weight",
    "holds a lock": "cannot be copied: cannot pickle '_thread.lock' object",
    "layers in a plain list": ELSEWHERE,
    "a random tensor that is no buffer": ELSEWHERE,
    "a fixed size of batch": "cannot take torch.float32 inputs of shape (4, 8)",
}


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", ODDITIES)
def test_logits_are_the_same_everywhere_or_a_line_says_why_not(name):
    row = check(*ODDITIES[name])
    assert row["unchanged"]
    assert row["clear"], row["outcome"]
    assert REFUSED.get(name, "equal") in row["outcome"]
    for line in (row["outcome"], row.get("shared", "")):
        assert not [word for word in INTERNAL if word in line]


class Stateful(nn.Module):
    """Keeps features and counts its passes, which scales the second."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.passes = nn.Linear(8, 16), nn.Linear(16, 3), 0

    def forward(self, x):
        self.passes += 1
        self.features = self.body(x).relu() * self.passes
        return self.head(self.features)


def learner_of(module, **settings):
    recipe = il.Recipe(epochs=0, min_steps=2, batch_size=6)
    learner = il.ImpressLearner(il.adapt(module, **settings), task_recipe=recipe, progress=False)
    return learner.add_random_masks(2).learn_task("a", (ROWS, torch.arange(12) % 2))


@pytest.mark.parametrize("shape", [None, (8,)])
def test_a_network_with_a_state_is_loaded_whether_or_not_it_has_run(shape, tmp_path):
    module = Stateful()
    learner = learner_of(module, input_shape=shape)
    learner.save(tmp_path / "a.impress")
    again = il.load(tmp_path / "a.impress", module=module, progress=False)
    assert torch.equal(again.logits(ROWS, "a"), learner.logits(ROWS, "a"))
    module(ROWS)  # with gradients, which the features now have
    with pytest.raises(il.StoreError, match="features of Stateful was computed with gradients"):
        il.load(tmp_path / "a.impress", module=module, progress=False)


def test_an_export_leaves_its_inputs_alone():
    given, expected = ROWS.clone(), ROWS.clone()
    exported = learner_of(ODDITIES["changes its input in place"][0]()).export("a")
    assert torch.equal(exported(given), exported(given))
    assert torch.equal(given, expected)


def test_a_network_that_cannot_be_run_side_by_side_is_not_said_to_refuse_its_inputs():
    build, inputs = ODDITIES["LSTM over packed sequences"]
    recipe = il.Recipe(epochs=0, min_steps=2, batch_size=6)
    learner = il.ImpressLearner(il.adapt(build()), task_recipe=recipe, progress=False)
    data = {name: (inputs, torch.arange(12) % 2) for name in "ab"}
    with pytest.raises(InputError, match="batched=True cannot be used with TextNet"):
        learner.add_random_masks(2).learn_tasks(data, batched=True)


def test_rows_that_are_lost_are_counted():
    network = Net()
    network.head = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 32)), nn.Linear(32, 3))
    with pytest.raises(InputError, match=r"returned \(2, 3\); expected one row for each input"):
        learner_of(network)
