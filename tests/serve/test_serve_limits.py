"""Who may ask, and how much: tokens, hosts, bytes, rows, tasks and memory."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from serving import NPY, ROWS, npy, problem
from starlette.exceptions import HTTPException
from torch import nn

from impresslearn import adapt
from impresslearn.errors import InputError
from impresslearn.serve import ServeSettings, create_app, service
from impresslearn.serve.limits import RequestLimits
from impresslearn.serve.service import activation_bytes
from toys import FEATURES, ConvNet, lenet, pictures, quick_learner, resnet

ROUTES = {"/predict": "POST", "/infer": "POST"}


@pytest.fixture(scope="module")
def narrow(direct):
    """An app with small limits and a token."""
    limits = {"max_bytes": 2000, "max_rows": 3, "max_inference_tasks": 4, "max_tasks": 1}
    app = create_app(direct, ServeSettings(token="s3cret", hosts=("Here.org", "[::1]"), **limits))
    headers = {"Authorization": "Bearer s3cret", "Host": "here.org:80"}
    with TestClient(app, headers=headers) as client:
        yield client


def test_a_large_body_is_refused_whatever_its_headers_say(narrow):
    body = npy(np.zeros((30, FEATURES)))
    pieces = (body[start : start + 100] for start in range(0, len(body), 100))  # chunked
    for content, more in ((body, {}), (body, {"Content-Length": "10"}), (pieces, {})):
        answer = narrow.post("/predict?task=new%200", content=content, headers=NPY | more)
        assert problem(answer, 413) == "the body is larger than the limit of 2,000 bytes"
    assert "content-length" not in answer.request.headers


TOO_MANY = [
    ("/predict", {"inputs": [[0.0]] * 4, "task": "new 0"}, 413, "4 rows are more than the limit"),
    ("/predict", {"task": ["new 0", "new 1"]}, 413, "2 tasks are more than the limit of 1 a batch"),
    ("/infer", {}, 422, "6 tasks are more than the limit of 4 that"),
]


@pytest.mark.parametrize(("path", "body", "status", "line"), TOO_MANY)
def test_too_many_rows_tasks_and_candidates_are_refused(narrow, path, body, status, line):
    assert problem(narrow.post(path, json={"inputs": ROWS} | body), status).startswith(line)
    assert narrow.post("/infer?among=new%200", content=npy(ROWS), headers=NPY).status_code == 200


LARGE = [
    ("/predict", {"task": ["new 0", "basis 1"], "logits": True}, "6 logits take 600 bytes"),
    # 3 tasks of 3 masks by 24 + 12 + 3 units; one basis task needs no units
    ("/infer", {"among": "learned", "method": "halving"}, "these tasks take 4,212 bytes"),
    (
        "/infer",
        {"among": ["basis 0", "new 0", "new 0"], "method": "one_shot"},
        "these tasks take 2,808 bytes",
    ),
]


@pytest.mark.parametrize(("path", "fields", "line"), LARGE)
def test_memory_is_bounded_before_it_is_taken(direct, path, fields, line):
    limit = 599 if path == "/predict" else 2000
    with TestClient(create_app(direct, ServeSettings(max_memory=limit))) as client:
        answer = client.post(path, json={"inputs": ROWS, **fields})
        less = {"logits": False} if path == "/predict" else {"among": ["basis 0"]}
        assert client.post(path, json={"inputs": ROWS, **fields, **less}).status_code == 200
        if path == "/infer":  # which by default holds a few tasks at a time
            everything = {"inputs": ROWS, **fields, "method": "auto"}
            assert client.post(path, json=everything).status_code == 200
    assert problem(answer, 413).startswith(f"{line}, the limit is {limit:,} a request; ")


def test_tasks_that_are_held_at_once_have_a_limit_of_their_own(direct, monkeypatch):
    monkeypatch.setattr(service, "SUPERPOSED_BYTES", 2000)
    with TestClient(create_app(direct, ServeSettings())) as client:
        for method, status in (("halving", 413), ("one_shot", 413), ("exhaustive", 200)):
            fields = {"inputs": ROWS, "among": "learned", "method": method}
            answer = client.post("/infer", json=fields)
            assert answer.status_code == status
            if status == 413:
                assert "bytes, the limit is 2,000 a request" in problem(answer, 413)


def test_activations_are_bounded_before_they_are_made():
    """A few bytes of pixels are refused for what the network would make of them."""
    learner = quick_learner(adapt(ConvNet(), input_shape=(3, None, None)), sparsity=0.5)
    images, labels = pictures()
    learner.learn_basis("a", (images.sigmoid(), labels))
    with TestClient(create_app(learner, ServeSettings(max_memory=10**6))) as client:
        for path, pixels in (("/predict?task=a", 10_000), ("/infer", 5000)):
            small, large = (npy(np.ones((1, 3, 10, n), np.uint8)) for n in (10, pixels))
            assert client.post(path, content=small, headers=NPY).status_code == 200
            line = problem(client.post(path, content=large, headers=NPY), 413)
            assert line.startswith(f"1 inputs of shape (3, 10, {pixels}) take ")


FIXED = adapt(nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(2 * 80 * 80, 3)))


NETWORKS = [
    (lenet(), (16,)),
    (resnet("per_task"), (3, 16, 16)),
    (resnet("batch"), (3, 128, 96)),  # scaled from a smaller one
    (FIXED, (3, 80, 80)),  # of this size only
]


@pytest.mark.parametrize(("backbone", "shape"), NETWORKS)
def test_estimated_activations_hold_what_autograd_keeps(backbone, shape):
    def kept(rows):
        """The same on real tensors, where each can be counted once."""
        storages = {}

        def note(tensor):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        weights = {name: each.clone().requires_grad_() for name, each in backbone.weights.items()}
        with torch.autograd.graph.saved_tensors_hooks(note, lambda each: each):
            backbone.forward(weights, torch.randn(rows, *shape))
        return sum(each.nbytes() for each in storages.values())

    real = kept(5) - kept(4)
    assert real <= activation_bytes(backbone, shape) <= 2 * real
    assert activation_bytes(backbone, (1, 2)) == 0


def test_answers_count_until_they_are_read_and_all_requests_have_a_limit_together():
    limits = RequestLimits(None, ServeSettings(max_bytes=60_000, threads=2))
    request = {"type": "http", "headers": [(b"content-length", b"60000")]}
    sent = []

    async def receive():
        return {"type": "http.request", "body": bytes(60_000)}

    async def app(scope, receive, send):
        await receive()
        scope["state"]["hold"](600_000)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": 600_000 * b"x"})

    async def send(message):
        assert limits.held == 600_000
        sent.append(message.get("body", b""))
        with pytest.raises(HTTPException) as caught:  # what another request sends has no room
            await limits(dict(request), receive, send)
        assert (caught.value.status_code, caught.value.headers) == (503, {"Retry-After": "1"})
        if message.get("body") == b"":
            raise ConnectionError

    limits.app = app
    with pytest.raises(ConnectionError):
        asyncio.run(limits(dict(request), receive, send))
    assert b"".join(sent) == 600_000 * b"x"
    assert max(map(len, sent)) < 100_000
    assert limits.held == 0


@pytest.mark.parametrize("path", ["/health", "/tasks", "/docs", "/openapi.json", "/predict"])
def test_only_the_hosts_are_served_at_any_port(narrow, path):
    method = ROUTES.get(path, "GET")
    for host in ("evil.org", "here.org.evil.org", "here.org:80:80", "[::2]", "[", ""):
        answer = narrow.request(method, path, headers={"Host": host})
        assert "is not served" in problem(answer, 421)
    for host in ("here.org", "HERE.org:8000", "[::1]", "[::1]:1"):
        assert narrow.request(method, path, headers={"Host": host}).status_code in (200, 415)


@pytest.mark.parametrize(
    "path", ["/tasks", "/task?name=new%200", "/predict", "/infer", "/docs", "/openapi.json"]
)
def test_without_the_token_nothing_is_told(narrow, path):
    method = ROUTES.get(path, "GET")
    for token in ("", "Bearer", "Bearer wrong", "Basic s3cret", "Bearer é"):
        answer = narrow.request(method, path, headers={"Authorization": token.encode("latin1")})
        assert answer.headers["www-authenticate"] == "Bearer"
        assert problem(answer, 401) == "a valid token is needed: Authorization: Bearer TOKEN"
    assert narrow.request(method, path).status_code in (200, 415)
    assert narrow.get("/health", headers={"Authorization": ""}).status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("token", value) for value in ("", "two words", "tökén")),
        *(("body_seconds", value) for value in (0, float("nan"), float("inf"), True)),
        *(("hosts", value) for value in ("localhost", ["here:80"])),
        *(("max_bytes", value) for value in (0, 1.5, True)),
        ("max_byte", 1),
    ],
)
def test_settings_that_cannot_be_kept(name, value):
    with pytest.raises(InputError, match=rf"^{name}[:.]"):
        ServeSettings(**{name: value})
    assert "s3cret" not in repr(ServeSettings(token="s3cret"))
