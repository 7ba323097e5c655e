"""Avalanche's benchmarks and loops, which are an extra: without Avalanche these tests skip."""

import sys
from importlib import import_module

import numpy as np
import pytest
import torch

import impresslearn as il
from impresslearn.data import StreamedExamples
from impresslearn.errors import MissingDependencyError
from impresslearn.streams.torchvision import import_extra, load_mnist
from toys import blobs, lenet, quick_learner, refused

try:
    import_extra("avalanche", "Avalanche")
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)
benchmarks = import_module("avalanche.benchmarks")
metrics = import_module("avalanche.evaluation.metrics")
plugins = import_module("avalanche.training.plugins")
integration = import_module("impresslearn.integrations.avalanche")
ImpressStrategy, to_stream = integration.ImpressStrategy, integration.to_stream

pytestmark = pytest.mark.filterwarnings("ignore:No loggers specified")
TOP1 = "Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp00"
AVERAGE = "Top1_Acc_Stream/eval_phase/test_stream/Task000"


def benchmark(tasks=3, test=None, **settings):
    """Three tasks of three clusters; the test examples are others of the same clusters."""
    pairs = [blobs(seed, count=192) for seed in range(tasks)]
    train, held = (
        [(x[part], y[part]) for x, y in pairs] for part in (slice(0, 96), slice(96, 192))
    )
    return benchmarks.tensors_benchmark(
        train_tensors=train, test_tensors=held[:test], task_labels=[0] * tasks, **settings
    )


def strategy(learner, **settings):
    chosen = [
        metrics.accuracy_metrics(experience=True, stream=True),
        metrics.loss_metrics(experience=True),
        metrics.forgetting_metrics(experience=True),
    ]
    evaluator = plugins.EvaluationPlugin(*chosen, loggers=[])
    return ImpressStrategy(learner=learner, evaluator=evaluator, **settings)


def masked():
    return quick_learner().add_random_masks(6)


def test_a_benchmark_becomes_a_stream_with_the_same_examples():
    made = benchmark()
    stream = to_stream(made, "clusters")
    assert (stream.name, stream.names) == ("clusters", tuple(f"experience-{i}" for i in range(3)))
    for seed, task in enumerate(stream):
        inputs, labels = blobs(seed, count=192)
        assert task.classes == (0, 1, 2)
        assert torch.equal(task.train.inputs, inputs[:96])
        assert torch.equal(task.test.inputs, inputs[96:])
        assert task.train.labels.tolist() == labels[:96].tolist()
        assert task.test.labels.tolist() == labels[96:].tolist()
        assert task.validation is None
    held = benchmarks.benchmark_with_validation_stream(made, validation_size=0.25, shuffle=False)
    sizes = [len(part) for part in (*_parts(to_stream(held)[1]),)]
    assert sizes == [72, 24, 96]


def _parts(task):
    return task.train, task.validation, task.test


def test_their_loop_gives_the_accuracies_of_ours():
    made = benchmark()
    ours = il.evaluate(masked(), to_stream(made), basis=1)
    theirs, learner = [], masked()
    loop = strategy(learner, basis=1, eval_mb_size=40)
    for place, experience in enumerate(made.train_stream):
        loop.train(experience)
        theirs.append(loop.eval(made.test_stream))
        assert learner.tasks_[f"experience-{place}"].role == ("learned" if place else "basis")
    for learned, found in enumerate(theirs):
        for place in range(learned + 1):
            assert found[f"{TOP1}{place}"] == pytest.approx(ours.matrix[learned + 1][place])
        for place in range(learned + 1, 3):  # not learned: guessing
            assert found[f"{TOP1}{place}"] == pytest.approx(1 / 3)
    assert theirs[-1][AVERAGE] == pytest.approx(ours.average_accuracy)
    assert ours.average_accuracy > 0.9
    assert theirs[-1]["ExperienceForgetting/eval_phase/test_stream/Task000/Exp000"] == 0
    loss = theirs[-1]["Loss_Exp/eval_phase/test_stream/Task000/Exp001"]
    inputs, labels = blobs(1, count=192)
    logits = learner.logits(inputs[96:], "experience-1")
    wanted = torch.nn.functional.cross_entropy(logits, labels[96:])
    assert loss == pytest.approx(wanted.item(), rel=1e-3)


def test_classes_of_their_own_and_tasks_that_are_inferred():
    inputs, labels = blobs(classes=6, count=192)
    dataset = benchmarks.tensors_benchmark(
        train_tensors=[(inputs, labels)], test_tensors=[(inputs, labels)], task_labels=[0]
    )
    data = {"train": dataset.train_stream[0].dataset, "test": dataset.test_stream[0].dataset}
    made = benchmarks.class_incremental_benchmark(data, class_order=[4, 1, 0, 5, 2, 3],
                                                  num_experiences=3)  # fmt: skip
    stream = to_stream(made)
    assert [task.classes for task in stream] == [(1, 4), (0, 5), (2, 3)]
    learner = quick_learner(lenet(6)).add_random_masks(6)
    loop = strategy(learner)
    loop.train(made.train_stream, eval_streams=[])
    found = loop.eval(made.test_stream)
    names = [name for name in found if name.startswith("Top1_Acc_Exp")]
    scores = [learner.score(task.test, task.name) for task in stream]
    assert [found[name] for name in sorted(names)] == pytest.approx(scores)
    assert min(scores) > 0.9
    guessing = strategy(learner, infer=True, eval_mb_size=64)
    asked = []
    learner.infer_task = lambda x, infer=learner.infer_task: asked.append(len(x)) or infer(x)
    assert guessing.eval(made.test_stream)[names[0]] > 0.5
    assert asked == [64] * 3


def test_one_test_set_for_all_tasks_needs_inference():
    made = benchmark(test=1, complete_test_set_only=True)
    refused("expected 3 experiences in test_stream, as in train_stream, got 1", to_stream, made)
    loop = strategy(masked())
    loop.train(made.train_stream, eval_streams=[])
    refused("set infer=True", loop.eval, made.test_stream)
    guessing = strategy(loop.learner, infer=True, eval_mb_size=96)
    (found,) = (v for k, v in guessing.eval(made.test_stream).items() if "Top1_Acc_Exp" in k)
    inputs, labels = (each[96:] for each in blobs(count=192))
    best = loop.learner.infer_task(inputs).best
    assert found == pytest.approx(loop.learner.score((inputs, labels), best))


class Majority:
    """Predicts the label that a task had most often."""

    def __init__(self):
        self.tasks_ = {}

    def learn_task(self, name, data):
        self.tasks_[name] = il.Examples(data.inputs, data.labels)
        self.tasks_[name].__dict__["classes"] = tuple(np.unique(data.labels).tolist())

    def predict(self, inputs, task):
        labels = self.tasks_[task].labels
        return np.full(len(inputs), np.bincount(labels).argmax())


def test_another_method_and_plugins_that_add_data():
    method = Majority()

    class Twos(plugins.SupervisedPlugin if hasattr(plugins, "SupervisedPlugin") else object):
        """Repeats the examples of class 2, as a buffer of earlier ones would."""

        def after_train_dataset_adaptation(self, strategy, **kwargs):
            dataset = strategy.adapted_dataset
            places = [place for place, label in enumerate(dataset.targets) if label == 2]
            strategy.adapted_dataset = dataset.concat(dataset.subset(places))

    made = benchmark()
    loop = ImpressStrategy(
        learner=method,
        plugins=[Twos()],
        evaluator=plugins.EvaluationPlugin(metrics.accuracy_metrics(experience=True), loggers=[]),
    )
    loop.train(made.train_stream[0])
    assert method.predict([0], "experience-0") == [2]
    assert loop.eval(made.test_stream[0])[f"{TOP1}0"] == pytest.approx(1 / 3)


def test_augmentations_are_drawn_anew_and_only_in_training():
    made = benchmark(train_transform=lambda x: x + torch.randn(1), eval_transform=lambda x: 2 * x)
    task = to_stream(made)[0]
    assert isinstance(task.train, StreamedExamples)
    assert torch.equal(task.test.inputs, 2 * blobs(0, count=192)[0][96:])


def test_what_cannot_be_used_is_refused():
    refused("a learner needs learn_task, object has none", ImpressStrategy, learner=object())
    method = Majority()
    refused("a learner needs learn_basis", ImpressStrategy, learner=method, basis=1)
    refused("a learner needs infer_task", ImpressStrategy, learner=method, infer=True)
    refused("infer must be True or False", ImpressStrategy, learner=masked(), infer="all")
    refused("train_epochs is the learner's", ImpressStrategy, learner=masked(), train_epochs=2)
    refused("got a dict without train_stream", to_stream, {})
    loop = strategy(quick_learner())
    refused("mask", loop.train, benchmark().train_stream[0])


def test_without_avalanche_a_line_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "avalanche", None)
    monkeypatch.delitem(sys.modules, "impresslearn.integrations.avalanche")
    line = "this needs Avalanche: pip install 'impresslearn"
    name = "impresslearn.integrations.avalanche"
    refused(line, import_module, name, error=MissingDependencyError)


@pytest.mark.nightly
def test_permuted_mnist_of_theirs_is_as_accurate_as_the_same_stream_of_ours(mnist_root):
    whole = benchmarks.PermutedMNIST(3, seed=4, dataset_root=mnist_root)
    fifth = {
        name: [each.dataset.subset(range(0, len(each.dataset), 5)) for each in stream]
        for name, stream in (("train", whole.train_stream), ("test", whole.test_stream))
    }
    theirs = benchmarks.benchmark_from_datasets(**fifth)
    draws = np.random.RandomState(4)  # what Avalanche draws its permutations from
    raw = load_mnist(mnist_root, False)
    ours = {}
    for place in range(3):
        order = draws.permutation(784)
        parts = []
        for images, labels in (
            (raw.train_images, raw.train_labels),
            (raw.test_images, raw.test_labels),
        ):
            chosen = np.argsort(labels, kind="stable")[::5]  # Avalanche has them class by class
            pixels = images[chosen].reshape(-1, 784)[:, order].reshape(-1, 1, 28, 28)
            normal = (torch.from_numpy(pixels).float() / 255 - 0.1307) / 0.3081
            parts.append((normal, labels[chosen]))
        ours[f"experience-{place}"] = parts
    stream = il.streams.from_arrays(ours)

    def learner():
        backbone = il.create_backbone("lenet_300_100", 10, in_features=784, seed=0)
        return il.ImpressLearner(backbone, progress=False).add_random_masks(8)

    wanted = il.evaluate(learner(), stream, basis=2).average_accuracy
    loop = strategy(learner(), basis=2)
    for number, experience in enumerate(theirs.train_stream):
        given = integration.to_examples(experience.dataset)
        assert torch.allclose(given.inputs, stream[number].train.inputs, atol=1e-6)
        assert (given.labels == stream[number].train.labels).all()
        loop.train(experience)
    (found,) = (
        value for name, value in loop.eval(theirs.test_stream).items() if "Acc_Stream" in name
    )
    assert found > 0.7
    assert found == pytest.approx(wanted, abs=0.005)
