"""A server in operation: replaced stores, metrics, and inferences that do not hold up others."""

import asyncio
import json
import os
import re
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

import impresslearn as il
from conftest import INPUTS, problem, request
from impresslearn.errors import StoppedError
from impresslearn.networks import registry
from impresslearn.serve import create_app, pools, server
from impresslearn.serve.pools import Batches, BoundedPool
from impresslearn.serve.requests import PredictRequest
from impresslearn.serve.server import Service
from models import MODELS, padded
from toys import QUICK, ConvNet, blobs, mlp, pictures, quick_learner, run


@pytest.mark.parametrize("put", [os.replace, shutil.copy])
def test_a_store_that_was_replaced_is_served_at_once(tmp_path, put):
    """By a rename, or by a copy over it; each new file has a task "a" of version 2, and a task."""
    path, backup, new = (tmp_path / name for name in ("s.impress", "backup", "new"))
    quick_learner().add_random_masks(2).learn_task("a", blobs(0)).save(backup)
    shutil.copy(backup, path)
    with TestClient(create_app(path), raise_server_exceptions=False) as client:
        assert client.post("/predict", json=request("b0")).status_code == 404
        for number in range(2):
            learner = il.open_store(shutil.copy(backup, new), task_recipe=QUICK, progress=False)
            learner.update_task("a", blobs(number + 1)).learn_task(f"b{number}", blobs(1)).close()
            learner = il.load(new)
            put(new, path)
            asked = [request("a", logits=True), request(f"b{number}", logits=True)] * 4
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(lambda body: client.post("/predict", json=body), asked))
            assert {answer.status_code for answer in answers} == {200}
            for body, answer in zip(asked, answers, strict=True):
                expected = learner.logits(INPUTS, body["task"])
                torch.testing.assert_close(torch.tensor(answer.json()["logits"]), expected)
            assert client.get("/ready").json()["tasks"] == 2
        path.unlink()
        assert client.get("/health").status_code == 200  # the process lives
        assert "moved or deleted" in problem(client.get("/ready"), 503)


def test_metrics_count_requests_and_the_cache(store):
    with TestClient(create_app(store), raise_server_exceptions=False) as client:
        for task in ("new 0", "new 0", "nope"):
            client.post("/predict", json=request(task))
        client.get("/no/such/route")
        lines = client.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    numbers = {name: float(value) for name, value in pairs}
    count = 'impresslearn_requests_total{path="/predict",status="%d"}'
    assert (numbers[count % 200], numbers[count % 404]) == (2, 1)
    assert numbers['impresslearn_requests_total{path="other",status="404"}'] == 1
    assert numbers['impresslearn_request_seconds_bucket{path="/predict",le="+Inf"}'] == 3
    assert 0 < numbers['impresslearn_request_seconds_sum{path="/predict"}'] < 30
    stored = [numbers[f"impresslearn_{each}"] for each in ("tasks", "masks", "store_version")]
    assert stored == [6, 3, 6]
    assert min(numbers[f"impresslearn_cache_{each}"] for each in ("hits_total", "bytes")) > 0


class Client:
    """A request whose client may go away."""

    gone = False

    async def is_disconnected(self) -> bool:
        return self.gone


@pytest.fixture
def pool(monkeypatch):
    """One thread, and room for one who waits."""
    monkeypatch.setattr(pools, "LOOK_SECONDS", 0.01)
    made = BoundedPool("test", threads=1, waiting=1)
    yield made
    made.shutdown()


def test_work_is_bounded_and_not_begun_for_clients_that_have_gone(pool):
    begun, free, stays, leaves = [], threading.Event(), Client(), Client()

    async def both() -> None:
        runs = asyncio.create_task(pool.run(stays, lambda: begun.append("runs") or free.wait(30)))
        await asyncio.sleep(0.05)
        waits = asyncio.create_task(pool.run(leaves, lambda: begun.append("waits")))
        await asyncio.sleep(0.05)
        with pytest.raises(HTTPException, match="ask again later") as full:
            await pool.run(stays, lambda: None)
        assert (full.value.status_code, full.value.headers) == (503, {"Retry-After": "1"})
        leaves.gone = True
        with pytest.raises(ClientDisconnect):
            await waits
        free.set()
        assert await runs
        assert await pool.run(stays, lambda: "next") == "next"

    asyncio.run(both())
    assert begun == ["runs"]
    yielding = BoundedPool("test", 1, 1, idle=threading.Event())
    lower = min(19, os.nice(0) + 10) if sys.platform == "linux" else os.nice(0)
    assert asyncio.run(yielding.run(stays, lambda: os.nice(0))) == lower


@pytest.mark.parametrize("quick", [True, False])
def test_what_waits_is_computed_together_and_what_fails_fails_alone(quick):
    pool, free, idle = BoundedPool("test", 1, waiting=8), threading.Event(), threading.Event()
    calls: list = []
    batches = Batches(
        pool,
        lambda item: calls.append(item) or 1 / item,
        lambda items: calls.append(items) or [1 / item for item in items],
        idle,
    )
    batches._seconds = 0.0 if quick else 1.0

    async def ask(*items) -> list:
        free.clear()
        first = asyncio.create_task(pool.run(Client(), lambda: free.wait(30)))
        runs = [asyncio.create_task(batches.run(Client(), True, item)) for item in items]
        await asyncio.sleep(0 if quick else 0.05)  # all have begun
        runs.pop(1).cancel()
        await asyncio.sleep(0.05)
        assert len(batches._waiting) == (0 if quick else len(runs))  # others do not wait behind it
        free.set()
        assert await first
        return await asyncio.gather(*runs, return_exceptions=True)

    assert asyncio.run(ask(2, 4, 8)) == [1 / 2, 1 / 8]
    half, error, eighth = asyncio.run(ask(2, 4, 0, 8))
    assert (half, type(error), eighth) == (1 / 2, ZeroDivisionError, 1 / 8)
    assert calls == [[2, 8], [2, 0, 8], 2, 0, 8]
    assert idle.is_set() == quick
    pool.shutdown()


def test_who_leaves_while_others_are_computed_disturbs_none():
    pool, free, hold = BoundedPool("test", 2, waiting=8), threading.Event(), threading.Event()

    async def ask():
        busy = [asyncio.create_task(pool.run(Client(), lambda: free.wait(30))) for _ in range(2)]
        batches = Batches(pool, abs, lambda items: hold.wait(30) and items, threading.Event())
        runs = [asyncio.create_task(batches.run(Client(), True, item)) for item in "ab"]
        await asyncio.sleep(0.05)
        free.set()
        await asyncio.gather(*busy)
        await asyncio.sleep(0.1)
        runs[1].cancel()  # it waits for what the other's thread computes
        await asyncio.sleep(0.05)
        hold.set()
        return await asyncio.wait_for(runs[0], 10)

    assert asyncio.run(ask()) == "a"
    pool.shutdown()


@pytest.mark.parametrize("quick", [True, False])
def test_the_event_loop_computes_small_requests_to_quick_networks(store, monkeypatch, quick):
    in_thread, predict = [], Service.predict

    def noted(own, asked):
        in_thread.append(threading.current_thread().name.startswith("predict"))
        return predict(own, asked)

    monkeypatch.setattr(pools, "QUICK_SECONDS", 0.1 if quick else 0.0)
    monkeypatch.setattr(Service, "predict", noted)
    with TestClient(create_app(store)) as client:
        for heavy in ({"task": ["new 0"] * 7}, {"unknown": True}):
            for more in (*[{}] * 60, heavy):
                assert client.post("/predict", json=request("new 0") | more).status_code == 200
            assert [in_thread[place] for place in (0, -2, -1)] == [True, not quick, True]


def test_batch_statistics_are_of_one_request():
    learner = quick_learner(il.adapt(ConvNet(), norm="batch")).learn_task("a", pictures())
    asked = [PredictRequest(task="a", inputs=pictures()[0][row : row + 2]) for row in (0, 2)]
    assert {Service(learner).kind(each) for each in asked} == {None}


def test_each_request_decides_if_its_integers_are_pixels():
    inputs, labels = blobs()
    levels = (255 * (inputs > 0)).to(torch.uint8)
    service = Service(quick_learner().add_random_masks(2).learn_task("a", (levels, labels)))
    asked = [PredictRequest(task="a", inputs=rows) for rows in ([[0, 1] * 8], [[0, 255] * 8])]
    assert len(set(map(service.kind, asked))) == 2


def test_each_answer_is_of_one_store_and_the_module_is_kept(tmp_path, monkeypatch):
    il.register_backbone("passing")(lambda num_classes: mlp(classes=num_classes))
    learner = quick_learner(il.create_backbone("passing", 3)).add_random_masks(2)
    path, new = tmp_path / "s.impress", tmp_path / "new.impress"
    learner.learn_task("a", blobs(0)).save(path).update_task("a", blobs(1)).save(new)
    monkeypatch.delitem(registry._builders, "passing")
    service = Service(il.open_store(path, module=mlp(), readonly=True))
    prepared, asked = Service._prepared, PredictRequest(task="a", inputs=INPUTS.numpy())

    def replaced_meanwhile(own, given):
        service.learner = learner
        return prepared(own, given)

    with monkeypatch.context() as patch:
        patch.setattr(Service, "_prepared", replaced_meanwhile)
        opened = service.learner
        assert service.predict(asked).versions == {"a": 1}
    service.learner = opened
    os.replace(new, path)
    assert service.predict(asked).versions == {"a": 2}


def test_requests_answered_together_get_the_answers_of_each(direct):
    service = Service(direct)
    rows = torch.randn(6, 16).numpy()
    few = ("new 0", rows[:1]), (["new 1", "basis 0"], rows[1:3]), ("new 1", rows[3:])
    requests = [PredictRequest(task=task, inputs=inputs, unknown=True) for task, inputs in few]
    assert service.predict_together(requests) == [service.predict(request) for request in requests]


def test_a_failing_or_other_request_leaves_the_rest_their_pass(store, monkeypatch):
    free, parsed, shared = threading.Event(), [], []
    parse, predict, together = server.parse, Service.predict, Service.predict_together

    def parsing(model, asked, body):
        return parsed.append(body) or parse(model, asked, body)

    monkeypatch.setattr(server, "THREADS", 1)
    monkeypatch.setattr(server, "parse", parsing)
    monkeypatch.setattr(Service, "predict", lambda own, of: free.wait(30) and predict(own, of))
    monkeypatch.setattr(
        Service, "predict_together", lambda own, of: shared.append(len(of)) or together(own, of)
    )
    asked = [request("new 0"), request("new 1"), request("new 0", logits=True), request("nobody")]
    asked.append({"task": "new 0", "inputs": [[1e999] * 16]})
    with TestClient(create_app(store), raise_server_exceptions=False) as client:
        with ThreadPoolExecutor(6) as pool:
            first = pool.submit(client.post, "/predict", json=request("basis 0"))
            time.sleep(0.2)  # it occupies the thread, and the others wait
            bodies = [json.dumps(each).replace("Infinity", "1e999") for each in asked]
            head = {"Content-Type": "application/json"}
            others = [pool.submit(client.post, "/predict", content=b, headers=head) for b in bodies]
            time.sleep(0.2)
            free.set()
        statuses = [each.result().status_code for each in (first, *others)]
    assert statuses == [200, 200, 200, 200, 404, 422]
    assert (sorted(shared), len(parsed), len(set(parsed))) == ([1, 1, 2], 6, 6)


@pytest.mark.parametrize("leaves", [True, False])
def test_an_inference_ends_when_nobody_waits_for_it(leaves, pool, direct):
    """Its client has gone, or the server is shut down."""
    slow, ended, client = threading.Event(), threading.Event(), Client()

    def infer() -> None:
        try:
            while True:
                slow.set()
                direct.infer_task(INPUTS)
        except StoppedError:
            ended.set()

    async def ask() -> None:
        runs = asyncio.create_task(pool.run(client, infer))
        await asyncio.to_thread(slow.wait, 30)
        if leaves:
            client.gone = True
            with pytest.raises(ClientDisconnect):
                await runs
        else:
            pool.shutdown()
            await runs
        assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(ask())


def test_rows_that_no_task_knows_are_flagged(client, direct):
    odd = (torch.randn(7, 16) * 9).tolist()
    names = ["new 1", "new 0"] * 3 + ["new 1"]
    asked = {"inputs": odd, "task": names, "unknown": True}
    pairs = zip(torch.tensor(odd), names, strict=True)
    expected = [direct.infer_task(row[None], among=[name]).unknown for row, name in pairs]
    assert any(expected)
    assert client.post("/predict", json=asked).json()["unknown"] == expected
    answer = client.post("/predict", json=request("new 0")).json()
    assert answer["unknown"] is None
    confidences = direct.logits(INPUTS, "new 0").softmax(dim=1).max(dim=1).values
    assert answer["confidences"] == pytest.approx(confidences.tolist(), abs=1e-4)


def test_every_answer_has_an_id(store, caplog):
    with TestClient(create_app(store)) as client, caplog.at_level("INFO", "uvicorn.error"):
        sent = client.get("/health", headers={"X-Request-ID": "night-7"})
        drawn = client.get("/task", params={"name": "no\x1b"}, headers={"X-Request-ID": "a b"})
        client.post("/predict", json=request(["new 0"] * 6 + ["no\x1b"]))
    assert sent.headers["x-request-id"] == "night-7"
    assert re.fullmatch("[0-9a-f]{16}", drawn.headers["x-request-id"])
    first, second, third = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(r"GET /health 200 [0-9.]+ ms id=night-7 task=-", first)
    assert second.startswith("GET /task 404 ")
    assert re.fullmatch(r"POST /predict 404 [0-9.]+ ms id=.* task=\['new 0'.*", third)


def test_inferences_hold_up_no_predictions(store, monkeypatch):
    free, infer = threading.Event(), Service.infer
    monkeypatch.setattr(Service, "infer", lambda *of: (free.wait(30), infer(*of))[1])
    inputs = {"inputs": INPUTS.tolist()}
    with TestClient(create_app(store), raise_server_exceptions=False) as client:
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(client.post, "/infer", json=inputs) for _ in range(4)]
            assert client.post("/predict", json=request("new 0")).status_code == 200
            assert client.post("/predict", json=request("unknown")).status_code == 404
            assert not any(answer.done() for answer in waiting)
            free.set()
        assert {answer.result().status_code for answer in waiting} == {200}


def test_inputs_of_several_tensors_are_served_and_read_from_files(tmp_path):
    make, data = next(pair for pair in MODELS.values() if pair[1] is padded)
    inputs, labels = data()
    learner = il.ImpressLearner.from_preset(il.adapt(make()), "few_labels", progress=False)
    learner.learn_task("a", (inputs, labels))
    few = {key: value[:5] for key, value in inputs.items()}
    body = {"inputs": {key: value.tolist() for key, value in few.items()}, "task": "a"}
    with TestClient(create_app(learner), raise_server_exceptions=False) as client:
        answer = client.post("/predict", json={**body, "logits": True})
        assert answer.status_code == 200, answer.text
        assert answer.json()["labels"] == learner.predict(few, "a").tolist()
        np.testing.assert_allclose(answer.json()["logits"], learner.logits(few, "a"), rtol=1e-5)
    learner.save(tmp_path / "s.impress")
    np.savez(tmp_path / "few.npz", **few)
    (tmp_path / "net.py").write_text("from models import MODELS\nmake = MODELS['named'][0]\n")
    asked = tmp_path / "s.impress", tmp_path / "few.npz", "--module", f"{tmp_path / 'net'}:make"
    lines = run("predict", *asked, "--task", "a").splitlines()
    assert [int(line.split("\t")[1]) for line in lines] == answer.json()["labels"]
