from dataclasses import replace

import pytest
import torch

import impresslearn as il
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference import TaskGuess
from impresslearn.masks import random_bank
from impresslearn.masks.codec import encode_mask
from impresslearn.methods import FineTuning, Hybrid, SupSup, single_mask_accuracy
from impresslearn.optimisation.loop import Recipe
from toys import QUICK, blobs, lenet, pictures, quick_learner, resnet

STREAM = il.streams.permuted_digits(tasks=4, seed=0)
WEIGHTS = 16 * 24 + 24 * 12 + 12 * 3
CHANNELS = 4 * (1 + 4 + (4 + 1) * 2 + (4 + 1) * 4 + (4 + 1) * 8)


def coded(*masks):
    """Bytes of a mask of these layers, as a store keeps it."""
    return len(encode_mask([mask.flatten(1).numpy() for mask in masks]))


def head_bytes(hybrid, task):
    """Bytes of a learned head's mask."""
    return coded(hybrid._tuned._views[task].weights[hybrid.backbone.layers[-1].name] != 0)


@pytest.fixture(scope="module")
def backbone():
    return il.create_backbone(
        "lenet_300_100", 10, in_features=64, widths=(40, 20), init="signed_constant", gain=2
    )


@pytest.fixture(scope="module")
def supsup(backbone):
    supsup = SupSup(backbone, sparsity=0.8, progress=False)
    for task in STREAM[:3]:
        assert supsup.learn_task(task.name, task.train) is supsup
    return supsup


def test_supsup_with_the_task_known(supsup):
    for task in STREAM[:3]:
        test = task.test
        assert supsup.score(test, task.name) > 0.9
        right = supsup.predict(test.inputs, task.name) == test.labels
        assert right.mean() == supsup.score(test, task.name)


@pytest.mark.parametrize("method", ["one_shot", "halving"])
def test_supsup_with_the_task_inferred(supsup, method):
    for task in STREAM[:3]:
        guess = supsup.infer_task(task.test.inputs[:64], method=method)
        assert isinstance(guess, TaskGuess)
        assert guess.task == task.name
    task = STREAM[1]
    assert (supsup.predict(task.test.inputs) == task.test.labels).mean() > 0.9
    assert supsup.infer_task(task.test.inputs).method == "one_shot"


def test_supsup_keeps_a_mask_a_task_and_nothing_changes(supsup, backbone):
    assert [info.role for info in supsup.tasks_.values()] == ["basis"] * 3
    for name, info in supsup.tasks_.items():
        assert info.bytes == coded(*supsup._learner.bank_.mask(name).values()) + 2 + 4
    inputs = STREAM[0].test.inputs
    alone = SupSup(backbone, sparsity=0.8, progress=False).learn_task(
        STREAM[0].name, STREAM[0].train
    )
    before = alone.predict(inputs, STREAM[0].name)
    assert (supsup.predict(inputs, STREAM[0].name) == before).all()


def test_supsup_is_kept_in_a_store(supsup, tmp_path):
    assert supsup.save(tmp_path / "s") is supsup
    again = SupSup.load(tmp_path / "s", progress=False)
    assert again.sparsity == supsup.sparsity == il.load(tmp_path / "s").sparsity
    inputs = STREAM[0].test.inputs
    for name in STREAM.names[:3]:
        assert (again.predict(inputs, name) == supsup.predict(inputs, name)).all()
    again.learn_task("next", STREAM[3].train)
    assert again.tasks_["next"].history["recipe"]["seed"] == 3
    quick_learner().add_random_masks(1).learn_task("a", blobs()).save(tmp_path / "other")
    with pytest.raises(InputError, match="tasks without a mask of their own"):
        SupSup.load(tmp_path / "other")


def test_supsup_is_the_basis_phase(backbone):
    task = STREAM[0]
    supsup = SupSup(backbone, sparsity=0.8, progress=False).learn_task(
        task.name, task.train, seed=3
    )
    learner = il.ImpressLearner(backbone, sparsity=0.8, progress=False)
    learner.learn_basis(task.name, task.train, seed=3)
    assert supsup.score(task.test, task.name) == learner.score(task.test, task.name)
    assert supsup.tasks_[task.name] == learner.tasks_[task.name]


def test_a_foreign_mask_is_near_chance(backbone):
    learner = il.ImpressLearner(backbone, sparsity=0.8, progress=False)
    learner.learn_basis(STREAM[0].name, STREAM[0].train)
    own = single_mask_accuracy(learner, STREAM[0].name, STREAM[0].test)
    assert own == learner.score(STREAM[0].test, STREAM[0].name) > 0.9
    learner.learn_basis(STREAM[1].name, STREAM[1].train)
    for name in STREAM.names[:2]:
        own = single_mask_accuracy(learner, name, STREAM[name].test)
        assert own == learner.score(STREAM[name].test, name)
    foreign = [single_mask_accuracy(learner, STREAM[0].name, task.test) for task in STREAM[1:]]
    assert max(foreign) < 0.3
    assert sum(foreign) / 3 < 0.2


@pytest.mark.parametrize("norm", ["per_task", "shared", "batch"])
def test_a_single_mask_that_belongs_to_no_task(norm):
    learner = quick_learner(resnet(norm)).learn_homogeneous("a", pictures(), 2).add_random_masks(1)
    assert single_mask_accuracy(learner, "a", pictures()) == learner.score(pictures(), "a") > 0.9
    for mask in ("a/1", "random-0"):
        assert 0 <= single_mask_accuracy(learner, mask, pictures()) <= 1
    with pytest.raises(UnknownTaskError, match="no mask named 'b'"):
        single_mask_accuracy(learner, "b", pictures())


def test_the_hybrid_lies_between(backbone, supsup):
    bank = random_bank(backbone.layers, 20, 0.8)
    task = STREAM[3]
    hybrid = Hybrid(backbone, bank, sparsity=0.8, progress=False)
    assert hybrid.learn_task(task.name, task.train) is hybrid
    learner = il.ImpressLearner(backbone, bank=bank, progress=False)
    learner.learn_task(task.name, task.train)
    accuracy = hybrid.score(task.test, task.name)
    assert accuracy > 0.6
    assert accuracy > learner.score(task.test, task.name) - 0.02
    # 20 coefficients for each of two layers, and the mask of the head
    assert hybrid.tasks_[task.name].bytes == 20 * 2 * 4 + head_bytes(hybrid, task.name) + 2


def test_the_hybrid_s_head_is_a_mask():
    backbone, data = lenet(), blobs()
    bank = random_bank(backbone.layers, 3, 0.5)
    hybrid = Hybrid(
        backbone, bank, sparsity=0.5, allocation="uniform", recipe=QUICK, progress=False
    )
    hybrid.learn_task("a", data)
    weights = hybrid._tuned._views["a"].weights
    head = weights["4.weight"]
    kept = head != 0
    assert kept.sum() == 18
    assert torch.equal(head[kept], backbone.weights["4.weight"][kept])
    assert hybrid.score(data, "a") > 0.8


def test_fine_tuning_is_best_and_dearest(backbone, supsup):
    recipe = Recipe(lr=0.01, min_steps=300)
    tuned = FineTuning(backbone, recipe=recipe, progress=False)
    for task in STREAM[:2]:
        assert tuned.learn_task(task.name, task.train) is tuned
    for task in STREAM[:2]:
        test = task.test
        accuracy = tuned.score(test, task.name)
        assert accuracy > 0.93
        assert (tuned.predict(test.inputs, task.name) == test.labels).mean() == accuracy
        assert tuned.tasks_[task.name].bytes == 4 * (64 * 40 + 40 * 20 + 20 * 10) + 2
        assert tuned.tasks_[task.name].bytes > 10 * supsup.tasks_[task.name].bytes


@pytest.mark.parametrize(
    ("norm", "floats"), [("batch", 0), ("group", 0), ("per_task", CHANNELS), ("shared", CHANNELS)]
)
def test_norm_statistics_are_counted(norm, floats):
    backbone, data = resnet(norm), pictures(size=16)
    recipe = replace(QUICK, min_steps=30)  # running statistics need that many to settle
    tuned = FineTuning(backbone, recipe=recipe, progress=False).learn_task("a", data)
    weights = backbone.num_maskable
    assert tuned.tasks_["a"].bytes == 4 * weights + 2 * 4 * floats + 2
    hybrid = Hybrid(
        backbone, random_bank(backbone.layers, 2), recipe=recipe, progress=False
    ).learn_task("a", data)
    head = head_bytes(hybrid, "a")
    assert hybrid.tasks_["a"].bytes == 2 * 20 * 4 + head + 2 * 4 * floats + 2
    assert tuned.score(data, "a") > 0.9


def test_a_task_changes_no_other_and_the_backbone_neither():
    backbone, inputs = lenet(), blobs(9)[0]
    before = backbone.fingerprint()
    tuned = FineTuning(backbone, recipe=QUICK, progress=False).learn_task("a", blobs(0))
    first = tuned._views["a"].logits(backbone, inputs)
    tuned.learn_task("b", blobs(1))
    assert torch.equal(tuned._views["a"].logits(backbone, inputs), first)
    hybrid = Hybrid(backbone, random_bank(backbone.layers, 2), recipe=QUICK, progress=False)
    hybrid.learn_task("a", blobs(0))
    accuracy = hybrid.score(blobs(0), "a")
    hybrid.learn_task("b", blobs(1))
    assert hybrid.score(blobs(0), "a") == accuracy
    assert backbone.fingerprint() == before


def baselines():
    backbone = lenet()
    bank = random_bank(backbone.layers, 2)
    return [
        FineTuning(backbone, recipe=QUICK, progress=False),
        Hybrid(backbone, bank, recipe=QUICK, progress=False),
        SupSup(backbone, basis_recipe=QUICK, progress=False),
    ]


@pytest.mark.parametrize("baseline", baselines(), ids=lambda each: type(each).__name__)
def test_bad_input(baseline):
    inputs, labels = blobs()
    with pytest.raises(UnknownTaskError, match="'a': nothing was learned yet"):
        baseline.score((inputs, labels), "a")
    baseline.learn_task("a", (inputs, labels))
    mistakes = [
        (("a", (inputs, labels)), "'a' was learned already"),
        (("b", (inputs, labels * 0)), "at least two classes, got only 0"),
        (("b", (inputs, torch.arange(96) % 5)), "5 classes, the backbone only 3 outputs"),
        (("b", (inputs[:, :3], labels)), "expects 16 values an input"),
        (("b", (inputs[:0], labels[:0])), "no example"),
    ]
    for arguments, message in mistakes:
        with pytest.raises(InputError, match=message) as caught:
            baseline.learn_task(*arguments)
        assert "\n" not in str(caught.value)
    with pytest.raises(UnknownTaskError, match="no task named 'b' among 1; close: 'a'"):
        baseline.score((inputs, labels), "b")
    with pytest.raises(InputError, match="label 9 was never seen"):
        baseline.score((inputs, labels * 0 + 9), "a")
    baseline.learn_task("b", (inputs, labels))


def test_the_hybrid_learns_its_basis_as_impresslearn_does():
    hybrid = Hybrid(lenet(), recipe=QUICK, basis_recipe=QUICK, sparsity=0.7, progress=False)
    learner = quick_learner().learn_basis("a", blobs())
    hybrid.learn_basis("a", blobs()).learn_task("b", blobs(1))
    assert [info.role for info in hybrid.tasks_.values()] == ["basis", "learned"]
    assert hybrid.tasks_["a"].bytes == learner.tasks_["a"].bytes
    assert hybrid.score(blobs(), "a") == learner.score(blobs(), "a")
    for verb in (hybrid.learn_basis, hybrid.learn_task):
        for name in "ab":
            with pytest.raises(InputError, match="was learned already"):
                verb(name, blobs())


def test_a_hybrid_needs_a_body():
    backbone = il.adapt(torch.nn.Linear(4, 2))
    with pytest.raises(InputError, match="a body and a head"):
        Hybrid(backbone, random_bank(backbone.layers, 1))
