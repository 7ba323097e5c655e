"""Answers are those of the learner, to the last bit, in both forms of a body."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from serving import npy, problem

import impresslearn as il
from impresslearn import InputError, Recipe, __version__, open_store
from impresslearn.serve import ServeSettings, create_app
from impresslearn.serve.bodies import as_array, parse_npy
from toys import blobs, pictures, quick_learner, resnet

INPUTS = blobs(50)[0][:7]
NAMES = ["basis 0", "basis 1", "basis 2", "new 0", "new 1", "pets/at home?"]
MIXED = ["new 0", "basis 2", "pets/at home?", "new 0", "new 1", "basis 2", "new 0"]
FORMS = ["application/json", "application/x-npy", "application/octet-stream; x=y"]
every_form = pytest.mark.parametrize("form", FORMS)


def ask(client, path, inputs, form=FORMS[1], **options):
    """The answer, with the options where the form of the body has them."""
    if form == FORMS[0]:
        answer = client.post(path, json={"inputs": inputs.tolist(), **options})
    else:
        kind = {"Content-Type": form}
        answer = client.post(path, params=options, content=npy(inputs), headers=kind)
    assert answer.status_code == 200, answer.text
    return answer.json()


def same(answer, expected):
    return torch.equal(torch.tensor(answer, dtype=torch.float64), expected.double())


@pytest.mark.parametrize("task", [*NAMES, MIXED], ids=str)
@every_form
def test_predictions_equal_the_learners_bit_for_bit(client, direct, task, form):
    assert ask(client, "/predict", INPUTS, form, task=task)["logits"] is None
    answer = ask(client, "/predict", INPUTS, form, task=task, logits=True)
    assert answer["labels"] == direct.predict(INPUTS, task).tolist()
    names = [task] * 7 if isinstance(task, str) else task
    for name in set(names):
        rows = [row for row, each in enumerate(names) if each == name]
        assert same([answer["logits"][row] for row in rows], direct.logits(INPUTS[rows], name))


@pytest.mark.parametrize("kind", [">f4", "f8", "f2", "u2", "i8"])
def test_arrays_of_any_kind_mean_what_they_mean_to_the_learner(client, direct, kind):
    array = np.asfortranarray(INPUTS.numpy().reshape(7, 4, 4).astype(kind))
    answer = ask(client, "/predict", array, task="new 0", logits=True)
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    assert same(answer["logits"], direct.logits(native, "new 0"))


def test_pixels_are_refused_where_tasks_were_learned_from_other_numbers(client):
    content = npy(np.zeros((2, 16), np.uint8))
    answer = client.post("/predict?task=a", content=content, headers={"Content-Type": FORMS[1]})
    assert answer.status_code == 422
    assert "inputs are no pixels" in answer.json()["error"]


KINDS = st.one_of(
    numbers.integer_dtypes(endianness="?"),
    numbers.unsigned_integer_dtypes(endianness="?"),
    numbers.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
ARRAYS = KINDS.flatmap(
    lambda kind: numbers.arrays(kind, numbers.array_shapes(min_dims=1, max_dims=4))
)


@settings(deadline=None)
@given(ARRAYS, st.booleans())
def test_bodies_are_the_arrays_that_were_sent(array, fortran):
    found = parse_npy(npy(np.asfortranarray(array) if fortran else array))
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")
    if array.dtype.kind == "f":
        assert np.array_equal(as_array(array.tolist()), array, equal_nan=True)


def test_whole_numbers_stay_whole():
    for kind, row in ((int, [0, -(2**53)]), (float, [2**70, 0]), (float, [0, 255.0])):
        found = as_array([row])
        assert (found.dtype, found.tolist()) == (kind, np.array([row], float).tolist())


@every_form
@pytest.mark.parametrize(
    ("among", "method"),
    [("all", "halving"), ("learned", "one_shot"), (["new 0", "new 1", "new 0"], "halving")],
)
def test_inference_equals_the_learners(client, direct, form, among, method):
    inputs = blobs(51)[0]
    answer = ask(client, "/infer", inputs, form, among=among, method=method, logits=True)
    known = among if isinstance(among, str) else among[:2]
    guess = direct.infer_task(inputs, among=known, method=method)
    assert (answer["task"], answer["best"], answer["unknown"]) == ("new 1", "new 1", False)
    for name in ("entropy", "margin", "unknown_probability"):
        assert answer[name] == getattr(guess, name)
    posterior = {each["task"]: each["probability"] for each in answer["posterior"]}
    assert posterior == {name: p for name, p in guess.posterior.items() if p}
    assert all(a["probability"] >= b["probability"] for a, b in pairwise(answer["posterior"]))
    assert answer["labels"] == direct.predict(inputs, "new 1").tolist()
    assert same(answer["logits"], direct.logits(inputs, "new 1"))
    shorter = ask(client, "/infer", inputs, form, among=among, method=method, top=1)
    assert shorter["posterior"] == answer["posterior"][:1]


def test_foreign_inputs_get_no_labels(client, direct):
    inputs = 0.01 * torch.randn(200, 16, generator=torch.Generator().manual_seed(1))
    assert direct.infer_task(inputs).unknown
    answer = ask(client, "/infer", inputs)
    assert (answer["task"], answer["unknown"]) == (None, True)
    assert (answer["labels"], answer["logits"]) == (None, None)
    assert answer["best"] in NAMES


def test_health_and_tasks_page_by_page_and_one_by_one(client, direct):
    kept = {"network": "lenet_300_100", "input_shape": [16], "preprocessing": None}
    kept |= {"status": "ok", "version": __version__, "tasks": 6, "masks": 3}
    assert client.get("/health").json() == kept
    found, offset = [], 0
    while offset is not None:
        page = client.get("/tasks", params={"limit": 4, "offset": offset}).json()
        assert (page["total"], page["offset"]) == (6, offset)
        found += page["tasks"]
        offset = page["next"]
    assert [task["name"] for task in found] == NAMES
    for task in found:
        info = direct.tasks_[task["name"]]
        known = vars(info) | {"num_classes": 3, "classes": list(info.classes)}
        assert task == {name: known[name] for name in task}
        details = client.get("/task", params={"name": info.name}).json()
        assert details == json.loads(json.dumps(known, default=dict))


def test_tasks_learned_meanwhile_are_served_at_once(direct, tmp_path):
    path = tmp_path / "tasks.store"
    direct.save(path)
    with TestClient(create_app(path)) as client:
        asked = {"inputs": INPUTS.tolist(), "task": "late"}
        assert client.post("/predict", json=asked).status_code == 404
        with open_store(path, progress=False) as other:
            other.learn_basis("late basis", blobs(70))
            other.learn_task("late", blobs(71))
            expected = other.logits(INPUTS, "late")
        answer = ask(client, "/predict", INPUTS, task="late", logits=True)
        assert same(answer["logits"], expected)
        assert client.get("/health").json()["masks"] == 4
        assert client.get("/tasks").json()["tasks"][-1]["name"] == "late"


def test_versions_are_restored_and_tasks_removed_where_changes_are_allowed(direct, tmp_path):
    path = tmp_path / "tasks.store"
    direct.save(path)
    with open_store(path, progress=False) as other:
        other.learn_task("late", blobs(71))
        first = other.logits(INPUTS, "late")
        other.update_task("late", blobs(72))
    with TestClient(create_app(path)) as client:
        found = client.get("/versions", params={"name": "late"}).json()["versions"]
        assert [each["version"] for each in found] == [1, 2]
        assert found[-1] == client.get("/task", params={"name": "late"}).json()
        asked = {"name": "late", "version": 1}
        assert client.post("/restore", params=asked).status_code == 404
        assert client.post("/remove", params={"name": "late"}).status_code == 404
    with pytest.raises(InputError, match="needs a token"):
        ServeSettings(allow_changes=True)
    changing = create_app(path, ServeSettings(allow_changes=True, token="t"))
    with TestClient(changing) as client:
        assert client.post("/restore", params=asked).status_code == 401
        client.headers["Authorization"] = "Bearer t"
        assert client.post("/restore", params=asked).json()["version"] == 3
        assert same(ask(client, "/predict", INPUTS, task="late", logits=True)["logits"], first)
        assert problem(client.post("/restore", params=asked | {"version": 4}), 422)
        assert problem(client.post("/restore", params=asked | {"name": "no"}), 404)
        assert client.post("/remove", params={"name": "late"}).json() == {"removed": "late"}
        assert problem(client.post("/remove", params={"name": "late"}), 404)
    assert "late" not in il.load(path).tasks_


def test_a_learner_in_memory_is_served_and_threads_do_not_disturb_one_another():
    brief = Recipe(lr=0.03, epochs=0, min_steps=3, batch_size=8)
    learner = quick_learner(resnet("per_task"), basis_recipe=brief)
    for number in range(3):
        learner.learn_basis(f"basis {number}", pictures(number))
    inputs = pictures(1)[0][:5]
    expected = [learner.logits(inputs, f"basis {number}") for number in range(3)]
    with TestClient(create_app(learner, ServeSettings(threads=3))) as client:

        def right(number):
            answer = ask(client, "/predict", inputs, task=f"basis {number % 3}", logits=True)
            return same(answer["logits"], expected[number % 3])

        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(right, range(24)))
