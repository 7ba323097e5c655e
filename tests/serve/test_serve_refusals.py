"""Every request that cannot be answered gets its status and one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

from conftest import npy, problem
from impresslearn.errors import InputError, StoreError
from impresslearn.serve import ServeSettings, create_app
from toys import FEATURES, blobs

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
        ({"inputs": ROWS}, 422, "task: Field required"),
        (asking(x=1), 422, "x: Extra inputs are not permitted"),
        (asking(task=["new 0"]), 422, "2 inputs came with 1 task names"),
        (asking(task=["new 0", "new0"]), 404, "no task named 'new0' among 6; close: 'new 0'"),
        (asking(task="\x00\x1b[31m\x7f\x9b\u202e"), 404, "\\x00\\x1b[31m\\x7f\\x9b\\u202e"),
        (asking([[10**400] * 16]), 422, "inputs: must be real numbers"),
        (asking([[1.0], [1, 2]]), 422, "inputs: must be lists of numbers, all rows of one length"),
        (asking([[1e300] * 16]), 422, "16 NaN or infinite values"),
        (asking([[1e38] * 16]), 422, "are NaN or infinite; check the scale"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_that_cannot_be_predicted(client, body, status, line):
    content = body if isinstance(body, (str, bytes)) else json.dumps(body)
    assert line in problem(client.post("/predict", content=content, headers=JSON), status)


@pytest.mark.parametrize(
    ("changes", "status", "line"),
    [
        ({"among": ["x"]}, 404, "no task named 'x'"),
        ({"method": "alpha"}, 422, "method: Extra inputs are not permitted"),
        ({"inputs": [[1e38] * 16]}, 422, "finite"),
    ],
)
def test_json_whose_task_cannot_be_inferred(client, changes, status, line):
    assert line in problem(client.post("/infer", json={"inputs": ROWS} | changes), status)


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
    ("method", "path", "status", "line"),
    [
        ("GET", "/x%1b%7f%c2%9b%e2%80%ae", 404, "there is no GET /x\\x1b\\x7f\\x9b\\u202e; see"),
        ("DELETE", "/tasks", 405, "there is no DELETE /tasks"),
        ("GET", "/tasks?limit=1001", 422, "limit: Input should be less than or equal to 1000"),
        ("GET", "/task?name=new", 404, "no task named 'new' among 6; close: 'new 0', 'new 1'"),
    ],
)
def test_paths_and_queries(client, method, path, status, line):
    assert line in problem(client.request(method, path), status)


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "line"),
    [
        ("/predict", b"", {}, 415, "Content-Type must be application/json or application/x-npy"),
        ("/predict", b"", {**JSON, "Content-Encoding": "gzip"}, 415, "uncompressed"),
        ("/predict?task=a", json.dumps(asking()), JSON, 422, "a JSON body holds all options"),
        ("/predict", npy(ROWS), NPY, 422, "task: Field required"),
        ("/infer?among=all&among=x", npy(ROWS), NPY, 404, "named 'all' "),
    ],
)
def test_other_contents_and_options_in_the_wrong_place(
    client, path, content, headers, status, line
):
    assert line in problem(client.post(path, content=content, headers=headers), status)


@pytest.fixture(scope="module")
def narrow(direct):
    """An app with small limits and a token."""
    limits = ServeSettings(token="s3cret", max_bytes=2000, max_rows=3)
    headers = {"Authorization": "Bearer s3cret"}
    with TestClient(create_app(direct, limits), headers=headers) as client:
        yield client


def test_a_large_body_is_refused_whatever_its_headers_say(narrow):
    body = npy(np.zeros((30, FEATURES)))
    pieces = (body[start : start + 100] for start in range(0, len(body), 100))  # chunked
    for content, more in ((body, {}), (body, {"Content-Length": "10"}), (pieces, {})):
        answer = narrow.post("/predict?task=new%200", content=content, headers=NPY | more)
        assert problem(answer, 413) == "the body is larger than the limit of 2,000 bytes"
    rows = {"inputs": [[0.0]] * 4, "task": "new 0"}
    line = "4 rows are more than the limit of 3 per request"
    assert problem(narrow.post("/predict", json=rows), 422) == line


@pytest.mark.parametrize("path", ["/tasks", "/task?name=new%200", "/predict", "/infer"])
def test_without_the_token_only_health_and_the_documentation_answer(narrow, path):
    method = "POST" if path in ("/predict", "/infer") else "GET"
    for token in ("", "Bearer", "Bearer wrong", "Basic s3cret", "Bearer é"):
        answer = narrow.request(method, path, headers={"Authorization": token.encode("latin1")})
        assert answer.headers["www-authenticate"] == "Bearer"
        assert problem(answer, 401) == "a valid token is needed: Authorization: Bearer TOKEN"
    assert narrow.request(method, path).status_code in (200, 415)
    assert narrow.get("/health", headers={"Authorization": ""}).status_code == 200


@pytest.mark.parametrize(
    ("values", "line"),
    [
        *(({"token": token}, "token must be") for token in ("", "two words", "tökén", 3)),
        *(({"max_bytes": value}, "max_bytes must be") for value in (0, 1.5, True)),
    ],
)
def test_settings_that_cannot_be_kept(values, line):
    with pytest.raises(InputError, match=line):
        ServeSettings(**values)
    assert "s3cret" not in repr(ServeSettings(token="s3cret"))


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


def test_a_store_that_is_missing_or_becomes_unreadable(direct, tmp_path):
    path = tmp_path / "tasks.store"
    with pytest.raises(StoreError, match="there is no store"):
        create_app(path)
    direct.save(path)
    with TestClient(create_app(path)) as client:
        path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096))
        problem(client.post("/predict", json=asking()), 503)
