"""Answers are those of the learner, to the last bit, in both forms of a body."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from fastapi.testclient import TestClient

from conftest import INPUTS, problem, request
from impresslearn import Recipe, __version__, open_store
from impresslearn.serve import create_app
from toys import blobs, npy, pictures, quick_learner, resnet

NAMES = ["basis 0", "basis 1", "basis 2", "new 0", "new 1", "pets/at home?"]
MIXED = ["new 0", "basis 2", "pets/at home?", "new 0", "new 1", "basis 2", "new 0"]
JSON, NPY = "application/json", "application/x-npy; x=y"
both_forms = pytest.mark.parametrize("form", [JSON, NPY])


def ask(client, path, inputs, form=NPY, **options):
    """The answer, with the options where the form of the body has them."""
    if form == JSON:
        answer = client.post(path, json={"inputs": inputs.tolist(), **options})
    else:
        kind = {"Content-Type": form}
        answer = client.post(path, params=options, content=npy(inputs), headers=kind)
    assert answer.status_code == 200, answer.text
    return answer.json()


def equal(answer, expected):
    return torch.equal(torch.tensor(answer, dtype=torch.float64), expected.double())


@pytest.mark.parametrize("task", [*NAMES, MIXED], ids=str)
@both_forms
def test_predictions_equal_the_learners_bit_for_bit(client, direct, task, form):
    assert ask(client, "/predict", INPUTS, form, task=task)["logits"] is None
    answer = ask(client, "/predict", INPUTS, form, task=task, logits=True)
    assert answer["labels"] == direct.predict(INPUTS, task).tolist()
    names = [task] * 7 if isinstance(task, str) else task
    assert answer["versions"] == dict.fromkeys(names, 1)
    for name in set(names):
        rows = [row for row, row_name in enumerate(names) if row_name == name]
        assert equal([answer["logits"][row] for row in rows], direct.logits(INPUTS[rows], name))


@both_forms
@pytest.mark.parametrize("among", ["all", ["new 0", "new 1"], "learned"], ids=str)
def test_inference_equals_the_learners(client, direct, form, among):
    inputs = blobs(51)[0]
    answer = ask(client, "/infer", inputs, form, logits=True, among=among)
    guess = direct.infer_task(inputs, among=among)
    assert (answer["task"], answer["best"], answer["unknown"]) == ("new 1", "new 1", False)
    for name in ("entropy", "margin", "unknown_probability", "posterior"):
        assert answer[name] == getattr(guess, name)
    assert next(iter(answer["posterior"])) == "new 1"
    assert answer["labels"] == direct.predict(inputs, "new 1").tolist()
    assert equal(answer["logits"], direct.logits(inputs, "new 1"))
    shortest = ask(client, "/infer", inputs, form, top=1, among=among)
    assert list(shortest["posterior"]) == ["new 1"]
    strangers = torch.randn(200, 16, generator=torch.Generator().manual_seed(1)) / 100
    foreign = ask(client, "/infer", strangers, form, among=among)
    assert (foreign["task"], foreign["unknown"], foreign["labels"]) == (None, True, None)


def test_health_and_tasks_page_by_page_and_one_by_one(client, direct):
    health = client.get("/ready").json()
    assert client.get("/health").json().items() <= health.items()
    network = {"network": "lenet_300_100", "input_shape": [16], "tasks": 6, "masks": 3}
    assert {"status": "ok", "version": __version__, **network}.items() <= health.items()
    tasks, offset = [], 0
    while offset is not None:
        page = client.get("/tasks", params={"limit": 4, "offset": offset}).json()
        assert (page["total"], page["offset"]) == (6, offset)
        tasks += page["tasks"]
        offset = page["next"]
    assert [task["name"] for task in tasks] == NAMES
    for task in tasks:
        info = direct.tasks_[task["name"]]
        assert (task["bytes"], task["num_classes"]) == (info.bytes, 3)
        details = client.get("/task", params={"name": info.name}).json()
        assert details == json.loads(json.dumps(vars(info), default=dict))


def test_tasks_learned_and_removed_meanwhile_are_served_as_they_are(direct, tmp_path):
    path = tmp_path / "tasks.store"
    direct.save(path)
    with TestClient(create_app(path)) as client:
        problem(client.post("/predict", json=request("late")), 404)
        with open_store(path, progress=False) as other:
            other.learn_basis("late basis", blobs(70))
            other.learn_task("late", blobs(71))
            answer = ask(client, "/predict", INPUTS, task="late", logits=True)
            assert equal(answer["logits"], other.logits(INPUTS, "late"))
            assert client.get("/ready").json()["masks"] == 4
            assert client.get("/tasks").json()["tasks"][-1]["name"] == "late"
            other.remove_task("late")
        problem(client.post("/predict", json=request("late")), 404)


def test_a_learner_in_memory_is_served_and_threads_do_not_disturb_one_another():
    brief = Recipe(lr=0.03, epochs=0, min_steps=3, batch_size=8)
    learner = quick_learner(resnet("per_task"), basis_recipe=brief)
    for number in range(3):
        learner.learn_basis(f"basis {number}", pictures(number))
    inputs = pictures(1)[0][:5]
    expected = [learner.logits(inputs, f"basis {number}") for number in range(3)]
    with TestClient(create_app(learner)) as client:

        def right(number):
            answer = ask(client, "/predict", inputs, task=f"basis {number % 3}", logits=True)
            return equal(answer["logits"], expected[number % 3])

        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(right, range(24)))


@pytest.mark.parametrize("path", ["/health", "/ready", "/tasks", "/task", "/docs", "/openapi.json"])
def test_head_is_answered_where_get_is(client, path):
    query = {"name": "new 0"} if path == "/task" else {}
    head, get = client.head(path, params=query), client.get(path, params=query)
    assert head.headers.pop("x-request-id") != get.headers.pop("x-request-id")
    assert (head.status_code, head.headers) == (200, get.headers)
