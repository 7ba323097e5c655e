"""Evaluation of the library's methods on a stream, the measures, and how results are shown."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import impresslearn as il
from impresslearn.methods import results as metrics
from toys import QUICK, blobs, lenet, quick_learner, refused

TINY = {"epochs": 0, "min_steps": 60, "batch_size": 32}
MATRIX = [[0.10, 0.20, 0.30], [0.90, 0.25, 0.40], [0.95, 0.70, 0.50], [0.60, 0.80, 0.90]]


def shifted():
    """Three tasks on the same inputs; the second has the first one's labels moved by one."""
    inputs, labels = blobs(0)
    moved, others = (inputs, (labels + 1) % 3), blobs(5)
    return {
        "first": ((inputs, labels), (inputs, labels)),
        "second": (moved, moved),
        "third": (others, others),
    }


def test_measures_are_those_worked_out_by_hand():
    near, nan = pytest.approx, math.nan
    assert metrics.average_accuracy(MATRIX) == near((0.6 + 0.8 + 0.9) / 3)
    assert metrics.average_accuracy(MATRIX, 2) == near((0.95 + 0.7) / 2)
    assert metrics.forgetting(MATRIX) == near(((0.95 - 0.6) + (0.7 - 0.8)) / 2)
    assert metrics.forgetting([[1.0, 0.0], [0.5, 0.0], [0.5, 0.5]]) == 0  # luck does not count
    assert metrics.backward_transfer(MATRIX) == near(((0.6 - 0.9) + (0.8 - 0.7)) / 2)
    assert metrics.forward_transfer(MATRIX) == near(((0.25 - 0.2) + (0.5 - 0.3)) / 2)
    assert metrics.forward_transfer([[nan] * 2, [0.9, nan], [0.9, 0.8]]) is None
    for learned in (0, 4):
        refused("integer from 1 to 3", metrics.average_accuracy, MATRIX, learned)
    for matrix in ([], [[0.5]], [[0.5], [0.5]], [[0.1, 0.2], [0.1]]):
        refused("T \\+ 1 rows of T accuracies", metrics.forgetting, matrix)


class Scores:
    """Says what it is told to of the task that was learned last."""

    def __init__(self, *scores):
        self.scores = list(scores)

    def learn_task(self, name, data):
        """Nothing."""

    def score(self, data, task):
        return self.scores.pop(0)


def test_the_matrix_has_a_row_before_any_task_and_one_after_each():
    result = il.evaluate(Scores(0.9, 0.8, 0.7, 0.6, 0.5, 0.4), shifted())
    expected = [[None] * 3, [0.9, None, None], [0.8, 0.7, None], [0.6, 0.5, 0.4]]
    found = [[None if math.isnan(value) else value for value in row] for row in result.matrix]
    assert found == expected
    first = {"task": "first", "role": None, "bytes": None, "accuracy_before": None}
    assert result.rows()[0] == first | {"accuracy_learned": 0.9, "accuracy": 0.6}
    assert (result.forward_transfer, result.summary()["bytes_per_task"]) == (None, None)


def test_methods_side_by_side_and_how_they_are_shown():
    methods = {"ours": quick_learner(), "<mine>": Scores(*[0.5] * 6)}
    found = il.compare(methods, shifted(), basis=1)
    assert list(found) == ["ours", "<mine>"]
    ours = found["ours"]
    assert ours.roles == {"first": "basis", "second": "learned", "third": "learned"}
    assert ours.matrix[0] != ours.matrix[1]
    assert ours.forward_transfer is not None
    assert ours.summary()["bytes_per_task"] == sum(ours.bytes.values()) / 3
    first, second = found.rows()
    assert (first["method"], second["method"]) == ("ours", "<mine>")
    assert first["learned_bytes"] == (ours.bytes["second"] + ours.bytes["third"]) / 2
    assert first["learned_accuracy"] == pytest.approx(sum(ours.matrix[-1][1:]) / 2)
    assert (second["learned_accuracy"], second["learned_bytes"]) == (0.5, None)
    alone = il.methods.Comparison({"<mine>": found["<mine>"]})
    assert "learned_accuracy" not in alone.rows()[0]  # no basis tasks
    last = str(found).splitlines()[-1]
    assert last.startswith("<mine>")
    assert " – " in last
    assert "&lt;mine&gt;" in found._repr_html_()
    progress, _ = found.chart().to_dict()["hconcat"]
    assert progress["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["ours", "<mine>"]
    assert len(ours.chart().to_dict()["hconcat"]) == 2
    assert len(found["<mine>"].chart().to_dict()["hconcat"]) == 1  # its bytes are unknown
    assert ours._repr_html_().count("<tr>") == 2 + 4  # measures, and a row a task


@pytest.mark.parametrize("name", ["separate", "single_mask", "impresslearn"])
def test_a_test_set_without_all_classes_is_scored_with_the_task_s(name):
    inputs, labels = blobs(0)
    some = labels != 0
    test = (inputs[some], labels[some])
    method = il.methods.create_method(name, lenet(), recipe=TINY)
    result = il.evaluate(method, dict.fromkeys("ab", ((inputs, labels), test)), basis=2)
    right = lenet().forward({}, test[0]).argmax(1) == test[1]
    assert result.matrix[0] == pytest.approx((float(right.float().mean()),) * 2)
    learned = (method.predict(test[0], "b") == test[1].numpy()).mean()
    assert result.matrix[2][1] == pytest.approx(learned)
    assert learned > 0.5


class NoScore:
    learn_task = predict = print


@pytest.mark.parametrize(
    ("method", "stream", "basis", "line"),
    [
        (NoScore(), shifted(), 0, "NoScore has no score"),
        (Scores(90), shifted(), 0, r"task 'first': Scores must give an accuracy in \[0, 1\]"),
        (Scores(1), {"one": (blobs(), blobs())}, 0, "at least two tasks, the stream has 1"),
        (Scores(1), shifted(), 4, "basis = 4, but the stream has only 3"),
        (quick_learner(), shifted(), 0, "task 'first': the bank is empty"),
    ],
)
def test_what_cannot_be_evaluated(method, stream, basis, line):
    refused(line, il.evaluate, method, stream, basis=basis)
    refused("methods must map labels to methods", il.compare, {}, stream)


class Predicts(Scores):
    """Has every accuracy at 1, and predicts as it is told."""

    def __init__(self, predicted):
        super().__init__(*[1] * 12)
        self.predicted = predicted

    def predict(self, inputs, task):
        return self.predicted(inputs)


@pytest.mark.parametrize(
    ("predicted", "line"),
    [
        (
            lambda inputs: np.zeros((len(inputs), 1)),
            r"must give labels of shape \(8,\) for 8 inputs",
        ),
        (lambda inputs: None, r"labels of shape \(8,\) for 8 inputs, got shape \(\)"),
        (lambda inputs: {}[0], "task 'first': predict of Predicts: "),
    ],
)
def test_predictions_that_are_no_labels_are_not_believed(predicted, line):
    refused(line, il.evaluate, Predicts(predicted), shifted())


def test_pixels_given_as_integers_are_evaluated():
    pixels = il.Preprocessing(pixels=True)
    learner = quick_learner(preprocessing=pixels).add_random_masks(2)
    inputs, labels = blobs()
    integers = ((inputs - inputs.min()) / (inputs.max() - inputs.min()) * 255).long()
    result = il.evaluate(learner, dict.fromkeys("ab", ((integers, labels), (integers, labels))))
    assert result.matrix[-1][0] == learner.score((integers, labels), "a")


@pytest.mark.parametrize("verb", ["learn_task", "score"])
def test_whatever_a_method_raises_names_it_and_the_task(verb, monkeypatch):
    monkeypatch.setattr(Scores, verb, lambda *_: 1 / 0)
    line = f"task 'first': {verb} of Scores: ZeroDivisionError: division by zero"
    refused(line, il.evaluate, Scores(*[1] * 12), shifted())


@pytest.mark.parametrize("size", [12, 12.5, None])
def test_a_method_may_tell_its_bytes_and_nothing_else(size):
    method = Scores(*[1] * 12)
    method.tasks_ = {"first": SimpleNamespace(bytes=size), "second": SimpleNamespace()}
    found = il.evaluate(method, shifted())
    assert dict(found.bytes) == ({} if size is None else {"first": size})
    assert not found.roles
    assert str(size or "first") in repr(found)
    method.tasks_["first"].bytes = "much"
    line = "task 'first': bytes of Scores must be a number, got 'much'"
    refused(line, il.evaluate, method, shifted())


CASES = {
    "impresslearn": {"random_masks": 2},
    "hybrid": {"random_masks": 2},
    "finetuning": {"recipe": {"lr": 0.01, "min_steps": 100}},
    "separate": {"recipe": TINY | {"lr": 0.01}},
    "best_mask": {"random_masks": 20},
    "pruned": {"recipe": TINY | {"lr": 0.01}, "sparsity": 0.5},
    **{name: {"recipe": TINY | {"lr": 0.05}} for name in ("pranc", "nola", "unilora", "vblora")},
    "fourierft": {"recipe": TINY | {"lr": 0.1}},
    "randlora": {"recipe": TINY | {"lr": 0.03}},
}
ALONE = ("separate", "lora", "vera", "unilora", "randlora", "vblora", "fourierft", "nola", "pranc")
"""Those whose tasks share nothing."""
CLASSICAL = ("linear_probe", "logistic_regression", "svc")


@pytest.fixture(scope="module")
def evaluated():
    """Each method of the library, and what it did on the three tasks, given raw inputs."""
    how = il.Preprocessing(mean=3.0, std=10.0)
    stream = {
        name: tuple((10 * inputs + 3, labels) for inputs, labels in pair)
        for name, pair in shifted().items()
    }
    found = {}
    for name in set(il.methods.list_methods()) - {"bitfit"}:  # this LeNet has nothing for it
        recipe = {} if name in CLASSICAL else {"recipe": TINY}
        settings = {**recipe, "preprocessing": how, **CASES.get(name, {})}
        method = il.methods.create_method(name, lenet(), seed=3, **settings)
        assert (method.seed, method.preprocessing) == (3, how)
        found[name] = method, il.evaluate(method, stream, basis=1)
    return found


def test_only_one_network_for_all_forgets(evaluated):
    for name, (_, result) in evaluated.items():
        assert result.matrix[1][0] > (0.9 if name == "finetuning" else 0.5)
        if name == "finetuning":
            assert result.matrix[2][1] > 0.9
            assert result.matrix[2][0] < 0.2
        else:
            assert result.matrix[3][0] == result.matrix[1][0]


def test_roles_and_bytes(evaluated):
    roles = {name: [*result.roles.values()] for name, (_, result) in evaluated.items()}
    sizes = {name: [*result.bytes.values()] for name, (_, result) in evaluated.items()}
    assert roles["impresslearn"] == roles["hybrid"] == ["basis", "learned", "learned"]
    assert roles["supsup"] == ["basis"] * 3
    assert roles["best_mask"] == ["basis", "learned", "learned"]
    assert sizes["best_mask"][1:] == [1 + 2, 1 + 2]
    assert roles["single_mask"] == ["basis", "reused", "reused"]
    assert sizes["single_mask"][1:] == [2, 2]
    network = 4 * lenet().num_maskable
    assert sizes["separate"] == [network + 2] * 3
    assert sizes["logistic_regression"] == [4 * 3 * (16 + 1) + 2] * 3
    assert sizes["linear_probe"] == [4 * 3 * (12 + 1) + 2] * 3
    assert sizes["finetuning"] == [network + 2, 2, 2]
    assert sizes["impresslearn"][1] < sizes["supsup"][1] < network
    assert sizes["impresslearn"][0] == sizes["supsup"][0]
    for method, result in evaluated.values():
        for info in method.tasks_.values():
            assert result.bytes[info.name] == info.bytes == sum(info.breakdown.values())


def test_raw_inputs_are_prepared_by_every_verb_of_every_method(evaluated):
    inputs, labels = blobs(0)
    raw, prepared = 10 * inputs + 3, il.Prepared((inputs, labels))
    right = (lenet().forward({}, inputs).argmax(1) == labels).float().mean()
    for name, (method, result) in evaluated.items():
        accuracy = method.score((raw, labels), "first")
        assert accuracy == pytest.approx(method.score(prepared, "first"))
        predicted = method.predict(raw, "first") == labels.numpy()
        assert predicted.mean() == pytest.approx(accuracy)
        if name in CLASSICAL:
            assert math.isnan(result.matrix[0][0])
        elif name not in (
            "impresslearn",
            "hybrid",
            "best_mask",
        ):  # before any task, the random network
            assert result.matrix[0][0] == pytest.approx(float(right))
        if name in (*ALONE, "pruned"):
            assert result.forward_transfer == 0


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        ("supsupp", {}, "no method 'supsupp'; did you mean 'supsup"),
        ("xyz", {}, "no method 'xyz'; choose from impresslearn, supsup"),
        ("supsup", {"sparsty": 0.5}, "supsup has no setting 'sparsty'; did you mean 'sparsity'"),
        ("hybrid", {"granularity": "unit"}, "hybrid has no setting 'granularity'"),
        ("vera", {"bit_price": 1.0}, "vera has no setting 'bit_price'"),
        ("svc", {"recipe": {}}, "svc has no setting 'recipe'; choose from preprocessing, features"),
        ("svc", {"features": "pixels"}, "features must be inputs or backbone, got 'pixels'"),
        ("separate", {"recipe": {"epoch": 1}}, "no entry 'epoch'; did you mean 'epochs'"),
        ("separate", {"recipe": 3}, "a recipe must be a Recipe or a mapping"),
        ("separate", {"recipe": {"lr": -1}}, "lr must be a number of at least 0, got -1"),
        ("impresslearn", {"preset": "papr"}, "got 'papr'"),
        ("impresslearn", {"random_masks": -1}, "random_masks must be an integer of at least 0"),
    ],
)
def test_methods_that_cannot_be_made(name, settings, line):
    refused(line, il.methods.create_method, name, lenet(), **settings)


def test_presets_and_recipes_are_resolved():
    recipes = {"recipe": {"epochs": 1}, "basis_recipe": {"lr": 0.5}, "task_recipe": QUICK}
    settings = {"preset": "paper_lenet", "sparsity": 0.5} | recipes
    values = il.methods.method_settings("impresslearn", **settings)
    assert (values["score_rule"], values["sparsity"]) == ("score", 0.5)
    assert (values["basis_recipe"]["epochs"], values["basis_recipe"]["lr"]) == (1, 0.5)
    assert il.Recipe(**values["task_recipe"]) == QUICK
    made = il.methods.create_method("impresslearn", lenet(), **values)
    assert (made.task_recipe, made.basis_recipe.lr, made.sparsity) == (QUICK, 0.5, 0.5)
    assert il.methods.method_settings("impresslearn", **values) == values
    for name in ("separate", "hybrid", "lora", "nola", "pruned"):
        for recipe in (QUICK, {"lr": 0.5}):
            lr = il.methods.create_method(name, lenet(), recipe=recipe).recipe.lr
            assert lr == (0.03 if recipe is QUICK else 0.5)


def test_basis_by_label_settings_by_name_and_objects_not_classes():
    stream = {name: (blobs(seed), blobs(seed)) for seed, name in enumerate("ab")}
    compared = il.compare(
        {"ours": quick_learner(lenet()), "single": quick_learner(lenet()).add_masks(2)},
        stream,
        basis={"ours": 1},
    )
    roles = {label: dict(result.roles) for label, result in compared.items()}
    assert roles == {
        "ours": {"a": "basis", "b": "learned"},
        "single": dict.fromkeys("ab", "learned"),
    }
    ours = {"ours": quick_learner(lenet())}
    wrong = "a label of basis must be ours, got 'other'"
    refused(wrong, il.compare, ours, stream, basis={"other": 1})
    refused("a method is an object, not a class: give SupSup", il.evaluate, il.SupSup, stream)
    refused("SupSup has no setting 'recipe'", il.SupSup, lenet(), recipe=il.Recipe())
