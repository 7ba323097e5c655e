"""Answers are those of the learner, to the last bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from serving import NPY, npy

from impresslearn import Recipe, __version__, open_store
from impresslearn.serve import ServeSettings, create_app
from toys import blobs, pictures, quick_learner, resnet

INPUTS = blobs(50)[0][:7]
NAMES = ["basis 0", "basis 1", "basis 2", "new 0", "new 1", "pets/at home?"]


def same(answer, expected):
    return torch.equal(torch.tensor(answer, dtype=torch.float64), expected.double())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["json", "npy"])
def test_predictions_equal_the_learners_bit_for_bit(client, direct, name, form):
    if form == "json":
        asked = {"inputs": INPUTS.tolist(), "task": name, "logits": True}
        answer = client.post("/predict", json=asked)
    else:
        query = {"task": name, "logits": True}
        answer = client.post("/predict", params=query, content=npy(INPUTS), headers=NPY)
    assert answer.status_code == 200
    assert answer.json()["labels"] == direct.predict(INPUTS, name).tolist()
    assert same(answer.json()["logits"], direct.logits(INPUTS, name))


@pytest.mark.parametrize("form", ["json", "npy"])
def test_mixed_batches_equal_the_learners(client, direct, form):
    names = ["new 0", "basis 2", "pets/at home?", "new 0", "new 1", "basis 2", "new 0"]
    if form == "json":
        asked = {"inputs": INPUTS.tolist(), "task": names, "logits": True}
        answer = client.post("/predict", json=asked)
    else:
        query = {"task": names, "logits": True}
        answer = client.post("/predict", params=query, content=npy(INPUTS), headers=NPY)
    assert answer.json()["labels"] == direct.predict(INPUTS, names).tolist()
    for name in set(names):
        rows = [row for row, each in enumerate(names) if each == name]
        logits = [answer.json()["logits"][row] for row in rows]
        assert same(logits, direct.logits(INPUTS[rows], name))


@pytest.mark.parametrize(
    "array",
    [
        INPUTS.numpy().reshape(7, 4, 4),
        np.asfortranarray(INPUTS.numpy()),
        INPUTS.numpy().astype(">f4"),
        INPUTS.numpy().astype("f8"),
        INPUTS.numpy().astype("f2"),
        np.arange(32, dtype=np.uint8).reshape(2, 16),
        np.arange(32, dtype=np.int64).reshape(2, 16),
    ],
    ids=["folded", "fortran", "big-endian", "double", "half", "bytes", "integers"],
)
def test_arrays_of_any_kind_mean_what_they_mean_to_the_learner(client, direct, array):
    query = {"task": "new 0", "logits": True}
    answer = client.post("/predict", params=query, content=npy(array), headers=NPY)
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    assert same(answer.json()["logits"], direct.logits(native, "new 0"))


def test_octet_stream_is_an_npy_body_too(client):
    headers = {"Content-Type": "application/octet-stream; x=y"}
    answer = client.post("/predict?task=new%200", content=npy(INPUTS), headers=headers)
    assert answer.status_code == 200


def test_logits_come_only_when_asked(client):
    asked = {"inputs": INPUTS.tolist(), "task": "new 0"}
    assert client.post("/predict", json=asked).json()["logits"] is None


@pytest.mark.parametrize("form", ["json", "npy"])
@pytest.mark.parametrize("among", ["all", "learned", ["new 0", "new 1", "new 0"]])
@pytest.mark.parametrize("method", ["halving", "one_shot"])
def test_inference_equals_the_learners(client, direct, form, among, method):
    inputs = blobs(51)[0]
    if form == "json":
        asked = {"inputs": inputs.tolist(), "among": among, "method": method, "logits": True}
        answer = client.post("/infer", json=asked).json()
    else:
        query = {"among": among, "method": method, "logits": True}
        answer = client.post("/infer", params=query, content=npy(inputs), headers=NPY).json()
    candidates = among if isinstance(among, str) else among[:2]
    guess = direct.infer_task(inputs, among=candidates, method=method)
    assert (answer["task"], answer["best"], answer["unknown"]) == ("new 1", "new 1", False)
    assert answer["entropy"] == guess.entropy
    assert answer["margin"] == guess.margin
    assert answer["unknown_probability"] == guess.unknown_probability
    posterior = {each["task"]: each["probability"] for each in answer["posterior"]}
    assert posterior == {name: p for name, p in guess.posterior.items() if p}
    assert all(a["probability"] >= b["probability"] for a, b in pairwise(answer["posterior"]))
    assert answer["labels"] == direct.predict(inputs, "new 1").tolist()
    assert same(answer["logits"], direct.logits(inputs, "new 1"))


def test_foreign_inputs_get_no_labels(client, direct):
    inputs = 0.01 * torch.randn(200, 16, generator=torch.Generator().manual_seed(1))
    assert direct.infer_task(inputs).unknown
    answer = client.post("/infer", content=npy(inputs), headers=NPY).json()
    assert (answer["task"], answer["unknown"]) == (None, True)
    assert (answer["labels"], answer["logits"]) == (None, None)
    assert answer["best"] in NAMES


def test_health(client):
    answer = client.get("/health").json()
    assert answer == {
        "status": "ok",
        "version": __version__,
        "network": "lenet_300_100",
        "preprocessing": None,
        "input_shape": [16],
        "tasks": 6,
        "masks": 3,
    }


def test_pages_of_tasks(client, direct):
    found, offset = [], 0
    while offset is not None:
        page = client.get("/tasks", params={"limit": 4, "offset": offset}).json()
        assert (page["total"], page["offset"]) == (6, offset)
        found += page["tasks"]
        offset = page["next"]
    assert [task["name"] for task in found] == NAMES
    for task in found:
        info = direct.tasks_[task["name"]]
        kept = {"role": info.role, "num_masks": info.num_masks, "bytes": info.bytes}
        assert task == {"name": info.name, "num_classes": 3, **kept}
    assert client.get("/tasks", params={"offset": 6}).json()["tasks"] == []


@pytest.mark.parametrize("name", NAMES)
def test_one_task(client, direct, name):
    answer, info = client.get("/task", params={"name": name}).json(), direct.tasks_[name]
    assert answer["classes"] == list(info.classes)
    assert answer["breakdown"] == info.breakdown
    assert answer["history"]["recipe"] == info.history["recipe"]


def test_tasks_learned_meanwhile_are_served_at_once(direct, tmp_path):
    path = tmp_path / "tasks.store"
    direct.save(path)
    with TestClient(create_app(path)) as client:
        asked = {"inputs": INPUTS.tolist(), "task": "late", "logits": True}
        assert client.post("/predict", json=asked).status_code == 404
        with open_store(path, progress=False) as other:
            other.learn_basis("late basis", blobs(70))
            other.learn_task("late", blobs(71))
            expected = other.logits(INPUTS, "late")
        assert same(client.post("/predict", json=asked).json()["logits"], expected)
        assert client.get("/health").json()["masks"] == 4
        assert client.get("/tasks").json()["tasks"][-1]["name"] == "late"


def test_a_learner_in_memory_is_served_too(direct):
    with TestClient(create_app(direct)) as client:
        answer = client.post("/predict", json={"inputs": INPUTS.tolist(), "task": "new 0"})
    assert answer.json()["labels"] == direct.predict(INPUTS, "new 0").tolist()


def test_threads_do_not_disturb_one_another():
    brief = Recipe(lr=0.03, epochs=0, min_steps=3, batch_size=8)
    learner = quick_learner(resnet("per_task"), basis_recipe=brief)
    for number in range(3):
        learner.learn_basis(f"basis {number}", pictures(number))
    inputs = pictures(1)[0][:5]
    expected = [learner.logits(inputs, f"basis {number}") for number in range(3)]
    with TestClient(create_app(learner, ServeSettings(threads=3))) as client:

        def ask(number):
            query = {"task": f"basis {number % 3}", "logits": True}
            answer = client.post("/predict", params=query, content=npy(inputs), headers=NPY)
            return same(answer.json()["logits"], expected[number % 3])

        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(ask, range(24)))
