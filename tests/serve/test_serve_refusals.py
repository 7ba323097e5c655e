"""Every request that cannot be answered gets its status and one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from serving import JSON, NPY, npy

from impresslearn import adapt
from impresslearn.errors import InputError, StoreError, TrainingError
from impresslearn.inference import TaskGuess
from impresslearn.serve import ServeSettings, create_app
from toys import FEATURES, ConvNet, blobs, pictures, quick_learner

ROWS = blobs(50)[0][:2].tolist()
NOTHING = npy(np.zeros((1, 0)))
KNOWN = {"inputs": ROWS, "task": "new 0"}


def problem(answer):
    """The line of an error, after checking its form."""
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    line = answer.json()["error"]
    assert line
    assert line.isprintable()
    assert "Traceback" not in line
    return line


def text(value):
    return value if isinstance(value, (str, bytes)) else json.dumps(value)


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ("", 400, "the body is no JSON: Expecting value"),
        ("{", 400, "the body is no JSON"),
        (b"\xff\xfe{}", 400, "the body is no JSON: 'utf-8' codec can't decode"),
        ("[" * 100_000, 400, "the body is nested too deeply"),
        ('{"inputs": [' + 250_000 * "[]," + "[]]}", 413, "more than 250,000 lists in a body"),
        ('{"inputs": [[NaN]], "task": "new 0"}', 400, "the body is no JSON: NaN is no number"),
        ('{"inputs": [[-Infinity]], "task": "a"}', 400, "-Infinity is no number"),
        ('{"inputs": [[1' + 5000 * "0" + ']], "task": "new 0"}', 400, "the body is no JSON"),
        ([], 422, "request: Input should be a valid dictionary"),
        ({}, 422, "Field required"),
        ({"inputs": ROWS}, 422, "task: Field required"),
        ({"inputs": "x", "task": "new 0"}, 422, "inputs: Input should be a valid list"),
        ({**KNOWN, "x": 1}, 422, "x: Extra inputs are not permitted"),
        ({**KNOWN, "logits": "true"}, 422, "logits: Input should be a valid boolean"),
        ({**KNOWN, "task": 3}, 422, "task: Input should be a valid string"),
        ({**KNOWN, "task": ""}, 422, "task: String should have at least 1 character"),
        ({**KNOWN, "task": "x" * 2000}, 422, "task: String should have at most 1024 characters"),
        ({**KNOWN, "task": ["new 0", 3]}, 422, "task.1: Input should be a valid string"),
        ({**KNOWN, "task": "\ud800"}, 422, "task: Input should be a valid string"),
        ({**KNOWN, "task": ["new 0"]}, 422, "2 inputs came with 1 task names"),
        ({**KNOWN, "task": "new0"}, 404, "no task named 'new0' among 6; close: 'new 0'"),
        ({**KNOWN, "task": ["new 0", "x"]}, 404, "no task named 'x' among 6"),
        ({"inputs": [], "task": "new 0"}, 422, "inputs must be at least one row"),
        ({"inputs": [1.0], "task": "new 0"}, 422, "lenet_300_100 expects 16 values an input"),
        ({"inputs": [[1.0]], "task": "new 0"}, 422, "lenet_300_100 expects 16 values an input"),
        ({"inputs": [[1.0], [1, 2]], "task": "new 0"}, 422, "equal length at every depth"),
        ({"inputs": [[1.0], 2], "task": "new 0"}, 422, "equal length at every depth"),
        ({"inputs": [["1"] * 16], "task": "new 0"}, 422, "nested lists, got a str"),
        ({"inputs": [[True] * 16], "task": "new 0"}, 422, "nested lists, got a bool"),
        ({"inputs": [[None] * 16], "task": "new 0"}, 422, "nested lists, got a NoneType"),
        ({"inputs": [{}], "task": "new 0"}, 422, "nested lists, got a dict"),
        ({"inputs": [[[[[[[[[[1]]]]]]]]]], "task": "new 0"}, 422, "nested lists, got a list"),
        ({"inputs": [[], []], "task": "new 0"}, 422, "inputs must hold numbers, got none in shape"),
        ('{"inputs": [[1]], "task": "a", "task": "b"}', 400, "an object has a name twice"),
        ({**KNOWN, "task": "\x00\x1b[31m\x7f\x9b\u202e"}, 404, "\\x00\\x1b[31m\\x7f\\x9b\\u202e"),
        ({**KNOWN, "prepared": "yes"}, 422, "prepared"),
        ({"inputs": [[10**400] * 16], "task": "new 0"}, 422, "a number that no float can hold"),
        ({"inputs": [[1e300] * 16], "task": "new 0"}, 422, "16 NaN or infinite values"),
        ({"inputs": [[1e38] * 16], "task": "new 0"}, 422, "no finite numbers; the inputs are too"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_that_cannot_be_predicted(client, body, status, line):
    answer = client.post("/predict", content=text(body), headers=JSON)
    assert answer.status_code == status
    assert line in problem(answer)


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ({"inputs": ROWS, "among": "some"}, 422, "among: Input should be 'all'"),
        ({"inputs": ROWS, "among": []}, 422, "among: Input should be 'all'"),
        ({"inputs": ROWS, "among": ["x"]}, 404, "no task named 'x'"),
        ({"inputs": ROWS, "method": "alpha"}, 422, "method: Input should be 'halving'"),
        ({"inputs": [[1e38] * 16]}, 422, "no finite numbers"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_whose_task_cannot_be_inferred(client, body, status, line):
    answer = client.post("/infer", content=text(body), headers=JSON)
    assert answer.status_code == status
    assert line in problem(answer)


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        (b"", 400, "the body is no .npy file"),
        (b"\x93NUMPY", 400, "the body is no .npy file"),
        (b"\x93NUMPY\x03\x00" + npy(ROWS)[8:], 400, "the body is no .npy file of format 1 or 2"),
        (b"\x93NUMPY\x01\x00\xff\xff{    ", 400, "the body is no .npy file of format 1 or 2"),
        (npy(ROWS)[:-1], 400, "declares 256 bytes of data, 255 came"),
        (npy(ROWS) + b"x", 400, "declares 256 bytes of data, 257 came"),
        (
            npy(ROWS).replace(b"(2, 16)", b"(2,-16)"),
            400,
            "1 to 8 dimensions, none empty, got (2, -16)",
        ),
        (npy(ROWS).replace(b"(2, 16), }   ", b"(2, 16**9), }"), 400, "the body is no .npy file"),
        (npy(ROWS).replace(b"(2, 16), }         ", b"(99999999, 9999)}  "), 400, "256 came"),
        (
            npy(ROWS).replace(b"(2, 16), }           ", b"(2**31-1, 2**31-1, 0)}"),
            400,
            "no .npy file",
        ),
        (NOTHING.replace(b"(1, 0), }", b"(2147483648, 2147483648, 0)}")[:-18], 400, "none empty"),
        (npy(3.0), 400, "1 to 8 dimensions, none empty, got ()"),
        (npy(np.zeros([1] * 9)), 400, "1 to 8 dimensions"),
        (npy(np.zeros((2, 0))), 400, "none empty, got (2, 0)"),
        (npy(["a"]), 400, "must hold real numbers"),
        (npy([1j]), 400, "must hold real numbers"),
        (npy([True]), 400, "must hold real numbers"),
        (npy(np.zeros(2, dtype=[("x", "f4")])), 400, "real numbers"),
        (npy(np.zeros((0, 16))), 400, "none empty, got (0, 16)"),
        (npy(np.zeros((2, 15))), 422, "lenet_300_100 expects 16 values an input"),
        (npy(np.full((2, 16), np.nan)), 422, "inputs hold 32 NaN or infinite values"),
    ],
)
@pytest.mark.parametrize("path", ["/predict?task=new%200", "/infer"])
def test_npy_bodies_that_cannot_be_used(client, path, body, status, line):
    answer = client.post(path, content=body, headers=NPY)
    assert answer.status_code == status
    assert line in problem(answer)


def test_pickled_objects_are_never_loaded(client):
    body = npy(np.array([print], dtype=object))  # np.save pickles it
    answer = client.post("/predict?task=new%200", content=body, headers=NPY)
    assert (answer.status_code, "real numbers" in problem(answer)) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "status", "line"),
    [
        ("GET", "/nothing", 404, "there is no GET /nothing; see /docs"),
        ("GET", "/x%1b%7f%c2%9b%e2%80%ae", 404, "GET /x\\x1b\\x7f\\x9b\\u202e; see"),
        ("GET", "/health/", 404, "there is no GET /health/"),
        ("DELETE", "/tasks", 405, "DELETE /tasks is not allowed"),
        ("GET", "/predict", 405, "GET /predict is not allowed"),
        ("GET", "/tasks?limit=0", 422, "limit: Input should be greater than or equal to 1"),
        ("GET", "/tasks?limit=1001", 422, "limit: Input should be less than or equal to 1000"),
        ("GET", "/tasks?offset=-1", 422, "offset: Input should be greater than or equal to 0"),
        ("GET", "/tasks?offset=x", 422, "offset: Input should be a valid integer"),
        ("GET", "/tasks?page=1", 422, "page: Extra inputs are not permitted"),
        ("GET", "/task", 422, "name: Field required"),
        ("GET", "/task?name=", 422, "name: String should have at least 1 character"),
        ("GET", "/task?name=new", 404, "no task named 'new' among 6; close: 'new 1', 'new 0'"),
        ("GET", "/task?name=%00%ff%0A", 404, "no task named"),
    ],
)
def test_paths_and_queries(client, method, path, status, line):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert line in problem(answer)
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("headers", "line"),
    [
        ({}, "Content-Type must be one of application/json, application/x-npy"),
        ({"Content-Type": "text/html"}, "got text/html"),
        ({**JSON, "Content-Encoding": "gzip"}, "compressed bodies are not read"),
    ],
)
def test_other_contents_are_refused(client, headers, line):
    answer = client.post("/predict", content=json.dumps(KNOWN), headers=headers)
    assert answer.status_code == 415
    assert line in problem(answer)


def test_options_belong_to_one_place(client):
    answer = client.post("/predict?task=new%200", json=KNOWN)
    assert answer.status_code == 422
    assert "task in the query belongs to .npy bodies" in problem(answer)
    answer = client.post("/predict", content=npy(ROWS), headers=NPY)
    assert answer.status_code == 422
    assert "needs the task in the query" in problem(answer)
    answer = client.post("/infer?among=all&among=new%200", content=npy(ROWS), headers=NPY)
    assert (answer.status_code, problem(answer)[:20]) == (404, "no task named 'all' ")


@pytest.fixture(scope="module")
def narrow(direct):
    """An app with small limits and a token."""
    limits = {"max_bytes": 2000, "max_rows": 3, "max_candidates": 4, "max_tasks": 1}
    app = create_app(direct, ServeSettings(token="s3cret", hosts=("Here.org", "[::1]"), **limits))
    headers = {"Authorization": "Bearer s3cret", "Host": "here.org:80"}
    with TestClient(app, headers=headers) as client:
        yield client


def test_a_large_body_is_refused_whatever_its_headers_say(narrow):
    body = npy(np.zeros((30, FEATURES)))
    for headers in (NPY, {**NPY, "Content-Length": "10"}):
        answer = narrow.post("/predict?task=new%200", content=body, headers=headers)
        assert answer.status_code == 413
        assert problem(answer) == "the body is larger than the limit of 2,000 bytes"
    pieces = (body[start : start + 100] for start in range(0, len(body), 100))  # chunked
    answer = narrow.post("/predict?task=new%200", content=pieces, headers=NPY)
    assert "content-length" not in answer.request.headers
    assert (answer.status_code, "2,000 bytes" in problem(answer)) == (413, True)


def test_too_many_rows_and_candidates_are_refused(narrow):
    for answer in (
        narrow.post("/predict", json={"inputs": [[0.0]] * 4, "task": "new 0"}),
        narrow.post("/predict?task=a", content=npy(np.zeros((4, 1))), headers=NPY),
    ):
        assert answer.status_code == 413
        assert problem(answer) == "4 rows are more than the limit of 3 a request"
    answer = narrow.post("/infer", content=npy(ROWS), headers=NPY)
    assert (answer.status_code, problem(answer)[:39]) == (
        422,
        "6 tasks are more than the limit of 4 th",
    )
    some = narrow.post("/infer?among=new%200", content=npy(ROWS), headers=NPY)
    assert some.status_code == 200
    mixed = narrow.post("/predict", json={"inputs": ROWS, "task": ["new 0", "new 1"]})
    line = "2 tasks are more than the limit of 1 a batch; send several"
    assert (mixed.status_code, problem(mixed)) == (413, line)


@pytest.mark.parametrize(
    ("path", "asked", "line"),
    [
        ("/predict", {"task": "new 0", "logits": True}, "6 logits take 600 bytes"),
        ("/predict", {"task": ["new 0", "basis 1"], "logits": True}, "6 logits take 600 bytes"),
        # 3 candidates of 3 masks by 24 + 12 + 3 units; one basis task needs no units
        ("/infer", {"among": "learned"}, "these candidates take 4,212 bytes"),
        ("/infer", {"among": ["basis 0", "new 0", "new 0"]}, "these candidates take 2,808 bytes"),
    ],
)
def test_memory_is_bounded_before_it_is_taken(direct, path, asked, line):
    limit = 599 if path == "/predict" else 2000
    with TestClient(create_app(direct, ServeSettings(max_memory=limit))) as client:
        answer = client.post(path, json={"inputs": ROWS, **asked})
        less = {"logits": False} if path == "/predict" else {"among": ["basis 0"]}
        assert client.post(path, json={"inputs": ROWS, **asked, **less}).status_code == 200
    assert answer.status_code == 413
    assert problem(answer).startswith(f"{line}, the limit is {limit:,} a request; ")


def test_activations_are_bounded_before_they_are_made():
    """A few bytes of pixels are refused for what the network would make of them."""
    learner = quick_learner(adapt(ConvNet(), input_shape=(3, None, None)), sparsity=0.5)
    learner.learn_basis("a", pictures())
    sizes = {"/predict?task=a": 10_000, "/infer": 5000}
    with TestClient(create_app(learner, ServeSettings(max_memory=10**6))) as client:
        for path, pixels in sizes.items():
            for shape, status in (((1, 3, 10, 10), 200), ((1, 3, 10, pixels), 413)):
                body = npy(np.ones(shape, dtype=np.uint8))
                answer = client.post(path, content=body, headers=NPY)
                assert answer.status_code == status
            assert problem(answer).startswith(f"1 inputs of shape (3, 10, {pixels}) take ")


@pytest.mark.parametrize(
    "host", ["evil.org", "here.org.evil.org", "here.org:80:80", "[::2]", "[", ""]
)
@pytest.mark.parametrize("path", ["/health", "/tasks", "/docs", "/openapi.json", "/predict"])
def test_other_hosts_are_not_served(narrow, host, path):
    method = "POST" if path == "/predict" else "GET"
    answer = narrow.request(method, path, headers={"Host": host})
    assert (answer.status_code, "is not served" in problem(answer)) == (421, True)


@pytest.mark.parametrize("host", ["here.org", "HERE.org:8000", "[::1]", "[::1]:1"])
def test_hosts_are_served_at_any_port(narrow, host):
    assert narrow.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/tasks", "/task?name=x", "/predict", "/infer", "/docs", "/openapi.json"]
)
@pytest.mark.parametrize("token", [None, "", "Bearer", "Bearer wrong", "Basic s3cret", "Bearer é"])
def test_without_the_token_nothing_is_told(narrow, path, token):
    headers = {"Authorization": b"" if token is None else token.encode("latin1")}
    method = "POST" if path in ("/predict", "/infer") else "GET"
    answer = narrow.request(method, path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert problem(answer) == "a valid token is needed: Authorization: Bearer TOKEN"


def test_with_the_token_everything_is(narrow):
    for path in ("/health", "/task?name=new%200", "/docs", "/openapi.json"):
        assert narrow.get(path).status_code == 200


def test_health_needs_no_token(narrow):
    assert narrow.get("/health", headers={"Authorization": ""}).status_code == 200


def test_the_token_stays_secret():
    assert "s3cret" not in repr(ServeSettings(token="s3cret"))


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (StoreError("the store\nis gone"), 503, "the store is gone"),
        (InputError("x" * 1000), 422, "x" * 499 + "…"),
        (TrainingError("odd"), 500, "the server failed on this request; its log says why"),
        (StopIteration(), 500, "the server failed on this request; its log says why"),
        (ZeroDivisionError("secret"), 500, "the server failed on this request; its log says why"),
    ],
)
def test_errors_from_below(direct, monkeypatch, raised, status, line):
    def fail(*_):
        raise raised

    monkeypatch.setattr("impresslearn.serve.service.Service.health", fail)
    with TestClient(create_app(direct), raise_server_exceptions=False) as client:
        answer = client.get("/health")
    assert answer.status_code == status
    assert problem(answer) == line


def test_no_answer_has_a_number_that_is_none(direct, monkeypatch):
    broken = torch.full((2, 3), torch.nan)
    monkeypatch.setattr(
        "impresslearn.networks.prediction.TaskView.outputs", lambda *_, **__: broken
    )
    with TestClient(create_app(direct)) as client:
        for path in ("/predict", "/infer"):
            asked = {"inputs": ROWS} | ({"task": "new 0"} if path == "/predict" else {})
            answer = client.post(path, json=asked)
            assert (answer.status_code, "finite" in problem(answer)) == (422, True)


def test_an_inference_without_numbers_is_none(direct, monkeypatch):
    nan = float("nan")
    guess = TaskGuess("new 0", {"new 0": nan}, nan, nan, nan, "halving")
    monkeypatch.setattr(direct, "infer_task", lambda *_, **__: guess)
    with TestClient(create_app(direct)) as client:
        answer = client.post("/infer", json={"inputs": ROWS})
    assert (answer.status_code, "finite" in problem(answer)) == (422, True)


@pytest.mark.parametrize(
    "settings",
    [
        {"token": ""},
        {"token": "two words"},
        {"token": "tökén"},
        {"max_bytes": 0},
        {"max_rows": 1.5},
        {"threads": True},
        {"max_candidates": -1},
        {"body_seconds": 0},
        {"body_seconds": float("nan")},
        {"answer_seconds": "1"},
        {"max_memory": 0},
        {"max_peer_connections": 0},
        {"hosts": "localhost"},
        {"hosts": ["here:80"]},
    ],
)
def test_settings_that_cannot_be_kept(settings):
    with pytest.raises(InputError):
        ServeSettings(**settings)


def test_a_store_that_is_none(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        create_app(tmp_path / "none")
