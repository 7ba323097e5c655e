"""One network for all tasks, and what methods say of tasks that they have not learned."""

import pytest
import torch

from impresslearn import InputError, Recipe, adapt
from impresslearn.coefficients.mixing import mixed_weights, uniform_coefficients
from impresslearn.methods import FineTuning, SequentialFineTuning, create_method, finetuning
from toys import QUICK, ConvNet, blobs, lenet, pictures


def test_an_unlearned_task_is_met_with_the_equal_mixture_of_all_masks():
    learner = create_method("impresslearn", lenet(), random_masks=2, recipe={"epochs": 1})
    learner.learn_basis("a", blobs(0))
    inputs, labels = blobs(5)
    equal = uniform_coefficients(learner.bank_.layers, 3)
    weights = mixed_weights(learner.bank_, learner.backbone.weights, equal)
    right = learner.backbone.forward(weights, inputs).argmax(1) == labels
    assert learner.zero_shot_score((inputs, labels)) == pytest.approx(float(right.float().mean()))


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


def test_every_task_is_learned_by_the_next_seed(monkeypatch):
    seeds, fit = [], finetuning.fit
    monkeypatch.setattr(finetuning, "fit", lambda *rest: [seeds.append(rest[4]), fit(*rest)][1])
    chain = SequentialFineTuning(lenet(), recipe=QUICK, seed=5, progress=False)
    for name in "abc":
        chain.learn_task(name, blobs())
    assert seeds == [5, 6, 7]


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
