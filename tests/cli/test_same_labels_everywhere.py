"""The same raw inputs get the same labels by every way into a store and out of it."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import impresslearn as il
from impresslearn.cli.app import app
from impresslearn.errors import InputError
from impresslearn.export import export_task

QUICK = ("--network", "widths=[32,24]", "--set", 'basis_recipe={"epochs":0,"min_steps":40}')
QUICK += ("--set", 'task_recipe={"epochs":0}')
TASKS = [f"task {number}" for number in range(12)]


def digits(kind):
    """Raw 8x8 digits: floats from 0 to 16, or uint8 pixels up to 255; permuted, a way a task."""
    images, labels = load_digits(return_X_y=True)
    raw = images.astype(np.float32) if kind == "float32" else (images * 15.9).astype(np.uint8)
    orders = [np.random.default_rng(number).permutation(64) for number in range(len(TASKS))]
    return [raw[:, order].reshape(-1, 8, 8) for order in orders], labels


def run(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module", params=["float32", "uint8"])
def learned(request, tmp_path_factory):
    """A store of twelve tasks from raw arrays, the first two with masks; raw inputs by task."""
    folder = tmp_path_factory.mktemp(request.param)
    inputs, labels = digits(request.param)
    store = folder / "s.impress"
    for number, (name, raw) in enumerate(zip(TASKS, inputs, strict=True)):
        part = folder / ("basis" if number < 2 else "tasks")
        part.mkdir(exist_ok=True)
        np.savez(part / f"{name}.npz", X=raw[:300], y=labels[:300])
    basis, tasks = (sorted((folder / part).iterdir()) for part in ("basis", "tasks"))
    run("new", store, *basis, *tasks, "--standardise", *QUICK)
    run("learn", store, *basis, "--basis")
    run("learn", store, *tasks)
    return store, {name: raw[300:340] for name, raw in zip(TASKS, inputs, strict=True)}


def by_command(store, raw, task, folder):
    np.save(folder / "raw.npy", raw)
    told = json.loads(run("predict", store, folder / "raw.npy", "--task", task, "--json"))
    return [row["label"] for row in told["rows"]]


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
            module = learner.export(task)
            logits = module(torch.from_numpy(raw))
            assert torch.equal(logits, learner.logits(raw, task))
            assert by_command(store, raw, task, tmp_path) == expected
        for task in (TASKS[0], TASKS[-1]):
            raw, expected = inputs[task], learner.predict(inputs[task], task).tolist()
            model = learner.task_model(task)
            path = export_task(model, tmp_path / "m.onnx", raw)
            session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
            assert session.run(None, {"input": raw})[0].argmax(1).tolist() == expected
            program = torch.export.load(export_task(model, tmp_path / "m.pt2", raw)).module()
            assert program(torch.from_numpy(raw)).argmax(1).tolist() == expected
        mixed = np.concatenate([raw[:2] for raw in inputs.values()])
        names = [name for name in TASKS for _ in range(2)]
        alone = [learner.predict(raw[:2], name) for name, raw in inputs.items()]
        expected = np.concatenate(alone).tolist()
        assert learner.predict(mixed, names).tolist() == expected
        body = {"inputs": mixed.tolist(), "task": names}
        assert client.post("/predict", json=body).json()["labels"] == expected
        guess = learner.infer_task(raw)
        told = client.post("/infer", json={"inputs": raw.tolist()}).json()
        assert (told["best"], told["task"]) == (guess.best, guess.task)


def test_prepared_inputs_say_so_and_the_users_array_stays_as_it_was(learned):
    store, inputs = learned
    learner, raw = il.load(store), inputs["task 3"]
    before = raw.copy()
    ready = il.Prepared(learner.prepare(raw))
    labels = learner.predict(raw, "task 3")
    assert learner.predict(ready, "task 3").tolist() == labels.tolist()
    assert learner.score(il.Prepared((ready.data, labels)), "task 3") == 1
    assert learner.score((raw, labels), "task 3") == 1
    module = learner.export("task 3", prepared=True)
    assert torch.equal(module(ready.data), learner.logits(raw, "task 3"))
    assert np.array_equal(raw, before)


def test_another_preprocessing_is_refused(learned):
    store, _ = learned
    with pytest.raises(InputError, match="learned with the preprocessing Preprocessing"):
        il.load(store, preprocessing=il.Preprocessing(mean=3))
    kept = il.load(store).preprocessing
    assert il.load(store, preprocessing=kept).preprocessing == kept
