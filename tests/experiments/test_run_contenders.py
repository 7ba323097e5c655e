"""The methods of a run: what they keep and forget, and what they say of tasks not yet learned."""

import pytest
import torch

from impresslearn import InputError, Recipe, adapt
from impresslearn.coefficients.mixing import mixed_weights, uniform_coefficients
from impresslearn.experiments.methods import KEYS, contender, settled
from impresslearn.methods import FineTuning, SequentialFineTuning
from impresslearn.streams import from_arrays
from toys import QUICK, ConvNet, blobs, lenet, pictures

TINY = {"epochs": 0, "min_steps": 60, "batch_size": 32}


def stream():
    """Three tasks on the same inputs; the second has the first one's labels moved by one."""
    inputs, labels = blobs(0)
    others = blobs(5)
    return from_arrays(
        {
            "first": ((inputs, labels), (inputs, labels)),
            "second": ((inputs, (labels + 1) % 3), (inputs, (labels + 1) % 3)),
            "third": (others, others),
        }
    )


def made(name, **settings):
    method = settled({"name": name, "recipe": TINY, **settings})
    return contender(method, lenet(), seed=3)


CASES = {
    "impresslearn": {"basis": 1, "random_masks": 2},
    "hybrid": {"basis": 1, "random_masks": 2},
    "separate": {"recipe": TINY | {"lr": 0.01}},
}


def test_every_method_is_tried():
    assert set(CASES) < set(KEYS)


@pytest.mark.parametrize("name", [name for name in KEYS if name != "finetuning"])
def test_nothing_is_forgotten(name):
    method, tasks = made(name, **CASES.get(name, {})), stream()
    method.learn(tasks[0])
    before = method.accuracy(tasks[0], tasks[0].test)
    assert before > 0.5
    method.learn(tasks[1])
    method.learn(tasks[2])
    assert method.accuracy(tasks[0], tasks[0].test) == before


def test_one_network_for_all_forgets():
    method, tasks = made("finetuning", recipe={"lr": 0.01, "min_steps": 100}), stream()
    method.learn(tasks[0])
    assert method.accuracy(tasks[0], tasks[0].test) > 0.9
    method.learn(tasks[1])
    assert method.accuracy(tasks[1], tasks[1].test) > 0.9
    assert method.accuracy(tasks[0], tasks[0].test) < 0.2


def test_an_unlearned_task_is_met_with_the_equal_mixture_of_all_masks():
    method, task = made("impresslearn", basis=1, random_masks=2), stream()[2]
    method.learn(stream()[0])
    learner = method.learner
    assert len(learner.bank_) == 3
    equal = uniform_coefficients(learner.bank_.layers, 3)
    weights = mixed_weights(learner.bank_, learner.backbone.weights, equal)
    right = learner.backbone.forward(weights, task.test.inputs).argmax(1).numpy()
    assert method.accuracy(task, task.test) == float((right == task.test.labels).mean())


@pytest.mark.parametrize("name", ["supsup", "single_mask", "finetuning", "separate"])
def test_before_any_task_there_is_the_random_network(name):
    method, task = made(name), stream()[0]
    right = lenet().forward({}, task.test.inputs).argmax(1).numpy()
    assert method.accuracy(task, task.test) == float((right == task.test.labels).mean())


def test_separate_networks_say_nothing_of_an_unlearned_task():
    method, tasks = made("separate"), stream()
    before = method.accuracy(tasks[2], tasks[2].test)
    method.learn(tasks[0])
    assert method.accuracy(tasks[2], tasks[2].test) == before


def test_roles_and_bytes():
    kept = {}
    for name in KEYS:
        method, tasks = made(name, **CASES.get(name, {})), stream()
        for task in tasks:
            method.learn(task)
        kept[name] = [(method.role_of(task), method.bytes_of(task)) for task in tasks]
    roles = {name: [role for role, _ in pairs] for name, pairs in kept.items()}
    sizes = {name: [size for _, size in pairs] for name, pairs in kept.items()}
    assert roles["impresslearn"] == roles["hybrid"] == ["basis", "learned", "learned"]
    assert roles["supsup"] == ["basis"] * 3
    assert roles["single_mask"] == ["basis", "reused", "reused"]
    assert sizes["single_mask"][1:] == [2, 2]
    network = 4 * lenet().num_maskable
    assert sizes["separate"] == [network + 2] * 3
    assert sizes["finetuning"] == [network + 2, 2, 2]
    assert sizes["impresslearn"][1] < sizes["supsup"][1] < network
    assert sizes["impresslearn"][0] == sizes["supsup"][0]


def test_without_masks_there_is_nothing_to_combine():
    with pytest.raises(InputError, match="hybrid needs basis or random_masks"):
        settled({"name": "hybrid"})


def test_the_first_task_is_fine_tuning():
    data = blobs(1)
    alone = FineTuning(lenet(), recipe=QUICK, seed=2, progress=False).learn_task("a", data)
    chain = SequentialFineTuning(lenet(), recipe=QUICK, seed=2, progress=False)
    chain.learn_task("a", data)
    assert (alone.predict(data[0], "a") == chain.predict(data[0], "a")).all()
    with pytest.raises(InputError, match="learned already"):
        chain.learn_task("a", data)
    with pytest.raises(KeyError, match="no task named 'b'"):
        chain.score(data, "b")


@pytest.mark.parametrize(("norm", "moves"), [("per_task", True), ("shared", False)])
def test_norm_statistics_go_on_unless_they_are_shared(norm, moves):
    backbone = adapt(ConvNet(), norm=norm)
    chain = SequentialFineTuning(backbone, recipe=QUICK, progress=False)
    chain.learn_task("a", pictures(0))
    first = {name: value.clone() for name, value in chain.view(3).statistics.items()}
    chain.learn_task("b", pictures(1))
    second = chain.view(3).statistics
    assert any(not torch.equal(first[name], second[name]) for name in first) == moves
    assert chain.tasks_["a"].bytes > chain.tasks_["b"].bytes == 2


def test_norm_statistics_go_on_from_where_the_last_task_left_them():
    backbone, data = adapt(ConvNet(), norm="per_task"), pictures(0)
    one_step = Recipe(optimizer="sgd", lr=1e-9, epochs=0, min_steps=1, batch_size=len(data[0]))
    chain = SequentialFineTuning(backbone, recipe=one_step, progress=False)
    means = []
    for name in ("a", "b"):
        statistics = chain.learn_task(name, data).view(3).statistics
        means.append(statistics["body.1.running_mean"].clone())
    # From 0 with momentum 0.1: 0.1 m after one step, 0.19 m after two.
    torch.testing.assert_close(means[1], 1.9 * means[0], rtol=1e-3, atol=1e-6)
