"""The same raw inputs get the same labels by every way into a store and out of it."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import impresslearn as il
from impresslearn.errors import InputError
from impresslearn.export import export_task
from toys import run

QUICK = ("--network", "widths=[32,24]", "--set", 'recipe={"epochs":0,"min_steps":40}')
TASKS = ["basis", "task 1", "task 2"]


@pytest.fixture(scope="module", params=["float32", "uint8"])
def learned(request, tmp_path_factory):
    """A store of three tasks, and raw 8x8 digits of each, permuted.

    Floats are from 0 to 16, pixels up to 255.
    """
    folder = tmp_path_factory.mktemp(request.param)
    images, labels = load_digits(return_X_y=True)
    raw = images.astype(np.float32) if request.param == "float32" else (images * 15.9).astype("B")
    files, inputs = [], {}
    for number, name in enumerate(TASKS):
        rows = raw[:, np.random.default_rng(number).permutation(64)].reshape(-1, 8, 8)
        files.append(folder / f"{name}.npz")
        np.savez(files[-1], X=rows[:300], y=labels[:300])
        inputs[name] = rows[300:340]
    store = folder / "s.impress"
    run("new", store, *files, "--standardise", "--masks", 4, *QUICK)
    run("learn", store, files[0], "--basis")
    run("learn", store, *files[1:])
    return store, inputs


@pytest.mark.nightly
def test_every_way_gives_the_same_labels(learned, tmp_path):
    testing = pytest.importorskip("fastapi.testclient")
    runtime = pytest.importorskip("onnxruntime")
    from impresslearn.serve import create_app

    store, inputs = learned
    learner = il.load(store)
    assert learner.preprocessing.normalises
    assert learner.preprocessing.pixels is (inputs[TASKS[0]].dtype == np.uint8)
    with testing.TestClient(create_app(store)) as client:
        for task, raw in inputs.items():
            expected = learner.predict(raw, task).tolist()
            body = {"inputs": raw.tolist(), "task": task}
            assert client.post("/predict", json=body).json()["labels"] == expected
            ready = {"inputs": learner.prepare(raw).tolist(), "task": task, "prepared": True}
            assert client.post("/predict", json=ready).json()["labels"] == expected
            exported = learner.export(task)(torch.from_numpy(raw))
            assert torch.equal(exported, learner.logits(raw, task))
            np.save(tmp_path / "raw.npy", raw)
            told = run("predict", store, tmp_path / "raw.npy", "--task", task, "--json")
            assert [row["label"] for row in json.loads(told)["rows"]] == expected
            path = export_task(learner.task_model(task), tmp_path / "m.onnx", raw)
            session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
            assert session.run(None, {"input": raw})[0].argmax(1).tolist() == expected


def test_prepared_inputs_say_so_and_the_users_array_stays_as_it_was(learned):
    store, inputs = learned
    learner, raw = il.load(store), inputs["task 1"]
    before = raw.copy()
    ready = il.Prepared(learner.prepare(raw))
    labels = learner.predict(raw, "task 1")
    assert learner.predict(ready, "task 1").tolist() == labels.tolist()
    assert learner.score(il.Prepared((ready.data, labels)), "task 1") == 1
    assert torch.equal(learner.logits(ready, "task 1"), learner.logits(raw, "task 1"))
    assert np.array_equal(raw, before)
    with pytest.raises(InputError, match="learned with the preprocessing Preprocessing"):
        il.load(store, preprocessing=il.Preprocessing(mean=3))
