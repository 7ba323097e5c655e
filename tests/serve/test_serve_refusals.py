"""Every request that cannot be answered gets its status and one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

from conftest import npy, problem
from impresslearn.errors import StoreError
from impresslearn.serve import ServeSettings, create_app
from toys import blobs

ROWS = blobs(50)[0][:2].tolist()
JSON, NPY = {"Content-Type": "application/json"}, {"Content-Type": "application/x-npy"}


def asking(inputs=ROWS, task="new 0", **more):
    return {"inputs": inputs, "task": task, **more}


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ("", 422, "request: Invalid JSON: EOF while parsing"),
        ("[" * 100_000, 422, "recursion limit exceeded"),
        ('{"inputs": [' + 250_000 * "[]," + "[]]}", 422, "more than 250,000 lists in a body"),
        ('{"inputs": [[NaN]], "task": "new 0"}', 422, "NaN or infinite"),
        (asking(x=1), 422, "x: Extra inputs are not permitted"),
        (asking(task="\x00\x1b[31m\x7f\x9b\u202e"), 404, "\\x00\\x1b[31m\\x7f\\x9b\\u202e"),
        (asking([[10**400] * 16]), 422, "inputs: must be real numbers"),
        (asking([[1e300] * 16]), 422, "16 NaN or infinite values"),
        (asking([[1e38] * 16]), 422, "are NaN or infinite; check the scale"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_that_cannot_be_predicted(client, body, status, line):
    content = body if isinstance(body, str) else json.dumps(body)
    assert line in problem(client.post("/predict", content=content, headers=JSON), status)


def test_words_of_a_request_are_escaped(client):
    line = "there is no GET /x\\x1b\\x7f\\x9b\\u202e; see"
    assert line in problem(client.get("/x%1b%7f%c2%9b%e2%80%ae"), 404)


def claiming(shape):
    """An .npy file of 2 × 16 numbers whose header declares another shape."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': %s, }" % shape.encode()
    return npy(ROWS)[:10] + header.ljust(117) + b"\n" + npy(ROWS)[128:]


NOT_NPY = "the body is not a readable .npy file"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"", NOT_NPY),
        (claiming("(99999999, 9999)"), NOT_NPY),
        (npy(np.array([print], dtype=object)), NOT_NPY),  # a pickle
        (npy(3.0), "inputs: must be rows (n, ...) of numbers, got shape ()"),
        (npy(np.zeros(2, dtype=[("x", "f4")])), "must be real numbers"),
        (npy(np.full((2, 16), np.nan)), "inputs hold 32 NaN or infinite values"),
    ],
)
@pytest.mark.parametrize("path", ["/predict?task=new%200", "/infer"])
def test_npy_bodies_that_cannot_be_used(client, path, body, line):
    assert line in problem(client.post(path, content=body, headers=NPY), 422)


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "line"),
    [
        ("/predict", b"", {**JSON, "Content-Encoding": "gzip"}, 415, "uncompressed"),
        ("/predict", npy(ROWS), NPY, 422, "task: Field required"),
        ("/infer?among=all&among=x", npy(ROWS), NPY, 404, "named 'all' "),
    ],
)
def test_other_contents_and_options_in_the_wrong_place(
    client, path, content, headers, status, line
):
    assert line in problem(client.post(path, content=content, headers=headers), status)


@pytest.fixture(scope="module")
def guarded(direct):
    """An app for whoever has the token s3cret."""
    headers = {"Authorization": "Bearer s3cret"}
    with TestClient(create_app(direct, ServeSettings(token="s3cret")), headers=headers) as client:
        yield client


@pytest.mark.parametrize("path", ["/tasks", "/task?name=new%200", "/predict", "/infer"])
def test_without_the_token_only_health_and_the_documentation_answer(guarded, path):
    assert "s3cret" not in repr(ServeSettings(token="s3cret"))
    method = "POST" if path in ("/predict", "/infer") else "GET"
    for token in ("", "Bearer", "Bearer wrong", "Basic s3cret", "Bearer é"):
        answer = guarded.request(method, path, headers={"Authorization": token.encode("latin1")})
        assert answer.headers["www-authenticate"] == "Bearer"
        assert problem(answer, 401) == "a valid token is needed: Authorization: Bearer TOKEN"
    assert guarded.request(method, path).status_code in (200, 415)
    assert guarded.get("/health", headers={"Authorization": ""}).status_code == 200


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (StoreError("the store\nis gone"), 503, "the store is gone"),
        (ZeroDivisionError("secret"), 500, "the server failed on this request; its log has the"),
    ],
)
def test_errors_from_below(direct, monkeypatch, error, status, line):
    def fail(self, request):
        raise error

    monkeypatch.setattr("impresslearn.serve.service.Service.predict", fail)
    with TestClient(create_app(direct), raise_server_exceptions=False) as client:
        answer = client.post("/predict", json=asking())
    assert problem(answer, status).startswith(line)


def test_a_store_that_becomes_unreadable(direct, tmp_path):
    path = tmp_path / "tasks.store"
    direct.save(path)
    with TestClient(create_app(path)) as client:
        path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096))
        problem(client.post("/predict", json=asking()), 503)
