"""Classifiers of scikit-learn as methods: their features, bytes and refusals."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from impresslearn import Inputs, adapt
from impresslearn.errors import UnknownTaskError
from impresslearn.masks import MaskBank, random_bank
from impresslearn.methods import SklearnClassifier
from models import MODELS, seeded
from toys import blobs, lenet, pictures, refused, resnet

X, Y = blobs(0)
TEST = blobs(0)[0] + 0.5 * torch.randn(96, 16, generator=torch.Generator().manual_seed(1))


def hidden(weights, inputs):
    """What enters the last layer of a LeNet."""
    for name in ("0.weight", "2.weight"):
        inputs = torch.relu(inputs @ weights[name].T)
    return inputs.numpy()


@pytest.mark.parametrize(
    ("name", "model", "settings"),
    [
        ("logistic_regression", LogisticRegression(max_iter=1000), {}),
        ("logistic_regression", LogisticRegression(C=0.01), {"C": 0.01}),
        ("svc", SVC(C=10), {}),
        ("svc", SVC(C=0.1, kernel="linear"), {"C": 0.1, "kernel": "linear"}),
    ],
)
def test_they_are_scikit_learn_s_and_keep_what_predicts(name, model, settings):
    method = SklearnClassifier(lenet(), name, **settings)
    model.fit(X.numpy(), Y.numpy())
    assert method.learn_task("a", (X, Y)) is method
    expected = model.predict(TEST.numpy())
    assert (method.predict(TEST, "a") == expected).all()
    assert method.score((TEST, Y), "a") == (expected == Y.numpy()).mean() > 0.9
    if hasattr(model, "coef_"):  # three classes, or three pairs of them
        size = 4 * 3 * (16 + 1)
    else:
        vectors = len(model.support_)
        size = 4 * (vectors * (16 + 2) + 3 + 3 + 1)
    info = method.tasks_["a"]
    assert info.breakdown == {"classifier": size, "labels": 2}
    assert (info.bytes, info.role, info.num_masks) == (size + 2, "learned", 0)
    names = np.array(["ant", "bee", "cat"])[Y]
    method.learn_task("b", (TEST, names))
    assert set(method.predict(X, "b")) == {"ant", "bee", "cat"}
    assert (method.predict(TEST, "a") == expected).all()


def test_features_of_the_frozen_network_and_of_every_mask():
    backbone = lenet()
    model = LogisticRegression(max_iter=1000)
    plain = SklearnClassifier(backbone, features="backbone").learn_task("a", (X, Y))
    model.fit(hidden(backbone.weights, X), Y)
    assert (plain.predict(TEST, "a") == model.predict(hidden(backbone.weights, TEST))).all()
    assert plain.tasks_["a"].breakdown["classifier"] == 4 * 3 * (12 + 1)
    bank = random_bank(backbone.layers, 2, 0.5)
    method = SklearnClassifier(backbone, features="backbone", bank=bank).learn_task("a", (X, Y))

    def columns(inputs):
        masks = map(bank.mask, bank.names[:2])
        weights = [{k: w * mask[k] for k, w in backbone.weights.items()} for mask in masks]
        return np.concatenate([hidden(each, inputs) for each in weights], axis=1)

    expected = model.fit(columns(X), Y).predict(columns(TEST))
    assert (method.predict(TEST, "a") == expected).all()
    bank.append("more", bank.mask(bank.names[0]))
    assert (method.predict(TEST, "a") == expected).all()
    method.learn_task("b", (X, Y))
    assert [info.num_masks for info in method.tasks_.values()] == [2, 3]
    assert method.tasks_["b"].breakdown["classifier"] == 4 * 3 * (36 + 1)


def test_images_and_more_classes_than_the_network_has_outputs():
    images, labels = pictures(classes=4, size=8)
    for features, columns in (("inputs", 3 * 8 * 8), ("backbone", 32)):
        method = SklearnClassifier(resnet("per_task"), features=features)
        method.learn_task("a", (images, labels))
        assert method.tasks_["a"].breakdown["classifier"] == 4 * 4 * (columns + 1)
        assert method.score((images, labels), "a") > 0.9


@pytest.mark.parametrize("name", MODELS)
def test_features_of_any_architecture(name):
    make, data = MODELS[name]
    backbone = adapt(seeded(make), head="own")
    method = SklearnClassifier(backbone, features="backbone", C=100)
    for task, classes in (("a", 3), ("b", 5)):
        examples = data(0, classes)
        method.learn_task(task, examples)
        assert method.score(examples, task) > 0.6
    if isinstance(examples[0], dict | Inputs):
        plain = SklearnClassifier(backbone)
        refused("^only one tensor an example can be taken", plain.learn_task, "a", examples)


class Majority:
    """Predicts the class that it saw most, in a way of its own."""

    def fit(self, values, targets):
        self.most = np.bincount(targets).argmax()

    def predict(self, values):
        return [float(self.most)] * len(values)


def test_estimators_of_one_s_own():
    tree = DecisionTreeClassifier(splitter="random", max_features=1)
    first, again, other = (
        SklearnClassifier(lenet(), tree, seed=seed).learn_task("a", (X, Y))
        for seed in (2**32 - 1, -1, 3)
    )
    assert (first.predict(TEST, "a") == again.predict(TEST, "a")).all()
    assert (first.predict(TEST, "a") != other.predict(TEST, "a")).any()
    assert tree.random_state is None
    assert first.tasks_["a"].breakdown["classifier"] == len(pickle.dumps(first._fitted["a"]))
    scaled = make_pipeline(StandardScaler(), tree)
    assert SklearnClassifier(lenet(), scaled, seed=5).estimator[-1].random_state == 5
    assert SklearnClassifier(lenet(), NearestCentroid()).learn_task("a", (X, Y)).score((X, Y), "a")
    plain = SklearnClassifier(lenet(), Majority()).learn_task("a", (X[:92], Y[:92] % 2))
    assert plain.predict(TEST, "a").tolist() == [0] * 96


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "svm"}, "logistic_regression or svc, or an object, got 'svm'"),
        ({"estimator": SVC}, "must be an object with fit and predict, got <class"),
        ({"estimator": StandardScaler()}, "an object with fit and predict, got StandardScaler"),
        ({"features": "pixels"}, "features must be inputs or backbone, got 'pixels'"),
        ({"bank": MaskBank(lenet().layers)}, "a bank needs features=\"backbone\", got 'inputs'"),
        ({"gamma": 1}, "LogisticRegression has no parameter 'gamma'; it has C, "),
        ({"estimator": Majority(), "C": 1}, "Majority has no parameter 'C'; it has none"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    refused(message, SklearnClassifier, lenet(), **settings)


def test_bad_input_is_refused():
    method = SklearnClassifier(lenet(), "svc").learn_task("a", (X, Y))
    for task, data, message in (
        ("a", (X, Y), "'a' was learned already"),
        ("b", (X, Y * 0), "at least two classes; all labels are 0"),
        ("b", (X[:, :3], Y), "expects 16 values per input"),
    ):
        refused(message, method.learn_task, task, data)
    refused("label 9 was never seen", method.score, (X, Y * 0 + 9), "a")
    refused("no task named 'b'", method.predict, X, "b", error=UnknownTaskError)
    refused(
        "SVC: The 'C' parameter", SklearnClassifier(lenet(), "svc", C=-1).learn_task, "a", (X, Y)
    )
    bank = MaskBank(lenet().layers)
    empty = SklearnClassifier(lenet(), features="backbone", bank=bank)
    refused("the bank is empty", empty.learn_task, "a", (X, Y))
    odd = Majority()
    odd.predict = lambda values: values
    wrong = SklearnClassifier(lenet(), odd)
    refused("bytes of Majority cannot be counted", wrong.learn_task, "a", (X, Y))
    wrong.estimator.predict = np.sum
    refused("Majority must predict one of", wrong.learn_task("a", (X, Y)).predict, X, "a")


@pytest.mark.parametrize("precision", ["float16", "int8", "int4", "coded"])
def test_linear_models_are_rounded_and_predict_with_what_is_kept(precision):
    exact = SklearnClassifier(lenet()).learn_task("a", (X, Y))
    method = SklearnClassifier(lenet(), precision=precision).learn_task("a", (X, Y))
    assert method.score((TEST, Y), "a") > 0.9
    size = method.tasks_["a"].breakdown["classifier"]
    assert size < 0.6 * exact.tasks_["a"].breakdown["classifier"]
    kept, full = method._fitted["a"], exact._fitted["a"]
    assert kept.coef_.shape == full.coef_.shape
    bound = {"float16": 2e-3, "int8": 0.02, "int4": 0.3, "coded": 0.3}[precision]
    assert np.abs(kept.coef_ - full.coef_).max() < bound * np.abs(full.coef_).max()
    expected = np.argmax(TEST.numpy() @ kept.coef_.T + kept.intercept_, axis=1)
    assert (method.predict(TEST, "a") == expected).all()
    if precision in ("int4", "coded"):
        assert len(np.unique(kept.coef_)) <= (15 * 3 if precision == "int4" else 15)


def test_only_linear_models_are_rounded():
    refused("precision must be one of", SklearnClassifier, lenet(), precision="int3")
    for name in ("svc", DecisionTreeClassifier(), SVC(kernel="linear")):
        method = SklearnClassifier(lenet(), name, precision="int8")
        refused("is not linear and cannot be rounded", method.learn_task, "a", (X, Y))
        assert not method.tasks_
