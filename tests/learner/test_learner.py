"""A learner's verbs: what is learned, what comes back, and what a seed decides."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from impresslearn import ImpressLearner, Recipe, adapt, streams
from impresslearn.coefficients.masks import equal_alphas, mix
from impresslearn.data import Examples, StreamedExamples
from impresslearn.errors import InputError, NotLearnedWarning, UnknownTaskError
from impresslearn.masks import random_bank
from toys import QUICK, ConvNet, blobs, lenet, pictures, quick_learner, refused, resnet

LABEL_SETS = [
    (0, 1, 2),
    (-5, 7, 100_000),
    ("ant", "bee", "Straße"),
    ("10", "9", "a longer label, with spaces"),
]


def named(seed, classes):
    """The blobs of a seed with these labels."""
    inputs, labels = blobs(seed, len(classes))
    return inputs, np.asarray(classes)[labels.numpy()]


def same(first, second):
    """Whether two collections of tensors are equal bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.fixture(scope="module")
def learner():
    """Two basis tasks and two learned ones, with different kinds of labels."""
    learner = quick_learner(granularity="unit").add_random_masks(10)
    for seed, classes in enumerate(LABEL_SETS):
        verb = learner.learn_basis if seed < 2 else learner.learn_task
        verb(f"task-{seed}", named(seed, classes))
    return learner


def test_verbs_return_the_learner_and_attributes_tell_what_it_holds():
    learner = quick_learner()
    assert (len(learner.bank_), len(learner.tasks_), learner.coefficients_) == (0, 0, {})
    assert learner.learn_basis("a", blobs(0)) is learner
    assert learner.learn_homogeneous("b", blobs(1), 2) is learner
    assert learner.add_random_masks(3) is learner
    assert learner.learn_task("c", blobs(2)) is learner
    assert learner.bank_.names == ("a", "b", "b/1", "random-0", "random-1", "random-2")
    assert list(learner.tasks_) == ["a", "b", "c"]
    assert [info.role for info in learner.tasks_.values()] == ["basis", "basis", "learned"]
    assert [info.num_masks for info in learner.tasks_.values()] == [1, 2, 6]
    assert list(learner.coefficients_) == ["c"]
    assert "\n" not in repr(learner)


def test_tasks_are_learned_and_their_labels_come_back(learner):
    for seed, classes in enumerate(LABEL_SETS):
        inputs, labels = named(seed, classes)
        predicted = learner.predict(inputs, f"task-{seed}")
        assert predicted.dtype.kind == labels.dtype.kind
        assert (predicted == labels).mean() > 0.9
        assert learner.score((inputs, labels), f"task-{seed}") == (predicted == labels).mean()
        assert learner.tasks_[f"task-{seed}"].classes == tuple(sorted(classes))
        logits = learner.logits(inputs, f"task-{seed}")
        assert logits.shape == (96, len(classes))
        assert (np.array(sorted(classes))[logits.argmax(1).numpy()] == predicted).all()
    for tasks in ("task-0", []):
        assert learner.predict(torch.zeros(0, 16), tasks).shape == (0,)


def test_a_mixed_batch_equals_the_tasks_apart(learner):
    inputs = torch.cat([blobs(seed)[0] for seed in range(4)])
    names = [f"task-{i % 4}" for i in range(len(inputs))]
    apart = {name: learner.predict(inputs, name) for name in set(names)}
    expected = [apart[name][row] for row, name in enumerate(names)]
    for form in (names, tuple(names), np.array(names)):
        mixed = learner.predict(inputs, form)
        assert mixed.dtype == object
        assert mixed.tolist() == expected
    of_strings = learner.predict(inputs[:4], ["task-3", "task-2", "task-3", "task-2"])
    assert of_strings.dtype.kind == "U"
    assert of_strings.tolist() == [apart[f"task-{t}"][row] for row, t in enumerate((3, 2, 3, 2))]


def test_fewer_classes_than_outputs():
    learner = quick_learner(lenet(num_classes=10)).learn_basis("a", blobs(0, 3))
    learner.learn_task("b", blobs(1, 2)).learn_task("c", blobs(2, 10))
    noise = 100 * torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    for name, classes in (("a", 3), ("b", 2), ("c", 10)):
        assert learner.logits(noise, name).shape == (200, classes)
        assert set(learner.predict(noise, name)) <= set(range(classes))


@pytest.mark.parametrize(
    ("make", "data"), [(lenet, blobs), (lambda: adapt(ConvNet()), pictures)], ids=["plain", "drop"]
)
def test_a_seed_gives_the_same_bits(make, data):
    def run(seed):
        learner = quick_learner(make(), seed=seed, granularity="unit", output_scale=True)
        learner.learn_basis("a", data(0)).learn_homogeneous("b", data(1), 2).add_random_masks(2)
        learner.learn_task("c", data(2))
        names = learner.bank_.names
        masks = [tensor for name in names for tensor in learner.bank_.mask(name).values()]
        return masks, list(learner.coefficients_["c"].tensors())

    first = run(0)
    torch.manual_seed(123)
    again, other = run(0), run(1)
    for mine, repeated, others in zip(first, again, other, strict=True):
        assert same(mine, repeated)
        assert not same(mine, others)


def test_a_bank_given_is_the_one_drawn_by_the_same_seed():
    backbone = lenet()
    given = quick_learner(backbone, bank=random_bank(backbone.layers, 4, 0.7, seed=3))
    drawn = quick_learner(backbone, seed=3).add_random_masks(4)
    assert given.bank_.names == drawn.bank_.names
    first, second = (each.learn_task("t", blobs(), seed=9) for each in (given, drawn))
    assert same(first.coefficients_["t"].tensors(), second.coefficients_["t"].tensors())
    with pytest.raises(InputError, match="other layers"):
        ImpressLearner(lenet(num_classes=4), bank=given.bank_)
    with pytest.raises(InputError, match=r"got Linear; wrap your own module with adapt"):
        ImpressLearner(nn.Linear(2, 2))


BYTES = [
    # weights 16-24-12-3, three masks; float16 steps (and offsets of scales) for rounded numbers
    ({}, 3 * 3 * 4),
    ({"precision": "float16"}, 3 * 3 * 2),
    ({"precision": "int8"}, 3 * (3 + 2)),
    ({"precision": "int4"}, 3 * (2 + 2)),
    ({"granularity": "unit"}, 3 * (24 + 12 + 3) * 4),
    ({"granularity": "unit", "precision": "int4"}, 36 + 18 + 5 + (24 + 12 + 3) * 2),
    ({"granularity": "unit", "precision": "int5"}, 45 + 23 + 6 + (24 + 12 + 3) * 2),
    ({"output_scale": True}, 3 * 3 * 4 + (24 + 12 + 3) * 4),
    ({"output_scale": True, "precision": "int4"}, 3 * (2 + 2) + (12 + 4) + (6 + 4) + (2 + 4)),
]


@pytest.mark.parametrize(("settings", "size"), BYTES)
def test_bytes_of_a_learned_task(settings, size):
    learner = quick_learner(task_recipe=Recipe(epochs=1), **settings).add_random_masks(3)
    for number, (classes, label_map) in enumerate(zip(LABEL_SETS, (2, 14, 18, 35), strict=True)):
        info = learner.learn_task(f"t{number}", named(0, classes)).tasks_[f"t{number}"]
        assert (info.breakdown["coefficients"], info.breakdown["labels"]) == (size, label_map)
        told = 2 + 11 + 16  # two entropies, and what inputs of 16 values look like
        assert info.bytes == size + label_map + told
    learner.add_random_masks(3)
    assert learner.tasks_[info.name] == info


@pytest.mark.parametrize("norm", ["batch", "per_task", "shared", "group"])
def test_bytes_of_norm_statistics(norm):
    learner = quick_learner(
        resnet(norm), task_recipe=Recipe(epochs=1), basis_recipe=Recipe(epochs=1)
    )
    learner.learn_basis("a", pictures(0)).learn_task("b", pictures(1))
    channels = 4 * (1 + 4 + (4 + 1) * 2 + (4 + 1) * 4 + (4 + 1) * 8)
    expected = channels * 2 * 4 if norm == "per_task" else 0
    for info in learner.tasks_.values():
        assert info.breakdown["statistics"] == expected
    assert learner.tasks_["b"].bytes == 21 * 4 + expected + 2 + 2 + 19
    assert (learner.shared_statistics_ is not None) == (norm == "shared")
    assert (learner.statistics_of("b") is not None) == (norm in ("per_task", "shared"))


def test_seeds_depend_on_names_and_on_nothing_else():
    one = quick_learner(seed=4).add_random_masks(2)
    two = quick_learner(seed=4).add_random_masks(2)
    one.learn_task("a", blobs(0)).learn_task("b", blobs(1)).update_task("a", blobs(0))
    two.learn_task("b", blobs(1)).learn_task("a", blobs(0)).update_task("a", blobs(0))
    inputs = blobs(2)[0]
    for name in "ab":
        assert torch.equal(one.logits(inputs, name), two.logits(inputs, name))
    seeds = [one.tasks_[name].history["recipe"]["seed"] for name in "ab"]
    seeds += [version.history["recipe"]["seed"] for version in one.versions("a")[:1]]
    other = quick_learner(seed=5).add_random_masks(2).learn_task("a", blobs(0))
    assert len({*seeds, other.tasks_["a"].history["recipe"]["seed"]}) == 4


def test_homogeneous_masks_depend_on_their_seeds_alone():
    learner = quick_learner().learn_homogeneous("a", blobs(), 3, seeds=[5, 9, 2])
    assert learner.bank_.names == ("a", "a/1", "a/2")
    assert list(learner.tasks_) == ["a"]
    for name, seed in (("a", 5), ("a/1", 9), ("a/2", 2)):
        alone = quick_learner().learn_basis("x", blobs(), seed=seed)
        assert same(learner.bank_.mask(name).values(), alone.bank_.mask("x").values())
        assert learner.bank_.infos[learner.bank_.index(name)].recipe["seed"] == seed
    assert learner.learn_task("b", blobs(1)).score(blobs(1), "b") > 0.8
    drawn = quick_learner(seed=4).learn_homogeneous("a", blobs(), 2)
    assert len({info.recipe["seed"] for info in drawn.bank_.infos}) == 2
    for seeds in ([1], [1, 1], [1, 2, 3], []):
        with pytest.raises(InputError, match="2 masks need 2 distinct seeds"):
            learner.learn_homogeneous("c", blobs(), 2, seeds=seeds)


@pytest.mark.parametrize("settings", [{}, {"granularity": "unit", "output_scale": True}])
def test_the_cache_changes_no_bit(settings):
    learners = [quick_learner(cache_bytes=size, **settings) for size in (0, 3000, 2**20)]
    for learner in learners:
        learner.learn_basis("a", blobs(0)).learn_task("b", blobs(1)).learn_task("c", blobs(2))
    for name in "abcabc":
        first, *others = (learner.logits(blobs(3)[0], name) for learner in learners)
        assert all(torch.equal(first, other) for other in others)


def test_data_come_in_many_forms():
    inputs, labels = blobs()
    learner = quick_learner().learn_basis("a", (inputs, labels))
    streamed = StreamedExamples(TensorDataset(inputs, labels), labels.numpy(), workers=0)
    for verb in (learner.learn_basis, learner.learn_task):
        verb(verb.__name__, streamed)
        score = learner.score(streamed, verb.__name__)
        assert score == learner.score((inputs, labels), verb.__name__) > 0.8
    expected = learner.learn_task("pair", (inputs, labels), seed=0).coefficients_["pair"].alpha
    forms = {
        "arrays": (inputs.numpy(), labels.numpy()),
        "double": (inputs.double(), labels),
        "dataset": TensorDataset(inputs, labels),
        "examples": Examples(inputs, labels.numpy()),
        "square": (inputs.reshape(-1, 4, 4), labels),
    }
    for name, data in forms.items():
        learner.learn_task(name, data, seed=0)
        assert same(learner.coefficients_[name].alpha, expected)
        assert learner.score(data, name) == learner.score((inputs, labels), "pair")


def test_augmentation_is_used_while_learning_only():
    calls = []

    def augment(batch, generator):
        calls.append(len(batch))
        return batch.flip(1)

    inputs, labels = blobs()
    data = Examples(inputs, labels.numpy(), augment)
    learner = quick_learner().learn_basis("a", data)
    assert learner.score((inputs.flip(1), labels), "a") > learner.score(data, "a")
    assert calls == [32] * 60


@pytest.mark.parametrize(
    ("dtype", "network"),
    [(torch.float16, None), (torch.bfloat16, None), (torch.float64, None), (None, torch.float64)],
    ids=str,
)
def test_inputs_and_networks_in_other_number_formats(dtype, network):
    inputs, labels = blobs()
    data = (inputs.to(dtype or inputs.dtype), labels)
    backbone = adapt(lenet().module.to(network or inputs.dtype))
    learner = quick_learner(backbone).learn_basis("a", data).learn_task("b", data)
    assert learner.logits(data[0], "b").dtype == (network or inputs.dtype)
    assert learner.score(data, "b") > 0.8
    assert learner.infer_task(data[0]).best in ("a", "b")


@pytest.mark.parametrize(
    "backbone",
    [pytest.param(resnet("shared"), marks=pytest.mark.nightly), adapt(ConvNet())],
    ids=["own", "adapted"],
)
def test_shared_statistics_are_those_of_the_first_task(backbone):
    learner = quick_learner(backbone)
    assert learner.shared_statistics_ is None
    learner.learn_basis("a", pictures(0), seed=0)
    first = [value.clone() for value in learner.shared_statistics_.values()]
    start = [*learner.backbone.initial_statistics().values()]
    assert not same(first, start)
    learner.learn_basis("b", pictures(0), seed=1).learn_task("c", pictures(2))
    assert same(learner.shared_statistics_.values(), first)
    both = quick_learner(backbone).learn_homogeneous("a", pictures(0), 2, seeds=[0, 1]).bank_
    assert same(both.mask("a/1").values(), learner.bank_.mask("b").values())


def test_a_pretrained_network_keeps_its_shared_statistics():
    module = ConvNet()
    module(pictures(2)[0])
    learner = quick_learner(adapt(module, norm="shared")).learn_basis("a", pictures(0))
    start = learner.backbone.initial_statistics()
    assert same(learner.shared_statistics_.values(), start.values())


def test_an_unlearned_task_is_met_with_the_equal_mixture_of_all_masks():
    learner = quick_learner().add_random_masks(2).learn_basis("a", blobs(0))
    inputs, labels = blobs(5)
    weights = mix(learner.bank_, learner.backbone.weights, equal_alphas(learner.bank_))
    right = learner.backbone.forward(weights, inputs).argmax(1) == labels
    assert learner.zero_shot_score((inputs, labels)) == pytest.approx(float(right.float().mean()))
    refused("96 classes, the backbone only 3", learner.zero_shot_score, (inputs, torch.arange(96)))


def test_the_penalty_draws_the_shares_to_one():
    shares, recipe = [], replace(QUICK, min_steps=300)
    for penalty in (0.0, 1.0):
        learner = quick_learner(penalty=penalty, task_recipe=recipe).add_random_masks(5)
        alphas = learner.learn_task("t", blobs()).coefficients_["t"].alpha
        shares.append(max(abs(float(alpha.abs().sum()) - 1) for alpha in alphas))
    assert shares[1] < 0.2 < 0.5 < shares[0]


def test_few_labels_suffice_on_a_bank_of_related_tasks():
    learner = quick_learner()
    for seed in range(4):
        learner.learn_basis(f"basis-{seed}", blobs(0), seed=seed)
    inputs, labels = blobs(0, count=600)
    learner.learn_task("new", (inputs[:6], labels[:6]))
    assert learner.score((inputs, labels), "new") > 0.9


def test_without_a_name_the_task_is_inferred_and_inputs_of_none_are_refused():
    learner = quick_learner().learn_basis("a", blobs(0)).learn_basis("b", blobs(1))
    inputs = blobs(1)[0]
    assert learner.predict(inputs).tolist() == learner.predict(inputs, "b").tolist()
    strangers = torch.randn(128, 16, generator=torch.Generator().manual_seed(1)) / 10
    assert learner.infer_task(strangers).unknown
    with pytest.raises(UnknownTaskError, match="look like none of the tasks: best match"):
        learner.predict(strangers)
    with pytest.raises(InputError, match="a guess by 'exhaustive' holds no mixture; use method="):
        learner.predict_with(inputs, learner.infer_task(inputs))


def test_what_a_terminal_and_a_notebook_show_is_short():
    learner = quick_learner().learn_basis("a<b>", blobs(0)).learn_task("c", blobs(1))
    examples, kept = streams.rotated_digits(tasks=1)[0].train, learner.tasks_.learned("c")
    assert repr(examples) == "Examples(1,348 inputs of (1, 8, 8), 10 classes)"
    shown = [learner, learner.tasks_]
    assert all(len(repr(each)) < 300 for each in shown)
    assert "\\x" not in repr(kept)  # no bytes of coefficients
    for each in shown:
        assert "a&lt;b&gt;" in each._repr_html_()
        assert "a<b>" not in each._repr_html_()
    assert "no task" in quick_learner()._repr_html_()
    learner.learn_tasks({f"more {number}": blobs(number) for number in range(60)})
    assert "and 12 more" in learner.tasks_._repr_html_()


def test_settings_of_other_kinds_are_an_error_of_one_line():
    learner = quick_learner().add_random_masks(3)
    refused("tasks must map names to labelled data, got list", learner.learn_tasks, [blobs()])
    for verb in (learner.learn_tasks, learner.learn_homogeneous):
        given = ({"a": blobs()},) if verb == learner.learn_tasks else ("a", blobs(), 2)
        refused("batched must be True or False", verb, *given, batched="yes")
    refused("momentum of adam must be below 1", Recipe, momentum=1.5)
    learner.learn_task("a", blobs()).learn_task("b", blobs(5))
    few = {"recipe": {"epochs": 1, "min_steps": 2}}
    assert learner.infer_task(blobs()[0], method="alpha", **few).best in ("a", "b")
    refused("penalty must be", learner.infer_task, blobs()[0], method="alpha", penalty="x")


@pytest.mark.parametrize("way", ["price", "steps", "readout", "basis"])
def test_a_task_that_was_not_learned_is_told_of(way):
    still = Recipe(lr=1e-9, epochs=0, min_steps=2)
    hint = {"price": "lower the bit_price", "readout": "lower the bit_price"}.get(way, "more steps")
    coded = {"precision": "coded", "bit_price": 1e4}
    settings = {"price": coded, "readout": coded | {"granularity": "readout"}}.get(
        way, {"task_recipe": still, "basis_recipe": still}
    )
    backbone = lenet(4, head="own") if way == "readout" else lenet(4)
    learner = quick_learner(backbone, **settings).add_random_masks(3)
    data = blobs(classes=4)
    verb = learner.learn_basis if way == "basis" else learner.learn_task
    with pytest.warns(NotLearnedWarning, match=f"'a' was not learned: .* {hint}") as told:
        verb("a", data)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick_learner().add_random_masks(12).learn_task("a", blobs())
