"""Methods by name: the library's own, and one that is registered from outside."""

import numpy as np
import pytest

import impresslearn as il
from impresslearn.methods import create_method, list_methods, method_settings, register_method
from toys import QUICK, blobs, lenet


class Majority:
    """Predicts the most frequent label of each task."""

    def __init__(self, seed, tie):
        self.seed, self.tie, self.labels = seed, tie, {}

    def learn_task(self, name, data):
        self.labels[name] = np.bincount(data.labels).argmax()

    def predict(self, inputs, task):
        return np.full(len(inputs), self.labels[task])

    def score(self, data, task):
        return float((self.predict(data.inputs, task) == data.labels).mean())


def test_a_method_from_outside_takes_one_line():
    register_method("majority", lambda backbone, seed, tie="low": Majority(seed, tie))
    assert "majority" in list_methods()
    made = create_method("majority", lenet(), seed=5, tie="high")
    assert (made.seed, made.tie) == (5, "high")
    stream = {name: (blobs(n), blobs(n)) for n, name in enumerate("ab")}
    assert il.evaluate(made, stream).average_accuracy == pytest.approx(1 / 3)
    with pytest.raises(il.InputError, match="'majority' is registered already"):
        register_method("majority", Majority)


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        ("supsupp", {}, "no method 'supsupp'; did you mean supsup"),
        ("xyz", {}, "no method 'xyz'; choose from impresslearn, supsup"),
        ("supsup", {"sparsty": 0.5}, "supsup has no setting 'sparsty'; did you mean sparsity"),
        ("supsup", {"penalty": 0.5}, "supsup has no setting 'penalty'"),
        ("separate", {"recipe": {"epoch": 1}}, "no entry 'epoch'; did you mean epochs"),
        ("separate", {"recipe": 3}, "a recipe must be a Recipe or a mapping"),
        ("separate", {"recipe": {"lr": -1}}, "a recipe needs lr > 0"),
        ("impresslearn", {"preset": "papr"}, "no preset named 'papr'"),
        ("impresslearn", {"random_masks": -1}, "random_masks must be an integer of at least 0"),
        ("impresslearn", {"sparsity": 95}, "did you mean 0.95"),
        ("hybrid", {"granularity": "unit"}, "hybrid has no setting 'granularity'"),
    ],
)
def test_what_cannot_be_made(name, settings, line):
    with pytest.raises(il.InputError, match=line) as caught:
        create_method(name, lenet(), **settings)
    assert "\n" not in str(caught.value)


def test_presets_and_recipes_are_resolved():
    recipes = {"recipe": {"epochs": 1}, "basis_recipe": {"lr": 0.5}, "task_recipe": QUICK}
    values = method_settings("impresslearn", preset="paper_lenet", sparsity=0.5, **recipes)
    assert (values["score_rule"], values["sparsity"]) == ("score", 0.5)
    assert (values["basis_recipe"]["epochs"], values["basis_recipe"]["lr"]) == (1, 0.5)
    assert il.Recipe(**values["task_recipe"]) == QUICK
    made = create_method("impresslearn", lenet(), **values)
    assert (made.task_recipe, made.basis_recipe.lr, made.sparsity) == (QUICK, 0.5, 0.5)
    assert method_settings("impresslearn", **values) == values


def test_every_method_of_the_library_takes_the_seed():
    for name in ("impresslearn", "supsup", "single_mask", "hybrid", "finetuning", "separate"):
        assert create_method(name, lenet(), seed=7).seed == 7


@pytest.mark.parametrize("name", ["separate", "hybrid", "lora"])
def test_a_recipe_may_be_a_whole_one(name):
    assert create_method(name, lenet(), recipe=QUICK).recipe == QUICK
    assert create_method(name, lenet(), recipe={"lr": 0.5}).recipe.lr == 0.5
