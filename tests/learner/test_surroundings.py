"""Learners are copied, sent to other processes, and learn whatever mode the caller is in."""

import copy
import pickle
from functools import partial

import joblib
import pytest
import torch
from test_stages import learner_of as staged
from test_stages import rings, turned

import impresslearn as il
from impresslearn.learner.advice import CANDIDATES, Advice, Trial
from toys import BASELINES, QUICK, ConvNet, Pairs, blobs, lenet, pictures, quick_learner

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_an_opened_store_opens_the_file_again(how, tmp_path):
    path = tmp_path / "a.impress"
    quick_learner().add_random_masks(4).learn_task("a", blobs(1)).save(path)
    with il.open_store(path, progress=False) as learner:
        with COPIES[how](learner) as again:
            again.learn_task("b", blobs(2))
        assert set(COPIES[how](learner.tasks_)) == {"a", "b"}


def elsewhere(work, *given):
    """What a function gives in another process, which everything is pickled for."""
    (found,) = joblib.Parallel(2, "loky")([(work, given, {})])
    return found


METHODS = BASELINES | {"ImpressLearner": lambda: quick_learner(lenet()).add_random_masks(4)}


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_copied_and_sent(name):
    method, (inputs, _) = METHODS[name]().learn_task("a", blobs(1)), blobs(1)
    expected = method.predict(inputs, "a").tolist()
    for copied in (*COPIES.values(), partial(elsewhere, copy.copy)):
        again = copied(method)
        assert again.predict(inputs, "a").tolist() == expected
        again.learn_task("b", blobs(2))
        assert list(method.tasks_) == ["a"]


def advice(learner):
    trial = Trial(CANDIDATES[0], 300, 0.0, learner, [0.9], [59], [20], [1.0])
    return Advice({300: trial}, 300, (trial,), {}, {"a": blobs(1)}, {})


RESULTS = {
    "Comparison": lambda learner: il.compare(
        {"ours": lambda seed: quick_learner(lenet()).add_random_masks(3)},
        {name: (blobs(1), blobs(1)) for name in "ab"},
        progress=False,
    ),
    "Advice": advice,
    "MaskBank": lambda learner: learner.bank_,
    "TaskGuess": lambda learner: learner.infer_task(blobs(1)[0][:8]),
    "export": lambda learner: learner.export("a"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_copied_and_sent(name):
    learner = quick_learner(lenet()).add_random_masks(3)
    result = RESULTS[name](learner.learn_task("a", blobs(1)).learn_task("b", blobs(2)))
    for copied in (*COPIES.values(), partial(elsewhere, copy.copy)):
        assert repr(copied(result)) == repr(result)


MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


def infer(learner):
    learner.learn_task("a", blobs(1)).learn_task("b", blobs(2))
    learner.infer_task(blobs(1)[0][:8], method="alpha", recipe={"min_steps": 2})


VERBS = {
    "learn_task": lambda learner: learner.learn_task("a", blobs(1)),
    "learn_basis": lambda learner: learner.learn_basis("a", blobs(1)),
    "learn_tasks": lambda learner: learner.learn_tasks({"a": blobs(1)}, batched=True),
    "update_task": lambda learner: learner.learn_task("a", blobs(1)).update_task("a", blobs(2)),
    "infer_task": infer,
    "train_mask": lambda learner: il.masks.train_mask(learner.backbone, blobs(1), recipe=QUICK),
    "prune": lambda learner: il.masks.prune(learner.backbone, blobs(1), rounds=1, recipe=QUICK),
    "adapt": lambda learner: quick_learner(il.adapt(ConvNet())).learn_task("a", pictures(1)),
    "export": lambda learner: learner.learn_task("a", blobs(1)).export("a")(blobs(1)[0]),
    "staged": lambda _: staged(turned()).learn_task("rings", rings()),
    "zero_shot_score": lambda learner: learner.zero_shot_score(blobs(1)),
}
for baseline, make in BASELINES.items():
    VERBS[baseline] = lambda _, make=make: make().learn_task("a", blobs(1))


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


def test_learning_leaves_the_random_state_of_the_caller():
    def noise():
        return 0.1 * torch.randn(())

    learner = quick_learner(il.adapt(ConvNet())).add_random_masks(3)
    before = torch.random.get_rng_state()
    learner.learn_task("dropout", pictures(1))
    learner.learn_tasks({"stream": Pairs(*pictures(2), noise)}, batched=True)
    assert torch.equal(torch.random.get_rng_state(), before)
