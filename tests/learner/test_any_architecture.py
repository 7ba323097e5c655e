"""Attention, token ids, GPT-2's layers: every verb, as on any network."""

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.data import as_network_inputs
from models import MODELS, VOCABULARY, padded, seeded, sentences
from toys import QUICK, Pairs, quick_learner, refused

BRIEF = il.Recipe(lr=0.03, epochs=0, min_steps=25, batch_size=16)


def parts(name, **settings):
    make, data = MODELS[name]
    return seeded(make), il.adapt(seeded(make), **settings), data


def called(module, inputs):
    """The module called as its inputs ask for."""
    if isinstance(inputs, torch.Tensor):
        return module(inputs)
    several = as_network_inputs(inputs)
    return module(*several.arguments, **several.named)


@pytest.mark.parametrize("head", ["shared", "own"])
@pytest.mark.parametrize("name", MODELS)
def test_three_tasks_are_learned_kept_and_exported_bit_for_bit(name, head, tmp_path):
    module, backbone, data = parts(name, head=head)
    learner = quick_learner(backbone, basis_recipe=BRIEF, task_recipe=BRIEF, cache_bytes=0)
    learner.add_random_masks(4).learn_basis("a", data(0, 2))
    inputs = data(7, 3)[0]
    kept = {}
    for task, classes in {"b": 3, "c": 4 if head == "shared" else 6, "d": 2}.items():
        learner.learn_task(task, data(classes, classes))
        kept[task] = learner.logits(inputs, task)
        assert kept[task].shape[1] == classes
    learner.save(tmp_path / "a.impress")
    back = il.load(tmp_path / "a.impress", module=module, progress=False)
    for task, logits in kept.items():
        assert torch.equal(learner.logits(inputs, task), logits)
        assert torch.equal(called(back.export(task), inputs), logits)  # before any forward pass
        assert torch.equal(back.logits(inputs, task), logits)
        assert torch.equal(called(learner.export(task), inputs), logits)
        assert back.tasks_[task] == learner.tasks_[task]
    assert back.backbone.layers == backbone.layers
    assert learner.infer_task(data(3, 3)[0]).best in learner.tasks_


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.float32, "list", "dataset"])
def test_token_ids_come_as_integers_of_any_kind(kind):
    _, backbone, _ = parts("sentences")
    assert (backbone.input_dtype, backbone.vocabulary) == (torch.int64, VOCABULARY)
    ids, labels = sentences()
    if isinstance(kind, torch.dtype):
        data = ids.to(kind), labels
    else:
        data = Pairs(ids, labels) if kind == "dataset" else (ids.tolist(), labels)
    learner = quick_learner(backbone, task_recipe=BRIEF).add_random_masks(4).learn_task("a", data)
    view = learner.task_model("a").view
    expected = backbone.forward(view.weights, ids)[:, :3]
    assert torch.equal(learner.logits(ids.numpy().astype(np.int32), "a"), expected)
    assert learner.infer_task(ids).best == "a"
    refused("integers from 0 to 39", learner.predict, ids + VOCABULARY, "a")


def test_several_inputs_are_evaluated_and_learned_side_by_side():
    backbone = parts("named", head="own")[1]
    learner = quick_learner(backbone, task_recipe=BRIEF).add_random_masks(2)
    tasks = {name: padded(seed) for seed, name in enumerate("ab")}
    learner.learn_tasks(tasks, batched=True)
    alone = quick_learner(backbone, task_recipe=BRIEF).add_random_masks(2)
    alone.learn_task("a", tasks["a"])
    inputs = tasks["a"][0]
    torch.testing.assert_close(learner.logits(inputs, "a"), alone.logits(inputs, "a"))
    mixed = learner.predict(inputs, ["a", "b"] * 24)
    assert (mixed[1::2] == learner.predict(inputs, "b")[1::2]).all()
    fresh = quick_learner(backbone, task_recipe=QUICK).add_random_masks(2)
    found = il.evaluate(fresh, {name: (data, data) for name, data in tasks.items()})
    assert found.matrix[-1] == tuple(fresh.score(data, name) for name, data in tasks.items())
    given, labels = tasks["a"]
    refused("give all of these", learner.predict, given["input_ids"], "a")
    given["mask"] = given.pop("attention_mask")  # the network would do without a mask
    refused("give all of these", learner.learn_task, "c", (given, labels))


def test_the_first_task_fixes_the_kinds_of_several_inputs_which_json_loses():
    _, backbone, data = parts("two", head="own")
    learner = quick_learner(backbone, granularity="readout", precision="coded")
    images, numbers = learner.learn_task("a", data()).prepare(data()[0]).tensors
    whole, least = numbers.round(), il.Inputs(images, numbers.round().long())
    assert torch.equal(learner.logits(least, "a"), learner.logits(il.Inputs(images, whole), "a"))
