import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.coefficients.mixing import Coefficients, mixed_weights
from impresslearn.errors import InputError
from impresslearn.inference.superposition import Superposition
from impresslearn.inference.task_inference import (
    SHORTLIST,
    KnownTask,
    _Search,
    entropy_profile,
    guess_task,
    relative_entropies,
)
from impresslearn.masks import random_bank
from impresslearn.masks.bank import MaskBank
from impresslearn.networks.prediction import TaskView
from impresslearn.optimisation.loop import Recipe
from impresslearn.optimisation.objectives import entropies, information_maximisation, mean_entropy
from toys import blobs, lenet, pictures, quick_learner, resnet

METHODS = ("halving", "one_shot", "alpha")
SHORT = Recipe(optimizer="rmsprop", lr=0.01, schedule="constant", epochs=0, min_steps=120)
STREAM = il.streams.permuted_digits(tasks=7, seed=0)


@pytest.fixture(scope="module")
def digits():
    """Four basis tasks and two learned ones of permuted digits; a seventh is unknown."""
    backbone = il.create_backbone(
        "lenet_300_100", 10, in_features=64, widths=(40, 20), init="signed_constant", gain=2
    )
    learner = il.ImpressLearner(backbone, sparsity=0.8, granularity="unit", progress=False)
    for task in STREAM[:4]:
        learner.learn_basis(task.name, task.train)
    learner.add_random_masks(6)
    for task in STREAM[4:6]:
        learner.learn_task(task.name, task.train)
    return learner


def settings_for(method, steps=120):
    return {"recipe": replace(SHORT, min_steps=steps)} if method == "alpha" else {}


def check_distribution(guess, names):
    assert list(guess.posterior) == list(names)
    probabilities = [*guess.posterior.values(), guess.unknown_probability]
    assert sum(probabilities) == pytest.approx(1)
    assert all(0 <= p <= 1 for p in probabilities)
    assert guess.posterior[guess.best] == max(guess.posterior.values())
    expected = -sum(p * math.log(p) for p in probabilities if p > 0)
    assert guess.entropy == pytest.approx(expected)
    others = sorted(probabilities)
    others.remove(guess.posterior[guess.best])
    assert guess.margin == pytest.approx(guess.posterior[guess.best] - others[-1])
    assert guess.unknown == (guess.unknown_probability > guess.posterior[guess.best])
    assert guess.task == (None if guess.unknown else guess.best)
    assert "\n" not in guess.summary()


@pytest.mark.parametrize(
    ("method", "objective"),  # plain entropy collapses under "alpha"
    [(method, "information") for method in METHODS] + [(m, "entropy") for m in METHODS[:2]],
)
def test_basis_tasks_and_learned_tasks_are_told_apart(digits, method, objective):
    for task in STREAM[:6]:
        inputs = task.test.inputs[:100]
        guess = digits.infer_task(
            inputs, method=method, objective=objective, **settings_for(method)
        )
        check_distribution(guess, digits.tasks_)
        assert guess.task == task.name
        assert guess.method == method
        assert guess.margin > 0.5
        assert (guess.mixture is None) == (method != "alpha")


@pytest.mark.parametrize("method", ["halving", "one_shot"])
def test_few_inputs_and_a_single_one(digits, method):
    right = {1: 0, 8: 0}
    for task in STREAM[:6]:
        for start in range(0, 80, 8):
            for count in right:
                guess = digits.infer_task(task.test.inputs[start : start + count], method=method)
                check_distribution(guess, digits.tasks_)
                right[count] += guess.best == task.name
    assert right[8] >= 57
    assert right[1] >= 24  # chance would be 10


def test_a_single_input_by_alpha(digits):
    guess = digits.infer_task(STREAM[0].test.inputs[:1], method="alpha", recipe=SHORT)
    check_distribution(guess, digits.tasks_)


def test_the_tasks_can_be_chosen(digits):
    inputs = STREAM[4].test.inputs[:100]
    names = {
        "all": STREAM.names[:6],
        "basis": STREAM.names[:4],
        "learned": STREAM.names[4:6],
    }
    for among, expected in names.items():
        check_distribution(digits.infer_task(inputs, among=among), expected)
    chosen = ["permuted-4", "permuted-1"]
    guess = digits.infer_task(inputs, among=chosen)
    check_distribution(guess, chosen)
    assert guess.task == "permuted-4"
    single = digits.infer_task(inputs, among=["permuted-4"])
    assert single.task == "permuted-4"
    assert digits.infer_task(inputs, among="basis").unknown


@pytest.mark.parametrize("method", METHODS)
def test_foreign_inputs_are_unknown(digits, method):
    generator = torch.Generator().manual_seed(0)
    strangers = [
        torch.randn(128, 1, 8, 8, generator=generator),
        torch.rand(128, 1, 8, 8, generator=generator),
        STREAM[6].test.inputs[:128],
    ]
    for inputs in strangers:
        guess = digits.infer_task(inputs, method=method, among="basis", **settings_for(method))
        check_distribution(guess, STREAM.names[:4])
        assert guess.unknown
        assert guess.task is None


def test_the_mixture_predicts_as_well_as_the_known_task(digits):
    for task in (STREAM[0], STREAM[3], STREAM[4]):
        test = task.test
        role = digits.tasks_[task.name].role
        guess = digits.infer_task(test.inputs, method="alpha", among=role)
        accuracy = (digits.predict_with(test.inputs, guess) == test.labels).mean()
        known = digits.score(test, task.name)
        assert accuracy > known - 0.03
        assert known > 0.85


def test_alpha_follows_its_seed_and_settings():
    inputs, _ = blobs()

    def weights(seed=1, penalty=1.0, objective=mean_entropy):
        search = replace(small_search(), objective=objective)
        recipe = Recipe(optimizer="rmsprop", lr=0.01, epochs=0, min_steps=10, batch_size=10)
        view, _ = search.optimise(inputs, recipe, penalty, seed)
        return torch.cat([weight.flatten() for weight in view.weights.values()])

    first = weights()
    assert torch.equal(first, weights())
    assert not torch.equal(first, weights(seed=2))
    assert not torch.equal(first, weights(penalty=0.0))
    assert not torch.equal(first, weights(objective=information_maximisation))


def test_a_mixture_that_fits_worse_than_the_best_task_is_not_used(digits):
    inputs = STREAM[0].test.inputs
    barely = Recipe(optimizer="rmsprop", lr=1e-6, epochs=0, min_steps=1)
    guess = digits.infer_task(inputs, method="alpha", recipe=barely)
    assert np.array_equal(digits.predict_with(inputs, guess), digits.predict(inputs, guess.best))


@pytest.mark.parametrize(
    "settings",
    [
        {"granularity": "layer"},
        {"granularity": "unit"},
        {"granularity": "unit", "output_scale": True},
        {"granularity": "unit", "input_scale": True},
        {"granularity": "unit", "output_scale": True, "input_scale": True, "precision": "int4"},
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_all_kinds_of_coefficients(settings, method):
    learner = quick_learner(cache_bytes=0, **settings).add_random_masks(12)
    learner.learn_basis("basis-0", blobs(0))
    for seed in (1, 2):
        learner.learn_task(f"learned-{seed}", blobs(seed))
    for name, seed in (("basis-0", 0), ("learned-1", 1), ("learned-2", 2)):
        guess = learner.infer_task(blobs(seed)[0], method=method, **settings_for(method))
        check_distribution(guess, learner.tasks_)
        assert guess.best == name


def test_the_shortlist_of_many_tasks():
    learner = quick_learner()
    count = SHORTLIST + 5
    for seed in range(count):
        learner.learn_basis(f"t{seed}", blobs(seed))
    right = 0
    for seed in range(count):
        guess = learner.infer_task(blobs(seed)[0])
        check_distribution(guess, learner.tasks_)
        assert sum(p == 0 for p in guess.posterior.values()) >= 5
        right += guess.best == f"t{seed}"
    assert right >= count // 2


@pytest.mark.parametrize("norm", ["batch", "per_task", "shared", "group"])
def test_networks_with_norms_and_a_single_input(norm):
    brief = Recipe(lr=0.03, epochs=0, min_steps=25, batch_size=24)
    size = 16  # maps of more than one pixel, so that a batch of one has statistics
    learner = quick_learner(resnet(norm), granularity="unit", basis_recipe=brief, task_recipe=brief)
    for seed in range(3):
        verb = learner.learn_task if seed == 2 else learner.learn_basis
        verb(f"t{seed}", pictures(seed, size=size))
    for method in METHODS:
        single = learner.infer_task(
            pictures(0, size=size)[0][:1],
            method=method,
            **settings_for(method, steps=10),
        )
        check_distribution(single, learner.tasks_)
    right = [learner.infer_task(pictures(s, size=size)[0]).best == f"t{s}" for s in range(3)]
    # The statistics that all tasks share are those of the first one learned.
    assert sum(right) >= (1 if norm == "shared" else 2)


def known_tasks_of(backbone, bank, coefficients):
    def view(kept):
        return lambda: TaskView(mixed_weights(bank, backbone.weights, kept), None, 3)

    return [KnownTask(f"c{i}", 3, kept, view(kept), None) for i, kept in enumerate(coefficients)]


def random_tasks(backbone, bank, count=5, scaled=False):
    """Coefficients per unit; if scaled, one has an output scale and one an input scale."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.rand(*shape, generator=generator)

    def one(position):
        alpha = tuple(draw(len(bank), layer.units) for layer in bank.layers)
        outputs = tuple(draw(layer.units) for layer in bank.layers)
        inputs = tuple(draw(layer.shape[1]) for layer in bank.layers)
        return Coefficients(
            alpha,
            outputs if scaled and position == 2 else None,
            inputs if scaled and position == 3 else None,
        )

    return [one(position) for position in range(count)]


@pytest.mark.parametrize("objective", [mean_entropy, information_maximisation])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("norm", ["none", "per_task", "shared"])
def test_one_shot_ranks_by_the_gradient_of_the_mixture(norm, scaled, objective):
    backbone = lenet() if norm == "none" else resnet(norm)
    inputs, _ = blobs() if norm == "none" else pictures()
    bank = random_bank(backbone.layers, 4, 0.5)
    coefficients = random_tasks(backbone, bank, scaled=scaled)
    shared = None
    if norm == "shared":
        shared = {name: value + 0.5 for name, value in backbone.initial_statistics().items()}
    dense = [mixed_weights(bank, backbone.weights, each) for each in coefficients]
    shares = torch.full((5,), 0.2, requires_grad=True)
    mixed = {
        layer.name: sum(shares[i] * weights[layer.name] for i, weights in enumerate(dense))
        for layer in bank.layers
    }
    mode = "batch" if norm == "per_task" else "eval"  # tasks' own statistics cannot be mixed
    logits = backbone.forward(mixed, inputs, shared, mode)
    slope = torch.autograd.grad(objective(logits), shares)[0]
    search = _Search(Superposition(backbone, bank, coefficients), objective, 3, shared)
    torch.testing.assert_close(search.gradient(inputs), slope, atol=1e-5, rtol=1e-3)
    assert search.one_shot(inputs) == slope.argsort().tolist()


def small_search(count=5):
    backbone = lenet()
    bank = random_bank(backbone.layers, 4, 0.5)
    tasks = random_tasks(backbone, bank, count)
    return _Search(Superposition(backbone, bank, tasks), mean_entropy, 3, None)


def test_halving_keeps_the_better_of_each_pair():
    search, (inputs, _) = small_search(), blobs()

    def loser(one, other):
        slopes = search.gradient(inputs, torch.tensor([one, other]))
        return one if slopes[one] > slopes[other] else other

    first = [loser(0, 1), loser(2, 3)]
    left = [task for task in range(5) if task not in first]
    second = loser(left[0], left[1])
    pair = [task for task in left if task != second]
    third = loser(*pair)
    winner = next(task for task in pair if task != third)
    assert search.halving(inputs) == [winner, third, second, *first]


def test_beyond_the_limit_one_gradient_decides_who_is_paired(monkeypatch):
    search, (inputs, _) = small_search(), blobs()
    ranked = search.one_shot(inputs)
    monkeypatch.setattr("impresslearn.inference.task_inference.PAIRED", 2)
    order = search.halving(inputs)
    assert set(order[:2]) == set(ranked[:2])
    assert order[2:] == ranked[2:]


def test_tasks_without_a_profile_are_never_unknown():
    backbone = lenet()
    bank = random_bank(backbone.layers, 4, 0.5)
    tasks = known_tasks_of(backbone, bank, random_tasks(backbone, bank))
    guess = guess_task(backbone, bank, tasks, blobs()[0])
    check_distribution(guess, [f"c{i}" for i in range(5)])
    assert guess.unknown_probability == 0


def test_no_task():
    backbone = lenet()
    with pytest.raises(InputError, match="no task to choose from"):
        guess_task(backbone, MaskBank(backbone.layers), [], blobs()[0])


def test_entropies_are_relative_to_the_number_of_classes():
    backbone = lenet()
    inputs, _ = blobs()
    view = TaskView(backbone.weights, None, 3)
    logits = view.logits(backbone, inputs)
    relative = relative_entropies(backbone, view, inputs)
    torch.testing.assert_close(relative, entropies(logits) / math.log(3))
    blank = {name: torch.zeros_like(weight) for name, weight in backbone.weights.items()}
    flat = relative_entropies(backbone, TaskView(blank, None, 3), inputs)
    torch.testing.assert_close(flat, torch.ones(len(inputs)))


def test_a_profile_tells_own_inputs_from_shuffled_ones(digits):
    for task in STREAM[:4]:
        profile = digits.tasks_.learned(task.name).profile
        assert 0 < profile.own < profile.foreign < 1
        view = digits._state.view(digits.tasks_.learned(task.name))
        fresh = entropy_profile(digits.backbone, view, task.test.inputs)
        assert fresh.own < fresh.foreign
        assert fresh.own == torch.tensor(fresh.own).half().item()  # what two bytes can keep
