"""Odd modules learn a task that is kept and exported as it was, or a line says why they cannot."""

import re

import pytest
import torch
from module_table import check, recorded
from odd_modules import ODDITIES, ROWS, Net
from torch import nn

import impresslearn as il
from toys import refused

RECORDED = recorded("by hand")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", ODDITIES)
def test_logits_are_the_same_everywhere_or_a_line_says_why_not(name):
    row = check(*ODDITIES[name])
    assert row["unchanged"]
    assert row["clear"], row["outcome"]
    assert row["outcome"] == RECORDED[name]


def new_learner(module, head="own"):
    recipe = il.Recipe(epochs=0, min_steps=20, batch_size=6)
    how = {"task_recipe": recipe, "basis_recipe": recipe, "progress": False}
    return il.ImpressLearner(il.adapt(module, head=head), **how).add_random_masks(2)


STOPS = "no gradient reaches|uses activation|gives other outputs|writes to its|ends in s"
STOPPED = [name for name, line in RECORDED.items() if re.search(STOPS, line)]
OF_OWN_HEADS = ("a cosine head",)  # which stops nothing under a shared one
CASES = [(name, "own") for name in STOPPED]
CASES += [(name, "shared") for name in STOPPED if name not in OF_OWN_HEADS]


@pytest.mark.parametrize("verb", ["learn_task", "learn_basis"])
@pytest.mark.parametrize(("name", "head"), CASES)
def test_what_stops_a_task_stops_a_mask_and_leaves_nothing(name, head, verb):
    torch.manual_seed(0)
    build, inputs = ODDITIES[name]
    learner, words = new_learner(build(), head), re.search(STOPS, RECORDED[name])[0]
    before = learner.backbone.fingerprint()
    for _ in range(2):  # once and again
        refused(words, getattr(learner, verb), "a", (inputs, torch.arange(12) % 2))
    assert learner.backbone.fingerprint() == before
    assert (len(learner.tasks_), len(learner.bank_)) == (0, 2)


def learner_of(module):
    return new_learner(module).learn_task("a", (ROWS, torch.arange(12) % 2))


def test_activations_that_a_network_keeps_may_have_no_gradients_in_a_store(tmp_path):
    module = ODDITIES["keeps activations"][0]()
    learner_of(module).save(tmp_path / "a.impress")
    il.load(tmp_path / "a.impress", module=module, progress=False)
    module(ROWS)  # with gradients, which the activations now have
    with pytest.raises(il.StoreError, match="activations of Net was computed with gradients"):
        il.load(tmp_path / "a.impress", module=module, progress=False)


def test_rows_that_are_lost_are_counted():
    network = Net()
    network.head = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 32)), nn.Linear(32, 3))
    refused(r"returned \(2, 3\); expected one row for each input", learner_of, network)
