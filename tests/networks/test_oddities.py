"""Odd modules learn a task that is kept and exported as it was, or a line says why they cannot."""

import pytest
import torch
from module_table import check, recorded
from odd_modules import ODDITIES, ROWS, Net
from torch import nn

import impresslearn as il
from impresslearn.errors import InputError

RECORDED = recorded("by hand")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", ODDITIES)
def test_logits_are_the_same_everywhere_or_a_line_says_why_not(name):
    row = check(*ODDITIES[name])
    assert row["unchanged"]
    assert row["clear"], row["outcome"]
    assert row["outcome"] == RECORDED[name]


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
