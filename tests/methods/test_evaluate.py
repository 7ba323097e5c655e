"""Evaluation of a user's own class and of the library's methods, and how results are shown."""

import math

import numpy as np
import pytest

import impresslearn as il
from toys import blobs, lenet, quick_learner

TINY = {"epochs": 0, "min_steps": 60, "batch_size": 32}


class NearestMean:
    """A method of a user's: the class whose mean is nearest, with means for each task."""

    def __init__(self):
        self.means = {}

    def learn_task(self, name, data):
        labels = np.unique(data.labels)
        self.means[name] = labels, [data.inputs[data.labels == k].mean(0) for k in labels]

    def predict(self, inputs, task):
        labels, means = self.means[task]
        return labels[np.argmin([((inputs - mean) ** 2).flatten(1).sum(1) for mean in means], 0)]

    def score(self, data, task):
        return float((self.predict(data.inputs, task) == data.labels).mean())


def shifted():
    """Three tasks on the same inputs; the second has the first one's labels moved by one."""
    inputs, labels = blobs(0)
    moved, others = (inputs, (labels + 1) % 3), blobs(5)
    return {
        "first": ((inputs, labels), (inputs, labels)),
        "second": (moved, moved),
        "third": (others, others),
    }


def test_a_class_of_one_s_own_on_rotated_digits():
    stream = il.streams.rotated_digits(tasks=3, seed=0)
    result = il.evaluate(NearestMean(), stream)
    assert result.tasks == stream.names
    assert result.average_accuracy > 0.8
    assert result.forgetting == result.backward_transfer == 0
    assert result.forward_transfer is None
    assert [math.isnan(value) for value in result.matrix[1]] == [False, True, True]
    assert result.bytes == result.roles == {}
    assert [row["accuracy_before"] for row in result.rows()] == [None] * 3
    assert result.summary()["bytes_per_task"] is None
    for name in stream.names:
        assert name in str(result)


def test_methods_side_by_side():
    mine = NearestMean()
    found = il.compare({"ours": quick_learner(), "<mine>": mine}, shifted(), basis=1)
    assert list(found) == ["ours", "<mine>"]
    ours = found["ours"]
    assert ours.roles == {"first": "basis", "second": "learned", "third": "learned"}
    assert ours.matrix[0] != ours.matrix[1]
    assert ours.forward_transfer is not None
    assert ours.summary()["bytes_per_task"] == sum(ours.bytes.values()) / 3
    assert [row["method"] for row in found.rows()] == ["ours", "<mine>"]
    lines = str(found).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[-1].startswith("<mine>")
    assert " – " in lines[-1]
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


class Percent(NearestMean):
    def score(self, data, task):
        return 100 * super().score(data, task)


class NoScore:
    learn_task = predict = print


@pytest.mark.parametrize(
    ("method", "stream", "basis", "line"),
    [
        (NoScore(), shifted(), 0, "NoScore has no score"),
        (Percent(), shifted(), 0, r"task 'first': Percent must give an accuracy in \[0, 1\]"),
        (NearestMean(), {"one": (blobs(), blobs())}, 0, "at least two tasks, the stream has 1"),
        (NearestMean(), shifted(), 4, "basis = 4, but the stream has only 3"),
        (quick_learner(), shifted(), 0, "task 'first': the bank is empty"),
    ],
)
def test_what_cannot_be_evaluated(method, stream, basis, line):
    with pytest.raises(il.InputError, match=line) as caught:
        il.evaluate(method, stream, basis=basis)
    assert "\n" not in str(caught.value)


def test_nothing_to_compare():
    with pytest.raises(il.InputError, match="methods must map labels to methods"):
        il.compare({}, shifted())


CASES = {
    "impresslearn": {"random_masks": 2},
    "hybrid": {"random_masks": 2},
    "finetuning": {"recipe": {"lr": 0.01, "min_steps": 100}},
    "separate": {"recipe": TINY | {"lr": 0.01}},
}


@pytest.fixture(scope="module")
def evaluated():
    """Each method of the library, and what it did on the three tasks."""
    found = {}
    for name in il.methods.list_methods():
        settings = {"recipe": TINY} | CASES.get(name, {})
        method = il.methods.create_method(name, lenet(), seed=3, **settings)
        found[name] = method, il.evaluate(method, shifted(), basis=1)
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
    assert roles["single_mask"] == ["basis", "reused", "reused"]
    assert sizes["single_mask"][1:] == [2, 2]
    network = 4 * lenet().num_maskable
    assert sizes["separate"] == [network + 2] * 3
    assert sizes["finetuning"] == [network + 2, 2, 2]
    assert sizes["impresslearn"][1] < sizes["supsup"][1] < network
    assert sizes["impresslearn"][0] == sizes["supsup"][0]
    for method, result in evaluated.values():
        for info in method.tasks_.values():
            assert result.bytes[info.name] == info.bytes == sum(info.breakdown.values())


def test_before_any_task_there_is_the_random_network(evaluated):
    inputs, labels = blobs(0)
    right = (lenet().forward({}, inputs).argmax(1) == labels).float().mean()
    for name in ("supsup", "single_mask", "finetuning", "separate", "lora", "vera"):
        assert evaluated[name][1].matrix[0][0] == pytest.approx(float(right))
    for name in ("separate", "lora", "vera"):  # their tasks share nothing
        assert evaluated[name][1].forward_transfer == 0


def test_raw_inputs_are_prepared_by_every_method(evaluated):
    inputs, labels = blobs(0)
    raw = (10 * inputs + 3, labels)
    how = il.Preprocessing(mean=3.0, std=10.0)
    for name in evaluated:
        settings = {"recipe": TINY} | CASES.get(name, {}) | {"preprocessing": how}
        method = il.methods.create_method(name, lenet(), **settings)
        method.learn_task("a", raw)
        accuracy = method.score(raw, "a")
        assert accuracy == method.score(il.Prepared(((raw[0] - 3) / 10, labels)), "a")
        assert (method.predict(raw[0], "a") == labels.numpy()).mean() == pytest.approx(accuracy)
        again = method.zero_shot_score(il.Prepared(((raw[0] - 3) / 10, labels)))
        assert method.zero_shot_score(raw) == again
