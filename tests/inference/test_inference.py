"""Which task do inputs belong to: every method, every kind of network and coefficients."""

import math

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.inference.superposition import Superposition
from impresslearn.training.loop import Recipe, information_maximisation, mean_entropy
from toys import KINDS, blobs, inferred, lenet, pictures, quick_learner, resnet

SHORT = Recipe(optimizer="rmsprop", lr=0.01, schedule="constant", epochs=0, min_steps=120)
METHODS = {"exhaustive": {}, "alpha": {"recipe": SHORT}}
STREAM = il.streams.permuted_digits(tasks=7, seed=0)


@pytest.fixture(scope="module")
def digits():
    """Four basis tasks and two learned ones of permuted digits; a seventh is unknown."""
    backbone = il.create_backbone("lenet_300_100", 10, in_features=64, widths=(40, 20))
    learner = il.ImpressLearner(backbone, sparsity=0.8, granularity="unit", progress=False)
    for task in STREAM[:4]:
        learner.learn_basis(task.name, task.train)
    learner.add_random_masks(6)
    for task in STREAM[4:6]:
        learner.learn_task(task.name, task.train)
    return learner


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
    assert guess.task == (None if guess.unknown else guess.best)
    assert "\n" not in guess.summary()


@pytest.mark.parametrize(
    ("method", "objective"),  # plain entropy collapses under "alpha"
    [("exhaustive", "information"), ("alpha", "information"), ("exhaustive", "entropy")],
)
def test_basis_tasks_and_learned_tasks_are_told_apart(digits, method, objective):
    for task in STREAM[:6]:
        inputs, how = task.test.inputs[:100], METHODS[method]
        guess = digits.infer_task(inputs, method=method, objective=objective, **how)
        check_distribution(guess, digits.tasks_)
        assert (guess.task, guess.method) == (task.name, method)
        assert guess.margin > 0.5
        assert (guess.mixture is None) == (method != "alpha")


def test_the_tasks_can_be_chosen(digits):
    inputs, chosen = STREAM[4].test.inputs[:100], ["permuted-4", "permuted-1"]
    for among, names in (("learned", STREAM.names[4:6]), (np.array(chosen), chosen)):
        guess = digits.infer_task(inputs, among=among)
        check_distribution(guess, names)
        assert guess.task == "permuted-4"
    assert digits.infer_task(inputs, among="basis").unknown


def test_the_mixture_predicts_as_well_as_the_known_task(digits):
    for task in (STREAM[0], STREAM[4]):
        test = task.test
        role = digits.tasks_[task.name].role
        guess = digits.infer_task(test.inputs, method="alpha", among=role)
        accuracy = (digits.predict_with(test.inputs, guess) == test.labels).mean()
        assert accuracy > digits.score(test, task.name) - 0.03 > 0.82
    barely = Recipe(optimizer="rmsprop", lr=1e-6, epochs=0, min_steps=1)
    guess = digits.infer_task(test.inputs, method="alpha", recipe=barely)
    predicted = digits.predict_with(test.inputs, guess)  # by the task itself, which fits better
    assert np.array_equal(predicted, digits.predict(test.inputs, guess.best))


@pytest.mark.parametrize(
    "settings",
    [{"granularity": "unit", "output_scale": True, "precision": "int4"}, {}, KINDS["a weight"]],
)
@pytest.mark.parametrize("method", METHODS)
def test_all_kinds_of_coefficients(settings, method):
    learner = quick_learner(cache_bytes=0, **settings).add_random_masks(12)
    learner.learn_basis("t0", blobs(0)).learn_task("t1", blobs(1)).learn_task("t2", blobs(2))
    for seed in range(3):
        guess = learner.infer_task(blobs(seed)[0], method=method, **METHODS[method])
        check_distribution(guess, learner.tasks_)
        assert guess.best == f"t{seed}"


@pytest.mark.parametrize("settings", [{}, {"granularity": "unit", "output_scale": True}])
@pytest.mark.parametrize("norm", ["none", "per_task", "shared"])
def test_superpositions_and_their_slopes_are_those_of_the_dense_sum(norm, settings):
    backbone, data = (lenet(), blobs) if norm == "none" else (resnet(norm), pictures)
    brief = Recipe(lr=0.03, epochs=0, min_steps=10)
    learner = quick_learner(backbone, basis_recipe=brief, task_recipe=brief, **settings)
    for seed in range(2):
        learner.learn_basis(f"t{seed}", data(seed)).learn_task(f"u{seed}", data(2 + seed))
    inputs, tasks = data(0)[0], learner._known_tasks("all")
    parts = [task.mixture() for task in tasks]
    parts[0] = tasks[0].view().weights  # as of a task that is no mixture
    superposition = Superposition(backbone, learner.bank_, parts, 3, learner.shared_statistics_)
    learner.add_random_masks(20)  # a bank that grows changes nothing

    def dense(shares):
        total = dict.fromkeys(backbone.weights, 0)
        for position, task in enumerate(tasks):
            for place, (name, weight) in enumerate(task.view().weights.items()):
                total[name] = total[name] + shares[position, place] * weight
        return total

    shares = torch.randn(4, len(backbone.layers), generator=torch.Generator().manual_seed(9))
    shares.requires_grad_()
    found, expected = superposition.weights(shares), dense(shares)
    for name, weight in found.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-5)
    slopes = [
        torch.autograd.grad(sum(each.square().sum() for each in weights.values()), shares)[0]
        for weights in (found, expected)
    ]
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)
    mode = "batch" if norm == "per_task" else "eval"  # tasks' own statistics cannot be mixed
    for objective in (mean_entropy, information_maximisation):
        even = torch.full_like(shares, 0.25, requires_grad=True)
        logits = backbone.forward(dense(even), inputs, learner.shared_statistics_, mode)
        slope = torch.autograd.grad(objective(logits), even)[0].sum(dim=1)
        ranked = superposition.one_shot(inputs, objective)
        torch.testing.assert_close(ranked, slope, atol=1e-5, rtol=1e-3)


def test_more_inputs_find_their_task_more_often(digits):
    tasks = {task.name: task.test.inputs for task in STREAM[:6]}
    (one, _), (many, rejected) = (inferred(digits, tasks, count, trials=5) for count in (1, 8))
    assert 0.8 <= one < many > 0.95
    assert rejected < 0.5
    assert inferred(digits, tasks, 16, trials=2, among="learned")[0] <= 2 / 6


@pytest.mark.parametrize("size", [8, 32])
def test_noise_and_inverted_digits_are_unknown_and_own_digits_are_not(digits, size):
    generator = torch.Generator().manual_seed(0)
    rejected = []
    for task in STREAM[:6]:
        own = task.test.inputs
        low, high = own.min(), own.max()
        noise = torch.rand(64, *own.shape[1:], generator=generator) * (high - low) + low
        for foreign in (low + high - own, noise, torch.randn(64, *own.shape[1:])):
            assert all(digits.infer_task(each).unknown for each in foreign.split(size)[:4])
        guesses = [digits.infer_task(each) for each in own.split(size)[:-1]]
        rejected += [guess.unknown for guess in guesses if guess.best == task.name]
    assert len(rejected) > 16
    assert np.mean(rejected) < 0.2
