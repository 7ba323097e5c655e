"""SupSup, single masks, the hybrid and fine-tuning: accuracy and bytes."""

from dataclasses import replace

import pytest
import torch

import impresslearn as il
from impresslearn.masks import random_bank
from impresslearn.masks.codec import encode_mask
from impresslearn.methods import FineTuning, Hybrid, SupSup
from toys import BASELINES, QUICK, blobs, lenet, pictures, quick_learner, resnet

STREAM = il.streams.permuted_digits(tasks=3, seed=0)
CHANNELS = 4 * (1 + 4 + (4 + 1) * 2 + (4 + 1) * 4 + (4 + 1) * 8)


def coded(*masks):
    """Bytes of a mask of these layers, as a store keeps it."""
    return len(encode_mask([mask.flatten(1).numpy() for mask in masks]))


def head_bytes(hybrid, task):
    """Bytes of a learned head's mask."""
    return coded(hybrid._views[task].weights[hybrid.backbone.layers[-1].name] != 0)


def test_supsup_keeps_a_mask_a_task_and_predicts_with_it():
    backbone = il.create_backbone("lenet_300_100", in_features=64, widths=(40, 20))
    supsup = SupSup(backbone, sparsity=0.8, progress=False)
    for task in STREAM[:2]:
        assert supsup.learn_task(task.name, task.train) is supsup
    for task in STREAM[:2]:
        test, info = task.test, supsup.tasks_[task.name]
        right = supsup.predict(test.inputs, task.name) == test.labels
        assert right.mean() == supsup.score(test, task.name) > 0.9
        assert info.role == "basis"
        assert info.bytes == coded(*supsup.bank_.mask(task.name).values()) + 2 + 2 + 19
        for method in ("one_shot", "exhaustive"):
            assert supsup.infer_task(test.inputs[:64], method=method).task == task.name
        assert (supsup.predict(test.inputs) == test.labels).mean() > 0.9


def test_the_hybrid_s_head_is_a_mask():
    backbone, data = lenet(), blobs()
    bank = random_bank(backbone.layers, 3, 0.5)
    settings = {"sparsity": 0.5, "allocation": "uniform", "recipe": QUICK, "progress": False}
    hybrid = Hybrid(backbone, bank, **settings).learn_task("a", data)
    head = hybrid._views["a"].weights["4.weight"]
    kept = head != 0
    assert kept.sum() == 18
    assert torch.equal(head[kept], backbone.weights["4.weight"][kept])
    assert hybrid.score(data, "a") > 0.8
    # 3 coefficients for each of two layers, and the mask of the head
    assert hybrid.tasks_["a"].bytes == 3 * 2 * 4 + head_bytes(hybrid, "a") + 2


def test_the_hybrid_learns_its_basis_as_impresslearn_does():
    hybrid = Hybrid(lenet(), recipe=QUICK, basis_recipe=QUICK, sparsity=0.7, progress=False)
    learner = quick_learner().learn_basis("a", blobs())
    hybrid.learn_basis("a", blobs()).learn_task("b", blobs(1))
    assert [info.role for info in hybrid.tasks_.values()] == ["basis", "learned"]
    assert hybrid.tasks_["a"].bytes == learner.tasks_["a"].bytes
    assert hybrid.score(blobs(), "a") == learner.score(blobs(), "a")


@pytest.mark.parametrize(
    ("norm", "floats"), [("batch", 0), ("group", 0), ("per_task", CHANNELS), ("shared", CHANNELS)]
)
def test_norm_statistics_are_counted(norm, floats):
    backbone, data = resnet(norm), pictures(size=16)
    how = {"recipe": replace(QUICK, min_steps=30), "progress": False}  # enough to settle
    tuned = FineTuning(backbone, **how).learn_task("a", data)
    assert tuned.tasks_["a"].bytes == 4 * backbone.num_maskable + 2 * 4 * floats + 2
    assert tuned.score(data, "a") > 0.9
    hybrid = Hybrid(backbone, random_bank(backbone.layers, 2), **how).learn_task("a", data)
    head = head_bytes(hybrid, "a")
    assert hybrid.tasks_["a"].bytes == 2 * 20 * 4 + head + 2 * 4 * floats + 2


@pytest.mark.parametrize("name", ["FineTuning", "Hybrid", "SupSup"])
def test_a_task_changes_no_other(name):
    baseline = BASELINES[name]()
    inputs, labels = blobs()
    before = baseline.backbone.fingerprint()
    baseline.learn_task("a", (inputs, labels))
    score, others = baseline.score(blobs(), "a"), baseline.predict(blobs(9)[0], "a")
    names = [("ant", "bee", "cat")[label] for label in labels.tolist()]
    baseline.learn_task("b", (inputs, names))
    assert set(baseline.predict(inputs, "b")) <= {"ant", "bee", "cat"}
    assert baseline.score(blobs(), "a") == score
    assert (baseline.predict(blobs(9)[0], "a") == others).all()
    assert baseline.backbone.fingerprint() == before
