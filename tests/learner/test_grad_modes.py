"""Learning switches gradients on for itself, whatever mode the caller is in."""

import pytest
import torch

import impresslearn as il
from toys import BASELINES, QUICK, ConvNet, blobs, lenet, pictures, quick_learner

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
    "adapt": lambda learner: quick_learner(il.adapt(ConvNet())).learn_task("a", pictures(1)),
    "export": lambda learner: learner.learn_task("a", blobs(1)).export("a")(blobs(1)[0]),
    "zero_shot_score": lambda learner: learner.zero_shot_score(blobs(1)),
}


VERBS |= {
    name: lambda _, make=make: make().learn_task("a", blobs(1)) for name, make in BASELINES.items()
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
