"""Learning switches gradients on for itself, whatever mode the caller is in."""

import pytest
import torch

import impresslearn as il
from toys import QUICK, blobs, lenet, quick_learner

MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


def update(learner):
    learner.learn_task("a", blobs(1)).update_task("a", blobs(2))


def infer(learner):
    learner.learn_task("a", blobs(1)).learn_task("b", blobs(2))
    learner.infer_task(blobs(1)[0][:8], method="alpha", recipe={"min_steps": 2})


VERBS = {
    "learn_task": lambda learner: learner.learn_task("a", blobs(1)),
    "learn_basis": lambda learner: learner.learn_basis("a", blobs(1)),
    "learn_tasks": lambda learner: learner.learn_tasks({"a": blobs(1)}, batched=True),
    "update_task": update,
    "infer_task": infer,
    "train_mask": lambda learner: il.masks.train_mask(learner.backbone, blobs(1), recipe=QUICK),
    "prune": lambda learner: il.masks.prune(learner.backbone, blobs(1), rounds=1, recipe=QUICK),
    "FineTuning": lambda learner: il.FineTuning(
        learner.backbone, recipe=QUICK, progress=False
    ).learn_task("a", blobs(1)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verb", VERBS)
def test_verbs_learn_where_gradients_are_off(verb, mode):
    learner = quick_learner(lenet()).add_random_masks(4)
    with MODES[mode]():
        VERBS[verb](learner)
        assert not torch.is_grad_enabled()


def test_what_was_made_in_inference_mode_can_be_learned_with():
    with torch.inference_mode():
        learner = quick_learner(lenet()).add_random_masks(4)
        inputs, labels = blobs(1)
        learner.learn_task("a", (inputs.clone(), labels))
        logits = learner.logits(inputs, "a")
    learner.learn_task("b", (inputs, labels))
    assert torch.equal(learner.logits(inputs, "a"), logits)
    assert learner.score((inputs, labels), "a") > 0.8
