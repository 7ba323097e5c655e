"""Readouts, for tasks with few labels: over the features under each mask, computed once."""

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from impresslearn import Backbone, ImpressLearner, Prepared, Preprocessing, adapt, load, open_store
from impresslearn.coefficients import readout
from impresslearn.export import export_task
from impresslearn.learner import readouts
from models import Named, padded, seeded
from toys import ConvNet, blobs, few_labels, lenet, pictures, quick_learner, refused

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
    before = learner.learn_task("before", DATA["two"]).logits(inputs, "before")
    if projected:
        learner.learn_features(DATA["two"], DATA["four"], dimensions=8)
    for name, data in DATA.items():
        assert learner.learn_task(name, data).score(data, name) > 0.9
    assert torch.equal(learner.logits(inputs, "before"), before)
    tasks = {name: learner.logits(inputs, name) for name in learner.tasks_}
    learner.save(path := tmp_path / "a.impress")
    with open_store(path) as opened:
        for again in (load(path), opened):
            for name, logits in tasks.items():
                assert torch.equal(again.logits(inputs, name), logits)
                assert again.tasks_[name].bytes == learner.tasks_[name].bytes
        one, other = (each.learn_task("later", DATA["four"]) for each in (learner, opened))
        assert torch.equal(one.logits(inputs, "later"), other.logits(inputs, "later"))
    learner.save(tmp_path / "b.impress", tasks=["four"])
    assert torch.equal(load(tmp_path / "b.impress").logits(inputs, "four"), tasks["four"])


def test_it_is_logistic_regression_of_the_features() -> None:
    learner, (inputs, labels) = learner_of(precision="float32"), DATA["four"]
    learner.learn_task("task", (inputs, labels))
    table = features_of(learner, inputs)  # of a network whose layers have no biases
    table *= readout.FEATURE_NORM / np.sqrt((table**2).sum(axis=1).mean())
    expected = LogisticRegression(C=readout.C, max_iter=1000, fit_intercept=False).fit(
        table, labels
    )
    logits = torch.from_numpy(expected.decision_function(table)).float()
    torch.testing.assert_close(learner.logits(inputs, "task"), logits, atol=2e-3, rtol=1e-3)


def test_later_weights_make_up_for_the_rounding_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    table, targets = (values.numpy() for values in blobs(classes=4, count=48))
    steps, losses = np.array([0.1, 0.2, 0.4, 0.8]), {}
    for groups in (1, 8):  # a single group is rounded to the nearest integers
        monkeypatch.setattr(readout, "GROUPS", groups)
        losses[groups] = readout.Regression(table, targets, 4, True)._rounded(steps)[-1].sum()
    assert losses[8] < losses[1]


def test_exports_add_the_networks(tmp_path: Path) -> None:
    learner, (inputs, _) = learner_of(), DATA["four"]
    learner.learn_features(DATA["four"], dimensions=6).learn_task("four", DATA["four"])
    module = learner.export("four")
    assert torch.equal(module(inputs), learner.logits(inputs, "four"))
    assert (module.classes, len(module.networks)) == ((0, 1, 2, 3), 3)
    pytest.importorskip("onnxscript")
    assert export_task(learner.task_model("four"), tmp_path / "a.onnx").exists()


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
    again = load(path)
    again._store.commit_projection(torch.randn(20, 12), 8, 0, True)  # of no mask, kept last
    logits = again.learn_task("frozen", data).logits(data[0], "frozen")
    again.save(path, tasks=["frozen"], overwrite=True)
    assert torch.equal(load(path).logits(data[0], "frozen"), logits)


def test_readouts_do_not_read_what_task_inference_projects() -> None:
    network = seeded(lambda: nn.Sequential(nn.Linear(16, 600), nn.ReLU(), nn.Linear(600, 4)))
    learner = few_labels(adapt(network)).add_random_masks(2)
    for name in ("first", "second"):
        learner.learn_task(name, blobs(5, classes=4, count=300))
        assert learner.coefficients_[name].num_masks == 2


def test_a_bias_that_is_too_coarse_to_be_right_is_refused() -> None:
    network = seeded(lambda: nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4)))
    learner, (inputs, labels) = few_labels(adapt(network)), DATA["four"]
    refused("standardise the inputs", learner.learn_task, "task", (inputs + 1e4, labels))
    data = inputs + 10, labels
    assert learner.learn_task("task", data).score(data, "task") > 0.9


def test_an_update_that_changes_nothing_is_no_version() -> None:
    learner = learner_of().learn_task("four", DATA["four"])
    for data, count in ((DATA["four"], 1), (blobs(seed=3, classes=4, count=48), 2)):
        assert len(learner.update_task("four", data).versions("four")) == count


SOURCES: dict[str, Any] = {
    "sentences": (lambda: few_labels(adapt(seeded(Named))), padded),
    "tokens": (lambda: few_labels(adapt(seeded(partial(Named, reads_tokens=True)))), padded),
    "pictures": (lambda: few_labels(adapt(trained())), partial(pictures, count=60)),
    "masks": (lambda: few_labels(lenet(3, head="own")).add_random_masks(3), blobs),
}


@pytest.mark.parametrize("source", SOURCES)
def test_tasks_are_those_of_the_inputs(tmp_path: Path, source: str) -> None:
    make, data = SOURCES[source]
    raw, kept, (inputs, labels) = make(), make(), data()
    features = kept.features(inputs)
    again = pickle.loads(pickle.dumps(features))
    for name, places in {"all": slice(None), "some": slice(5, 45)}.items():
        if isinstance(inputs, dict):
            some = {key: value[places] for key, value in inputs.items()}
        else:
            some = inputs[places]
        raw.learn_task(name, (some, labels[places]))
        kept.learn_task(name, (again[places], labels[places]))
        assert kept.tasks_[name].breakdown == raw.tasks_[name].breakdown
        logits = raw.logits(inputs, name)
        torch.testing.assert_close(kept.logits(features, name), logits, atol=1e-5, rtol=1e-5)
        assert torch.equal(kept.logits(inputs, name), logits)  # the same numbers were kept

        assert kept.score((features, labels), name) == raw.score((inputs, labels), name) > 0.75
    kept.save(path := tmp_path / "a.impress")
    served = load(path, module=kept.backbone.module if kept.backbone.spec is None else None)
    assert (served.predict(inputs, "some") == kept.predict(features, "some")).all()
    assert kept.infer_task(features).posterior == pytest.approx(raw.infer_task(inputs).posterior)


def test_the_network_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, (inputs, labels) = few_labels(adapt(seeded(Named))), padded()
    features = learner.features(inputs)
    learner.learn_task("first", (features, labels))  # tries heads of three outputs
    monkeypatch.setattr(Backbone, "_outputs", lambda *_: pytest.fail("the network runs again"))
    learner.learn_task("second", (features[:40], labels[:40]))
    learner.update_task("first", (features[:45], labels[:45]))
    assert learner.score((features, labels), "second") > 0.8
    assert learner.infer_task(features[:8]).best in ("first", "second")
    assert learner.predict(features[:4], ["first", "second"] * 2).shape == (4,)


def test_heads_that_tasks_replace_make_no_other_network() -> None:
    (inputs, labels), module = padded(), seeded(Named)
    features = few_labels(adapt(module)).features(inputs)
    nn.init.ones_(module.classifier.weight)
    assert few_labels(adapt(module)).learn_task("task", (features, labels)).tasks_["task"].bytes


def test_values_that_were_saved_are_checked_on_some_rows() -> None:
    learner, (inputs, labels) = few_labels(adapt(seeded(Named))), padded()
    values = learner.features(inputs).values.numpy()
    given = learner.features(inputs, values=values.astype(np.float16))
    assert learner.learn_task("task", (given, labels)).score((inputs, labels), "task") > 0.9
    refused("another network, or in another order", learner.features, inputs, values[::-1].copy())
    refused(r"\(48, 15\) are not the features \(48, 16\)", learner.features, inputs, values[:, 1:])


def test_the_form_of_raw_inputs_is_kept() -> None:
    images, labels = pictures(count=60)
    pixels = (60 * images + 128).clamp(0, 255).byte()
    learner = few_labels(adapt(trained()), preprocessing=Preprocessing(mean=0.5, std=0.25))
    ready = learner.features(Prepared(learner.prepare(pixels)))
    assert torch.equal(ready.values, learner.features(pixels).values)
    plain = few_labels(adapt(trained()))
    plain.learn_task("task", (plain.features(pixels), labels))
    refused("pixels", plain.predict, 100 * images, "task")
