"""A learner's verbs: what is learned, what comes back, and what a seed decides."""

import math
import re
import warnings

import numpy as np
import pytest
import torch

from impresslearn import Recipe, adapt, streams
from impresslearn.coefficients.masks import equal_alphas, mix
from impresslearn.errors import NotLearnedWarning, TrainingError
from impresslearn.store.store import Store
from toys import ConvNet, blobs, lenet, pictures, quick_learner, refused, same

LABEL_SETS = {  # labels, and the bytes that a task keeps for them
    (0, 1, 2): 2,
    (-5, 7, 100_000): 14,
    ("ant", "bee", "Straße"): 18,
    ("10", "9", "a longer label, with spaces"): 35,
}


def named(seed, classes):
    """The blobs of a seed with these labels."""
    inputs, labels = blobs(seed, len(classes))
    return inputs, np.asarray(classes)[labels.numpy()]


@pytest.fixture(scope="module")
def learner():
    """Two basis tasks and two learned ones, with different kinds of labels."""
    learner = quick_learner(granularity="unit").add_random_masks(10)
    for seed, classes in enumerate(LABEL_SETS):
        verb = learner.learn_basis if seed < 2 else learner.learn_task
        verb(f"task-{seed}", named(seed, classes))
    return learner


def test_tasks_are_learned_and_their_labels_come_back(learner):
    for seed, (classes, size) in enumerate(LABEL_SETS.items()):
        inputs, labels = named(seed, classes)
        assert learner.tasks_[f"task-{seed}"].breakdown["labels"] == size
        predicted = learner.predict(inputs, f"task-{seed}")
        assert predicted.dtype.kind == labels.dtype.kind
        assert (predicted == labels).mean() > 0.9
        assert learner.score((inputs, labels), f"task-{seed}") == (predicted == labels).mean()
        assert learner.tasks_[f"task-{seed}"].classes == tuple(sorted(classes))
        logits = learner.logits(inputs, f"task-{seed}")
        assert logits.shape == (96, len(classes))
        assert (np.array(sorted(classes))[logits.argmax(1).numpy()] == predicted).all()
    assert learner.predict(torch.zeros(0, 16), []).shape == (0,)


def test_a_mixed_batch_equals_the_tasks_apart(learner):
    inputs = torch.cat([blobs(seed)[0] for seed in range(4)])
    names = [f"task-{i % 4}" for i in range(len(inputs))]
    apart = {name: learner.predict(inputs, name) for name in set(names)}
    expected = [apart[name][row] for row, name in enumerate(names)]
    for form in (names, np.array(names)):
        mixed = learner.predict(inputs, form)
        assert mixed.dtype == object
        assert mixed.tolist() == expected
    assert learner.predict(inputs[:2], ["task-3", "task-2"]).dtype.kind == "U"


@pytest.mark.parametrize(
    ("make", "data"), [(lenet, blobs), (lambda: adapt(ConvNet()), pictures)], ids=["plain", "drop"]
)
def test_a_seed_gives_the_same_bits(make, data):
    def run(seed, names="cd"):
        learner = quick_learner(make(), seed=seed, granularity="unit", output_scale=True)
        learner.learn_basis("a", data(0)).learn_homogeneous("b", data(1), 2).add_random_masks(2)
        for name in names:
            learner.learn_task(name, data(2))
        masks = [learner.bank_.mask(name) for name in learner.bank_.names]
        return [*masks, dict(enumerate(learner.coefficients_["c"].tensors()))]

    first = run(0)
    torch.manual_seed(123)
    again, other = run(0, names="dc"), run(1)  # seeds depend on names, not on their order
    for mine, repeated, others in zip(first, again, other, strict=True):
        assert same(mine, repeated)
        assert not same(mine, others)


def test_shared_statistics_are_those_of_the_first_task():
    backbone = adapt(ConvNet())
    learner = quick_learner(backbone)
    assert learner.shared_statistics_ is None
    learner.learn_basis("a", pictures(0), seed=0)
    first = {name: value.clone() for name, value in learner.shared_statistics_.items()}
    assert not same(first, learner.backbone.initial_statistics())
    learner.learn_basis("b", pictures(0), seed=1).learn_task("c", pictures(2))
    assert same(learner.shared_statistics_, first)
    both = quick_learner(backbone).learn_homogeneous("a", pictures(0), 2, seeds=[0, 1]).bank_
    assert same(both.mask("a/1"), learner.bank_.mask("b"))


def test_an_unlearned_task_is_met_with_the_equal_mixture_of_all_masks():
    learner = quick_learner().add_random_masks(2).learn_basis("a", blobs(0))
    inputs, labels = blobs(5)
    weights = mix(learner.bank_, learner.backbone.weights, equal_alphas(learner.bank_))
    share = (learner.backbone.forward(weights, inputs).argmax(1) == labels).float().mean()
    assert learner.zero_shot_score((inputs, labels)) == pytest.approx(float(share))


def test_what_a_terminal_and_a_notebook_show_is_short():
    learner = quick_learner().learn_basis("a<b>", blobs(0)).learn_task("c", blobs(1))
    long = streams.rotated_digits(tasks=62)
    assert repr(long[0].train) == "Examples(1,348 inputs of (1, 8, 8), 10 classes)"
    assert re.fullmatch(".{,300}", repr(learner))
    stream = streams.from_arrays({"a<b>": (blobs(0), blobs(0))})
    for each in (learner, learner.tasks_, learner.tasks_["a<b>"], learner.bank_, stream):
        assert "<td>a&lt;b&gt;</td>" in each._repr_html_()
        assert "a<b>" not in each._repr_html_()
    learner.learn_tasks({f"more {number}": blobs(number) for number in range(60)})
    for each in (learner.tasks_, learner.add_random_masks(61).bank_, long):
        assert "<p>and 12 more</p>" in each._repr_html_()
    assert "<td class=right>29.9%</td>" in learner.bank_._repr_html_()


STILL = Recipe(lr=1e-9, epochs=0, min_steps=2)
DEAR = {"precision": "coded", "bit_price": 1e4}


@pytest.mark.parametrize(
    ("verb", "hint", "settings"),
    [
        ("learn_task", "lower the bit_price", DEAR),
        ("learn_task", "lower the bit_price", DEAR | {"granularity": "readout"}),
        ("learn_task", "more steps", {"task_recipe": STILL}),
        ("learn_basis", "more steps", {"basis_recipe": STILL}),
    ],
)
def test_a_task_that_was_not_learned_is_told_of(verb, hint, settings):
    head = "own" if "granularity" in settings else "shared"
    learner = quick_learner(lenet(4, head=head), **settings).add_random_masks(3)
    with pytest.warns(NotLearnedWarning, match=f"stored all the same; .*{hint}.*--min-") as told:
        getattr(learner, verb)("a", blobs(classes=4))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick_learner().add_random_masks(12).learn_task("a", blobs())


def test_a_task_whose_outputs_are_not_finite_is_not_kept(monkeypatch):
    learner = quick_learner().add_random_masks(3)
    made = Store._weights

    def spoiled(self, task):
        return {name: values * math.nan for name, values in made(self, task).items()}

    monkeypatch.setattr(Store, "_weights", spoiled)
    refused("NaN or infinite", learner.learn_task, "a", blobs(1), error=TrainingError)
    assert not len(learner.tasks_)
