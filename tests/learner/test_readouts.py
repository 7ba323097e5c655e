"""Readouts: a linear layer over the features under all masks, for tasks with few labels."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from impresslearn import ImpressLearner, adapt, load, open_store
from impresslearn.coefficients import readout
from impresslearn.errors import InputError
from impresslearn.export import export_task
from impresslearn.learner import readouts
from toys import ConvNet, blobs, lenet, pictures, quick_learner, refused

DATA = {"two": blobs(seed=1, classes=2, count=24), "four": blobs(seed=2, classes=4, count=48)}


def trained() -> ConvNet:
    """A network whose running statistics are no longer new."""
    network = ConvNet()
    for seed in range(5):
        network(pictures(seed)[0])
    return network.eval()


def learner_of(masks: int = 3, **settings: Any) -> ImpressLearner:
    """Some basis tasks, or a network alone."""
    backbone = lenet(4, head="own")
    settings = {"granularity": "readout", "precision": "coded"} | settings
    settings = ({"bit_price": 0.01} if settings["precision"] == "coded" else {}) | settings
    learner = quick_learner(backbone, sparsity=0.5, **settings)
    for seed in range(masks):
        learner.learn_basis(f"basis {seed}", blobs(seed=10 + seed, classes=3, count=60))
    return learner


def features_of(learner: ImpressLearner, inputs: Tensor) -> np.ndarray:
    """Computed by hand: what each masked network gives its head."""
    found = []
    for name in learner.bank_.names:
        weights = learner.backbone.weights
        masked = {key: weights[key] * mask for key, mask in learner.bank_.mask(name).items()}
        found.append(learner.backbone.features(masked, inputs))
    return torch.cat(found, dim=1).numpy()


@pytest.mark.parametrize("precision", ["float32", "int8", "coded"])
@pytest.mark.parametrize("projected", [False, True])
def test_what_was_learned_is_kept(tmp_path: Path, precision: Any, projected: bool) -> None:
    learner, inputs = learner_of(precision=precision), DATA["four"][0]
    learner.learn_task("before", DATA["two"])
    before = learner.logits(inputs, "before")
    if projected:
        learner.learn_features(DATA["two"], DATA["four"], dimensions=8)
    for name, data in DATA.items():
        learner.learn_task(name, data)
        assert learner.score(data, name) > 0.9
    assert torch.equal(learner.logits(inputs, "before"), before)
    tasks = {name: learner.logits(inputs, name) for name in learner.tasks_}
    learner.save(path := tmp_path / "a.impress")
    with open_store(path) as opened:
        for again in (load(path), opened):
            for name, logits in tasks.items():
                assert torch.equal(again.logits(inputs, name), logits)
                assert again.tasks_[name].bytes == learner.tasks_[name].bytes
        opened.learn_task("later", DATA["four"])  # with the features that the file holds
        logits = learner.learn_task("later", DATA["four"]).logits(inputs, "later")
        assert torch.equal(opened.logits(inputs, "later"), logits)
    learner.save(tmp_path / "b.impress", tasks=["four"])
    assert torch.equal(load(tmp_path / "b.impress").logits(inputs, "four"), tasks["four"])


def test_it_is_logistic_regression_of_the_features() -> None:
    learner, (inputs, labels) = learner_of(precision="float32"), DATA["four"]
    learner.learn_task("task", (inputs, labels))
    table = features_of(learner, inputs)  # of a network whose layers have no biases
    table *= readout.FEATURE_NORM / np.sqrt((table**2).sum(axis=1).mean())
    expected = LogisticRegression(C=readout.C, max_iter=1000, fit_intercept=False)
    expected.fit(table, labels)
    logits = torch.from_numpy(expected.decision_function(table)).float()
    torch.testing.assert_close(learner.logits(inputs, "task"), logits, atol=2e-3, rtol=1e-3)


def test_a_price_buys_fewer_bytes() -> None:
    sizes = []
    for price in (0.001, 0.1, 10.0):
        learner = learner_of(bit_price=price).learn_task("task", DATA["four"])
        sizes.append(learner.tasks_["task"].breakdown["coefficients"])
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 2 * sizes[2]


def test_without_a_mask_the_network_itself_gives_features(tmp_path: Path) -> None:
    learner = learner_of(masks=0).learn_task("task", DATA["four"])
    assert learner.score(DATA["four"], "task") > 0.8
    assert learner.tasks_["task"].num_masks == 0
    backbone = adapt(trained(), input_shape=(3, 8, 8), head="own")
    later = ImpressLearner.from_preset(backbone, "few_labels", progress=False)
    images = pictures()
    later.learn_task("task", images).save(tmp_path / "a.impress")
    again = load(tmp_path / "a.impress", module=ConvNet())
    assert torch.equal(again.logits(images[0], "task"), later.logits(images[0], "task"))


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_exports_add_the_networks(tmp_path: Path, suffix: str) -> None:
    learner, (inputs, _) = learner_of(), DATA["four"]
    learner.learn_features(DATA["four"], dimensions=6).learn_task("four", DATA["four"])
    module = learner.export("four")
    assert torch.equal(module(inputs), learner.logits(inputs, "four"))
    assert module.classes == (0, 1, 2, 3)
    if suffix == "onnx":
        pytest.importorskip("onnxscript")
    assert export_task(learner.task_model("four"), tmp_path / f"a.{suffix}").exists()
    line = "reads the features of 3 networks"
    with pytest.raises(InputError, match=line):
        export_task(learner.task_model("four"), tmp_path / "a.safetensors")


def test_features_that_tasks_use_outlive_others_of_more_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / "a.impress", DATA["four"]
    learner_of().save(path)
    computed = readouts.Projection.of
    with open_store(path) as slow, open_store(path) as quick:

        def meanwhile(*given: Any) -> Any:
            found = computed(*given)  # over three masks
            monkeypatch.undo()
            with torch.enable_grad():
                quick.learn_basis("later", data).learn_features(data)  # over four, kept first
            return found

        monkeypatch.setattr(readouts.Projection, "of", meanwhile)
        logits = slow.learn_features(data).learn_task("task", data).logits(data[0], "task")
    assert torch.equal(load(path).logits(data[0], "task"), logits)


@pytest.mark.parametrize("scale", [1e-7, 1e9])
@pytest.mark.parametrize("projected", [False, True])
def test_features_beyond_16_bits_are_refused(scale: float, projected: bool) -> None:
    learner, (inputs, labels) = learner_of(), DATA["four"]
    learn = learner.learn_features if projected else partial(learner.learn_task, "task")
    refused("16 bits; scale the inputs", learn, (scale * inputs, labels))
    assert "task" not in learner.tasks_


def test_a_bias_that_is_too_coarse_to_be_right_is_refused() -> None:
    backbone = adapt(nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4)))
    learner = ImpressLearner.from_preset(backbone, "few_labels", progress=False)
    inputs, labels = DATA["four"]
    refused("standardise the inputs", learner.learn_task, "task", (inputs + 1e4, labels))
    learner.learn_task("task", (inputs + 10, labels))
    assert learner.score((inputs + 10, labels), "task") > 0.9


def test_what_a_readout_cannot_do_is_said() -> None:
    data = DATA["two"]
    shared = quick_learner(lenet(), granularity="readout")
    refused('head="own"', shared.learn_task, "task", data)
    normed = adapt(trained(), input_shape=(3, 8, 8), head="own", norm="per_task")
    own = quick_learner(normed, granularity="readout")
    refused("per_task", own.learn_task, "task", pictures())
    learner = learner_of()
    refused("give the data of a task", learner.learn_features)
    mixing = ImpressLearner(learner.backbone, progress=False)
    refused("learn_features is for readouts", mixing.learn_features, data)
    refused("dimensions", learner.learn_features, data, dimensions=0)
    refused("are the same", learner.learn_features, (torch.zeros(4, 16), data[1][:4]))
    for settings in ({"tune": ("bias",)}, {"output_scale": True}):
        refused("readout", learner_of, **settings)


def test_an_update_that_changes_nothing_is_no_version() -> None:
    learner = learner_of().learn_task("four", DATA["four"])
    learner.update_task("four", DATA["four"])
    assert len(learner.versions("four")) == 1
    learner.update_task("four", blobs(seed=3, classes=4, count=48))
    assert len(learner.versions("four")) == 2
