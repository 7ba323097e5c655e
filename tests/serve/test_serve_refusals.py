"""Every request that cannot be answered gets its status and one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import JSON, NPY, ROWS, npy, problem

from impresslearn.errors import InputError, StoreError, TrainingError
from impresslearn.inference import TaskGuess
from impresslearn.serve import create_app

FAILED = "the server failed on this request; its log says why"


def asked(inputs=ROWS, task="new 0", **more):
    return {"inputs": inputs, "task": task, **more}


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ("", 400, "the body is no JSON: Expecting value"),
        (b"\xff\xfe{}", 400, "the body is no JSON: 'utf-8' codec can't decode"),
        ("[" * 100_000, 400, "the body is nested too deeply"),
        ('{"inputs": [' + 250_000 * "[]," + "[]]}", 413, "more than 250,000 lists in a body"),
        ('{"inputs": [[NaN]], "task": "new 0"}', 400, "the body is no JSON: NaN is no number"),
        ('{"inputs": [[-Infinity]], "task": "a"}', 400, "-Infinity is no number"),
        ('{"inputs": [[1' + 5000 * "0" + ']], "task": "new 0"}', 400, "the body is no JSON"),
        ('[{"x": {"y": 1, "y": 1}}]', 400, "the body is no JSON: an object has a name twice"),
        ([], 422, "request: Input should be a valid dictionary"),
        ({"inputs": ROWS}, 422, "task: Field required"),
        (asked(x=1), 422, "x: Extra inputs are not permitted"),
        (asked(logits="true"), 422, "logits: Input should be a valid boolean"),
        (asked(task="x" * 2000), 422, "task: String should have at most 1024 characters"),
        (asked(task=["new 0", 3]), 422, "task.1: Input should be a valid string"),
        (asked(task="\ud800"), 422, "task: Input should be a valid string"),
        (asked(task=["new 0"]), 422, "2 inputs came with 1 task names"),
        (asked(task=["new 0", "new0"]), 404, "no task named 'new0' among 6; close: 'new 0'"),
        (asked(task="\x00\x1b[31m\x7f\x9b\u202e"), 404, "\\x00\\x1b[31m\\x7f\\x9b\\u202e"),
        (asked("x"), 422, "inputs: must be lists that hold numbers, got shape ()"),
        (asked([["x"]]), 422, "inputs: must be numbers in equally nested lists, got a str"),
        (asked([[], []]), 422, "inputs: must be lists that hold numbers, got shape (2, 0)"),
        (asked([[1.0]]), 422, "lenet_300_100 expects 16 values an input"),
        (asked([[1.0], [1, 2]]), 422, "equally nested lists, got a list"),
        (asked([[1.0, True] * 8]), 422, "nested lists, got a bool"),
        (asked([[None] * 16]), 422, "nested lists, got a NoneType"),
        (asked([[[[[[[[[[1]]]]]]]]]]), 422, "hold numbers, got shape (1, 1, 1,"),
        ('{"inputs": ' + 99 * "[" + 99 * "]" + ', "task": "a"}', 422, "hold numbers, got shape"),
        (asked([[10**400] * 16]), 422, "inputs: there is a number that no float can hold"),
        (asked([[1e300] * 16]), 422, "16 NaN or infinite values"),
        (asked([[1e38] * 16]), 422, "no finite numbers; the inputs are too"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_that_cannot_be_predicted(client, body, status, line):
    content = body if isinstance(body, (str, bytes)) else json.dumps(body)
    assert line in problem(client.post("/predict", content=content, headers=JSON), status)


UNKNOWN = [
    ({"among": []}, 422, "among: Input should be 'all'"),
    ({"among": ["x"]}, 404, "no task named 'x'"),
    ({"method": "alpha"}, 422, "method: Input should be 'auto'"),
    ({"inputs": [[1e38] * 16]}, 422, "no finite numbers"),
]


@pytest.mark.parametrize(("fields", "status", "line"), UNKNOWN)
def test_json_whose_task_cannot_be_inferred(client, fields, status, line):
    assert line in problem(client.post("/infer", json={"inputs": ROWS, **fields}), status)


def claiming(shape):
    """An .npy file of 2 × 16 numbers whose header declares another shape."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': %s, }" % shape.encode()
    return npy(ROWS)[:10] + header.ljust(117) + b"\n" + npy(ROWS)[128:]


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        (b"", 400, "the body is no .npy file"),
        (b"PK\x03\x04" + bytes(99), 400, "the body is no .npy file"),
        (b"\x93NUMPY\x01\x00\xff\xff{    ", 400, "the body is no .npy file"),
        (npy(ROWS)[:-1], 400, "expected 256 bytes got 255"),
        (npy(ROWS) + b"x", 400, "1 bytes follow the array"),
        (claiming("(2, -16)"), 400, "the body is no .npy file"),
        (claiming("(99999999, 9999)"), 400, "the body is no .npy file"),
        (claiming("(2147483648, 2147483648, 0)"), 400, "the body is no .npy file"),
        (npy(3.0), 400, "1 to 8 dimensions, none empty, got ()"),
        (npy(np.zeros([1] * 9)), 400, "1 to 8 dimensions"),
        (npy(np.zeros((0, 16))), 400, "none empty, got (0, 16)"),
        (npy(["a"]), 400, "must hold real numbers"),
        (npy([1j]), 400, "must hold real numbers"),
        (npy([True]), 400, "must hold real numbers"),
        (npy(np.zeros(2, dtype=[("x", "f4")])), 400, "real numbers"),
        (npy(np.array([print], dtype=object)), 400, "Object arrays cannot be loaded"),  # a pickle
        (npy(np.full((2, 16), np.nan)), 422, "inputs hold 32 NaN or infinite values"),
    ],
)
@pytest.mark.parametrize("path", ["/predict?task=new%200", "/infer"])
def test_npy_bodies_that_cannot_be_used(client, path, body, status, line):
    assert line in problem(client.post(path, content=body, headers=NPY), status)


HEADERS = st.fixed_dictionaries(
    {
        "descr": st.sampled_from(
            ["<f8", ">f2", "|b1", "|O", "<U3", "<M8[s]", "V9", "<f16", "f4,f4"]
        )
        | st.text(max_size=9)
        | st.lists(st.tuples(st.text(max_size=3), st.just("<f4")), max_size=3),
        "fortran_order": st.booleans() | st.integers(0, 1),
        "shape": st.lists(st.sampled_from([0, 1, -1, 2, 16, True, 2**31, 2**62, 2**70])).map(tuple),
    }
)


def with_header(header, content):
    written = repr(header).encode("utf-8", "replace")
    return b"\x93NUMPY\x01\x00" + len(written).to_bytes(2, "little") + written + content


BODIES = st.builds(with_header, HEADERS, st.binary(max_size=16)) | st.binary(max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(BODIES)
@pytest.mark.filterwarnings("ignore")
def test_any_npy_body_is_answered_or_refused(client, body):
    for path in ("/predict?task=new%200", "/infer"):
        answer = client.post(path, content=body, headers=NPY)
        if answer.status_code != 200:
            assert answer.status_code in (400, 413, 422), (body, answer.text)
            problem(answer, answer.status_code)


@pytest.mark.parametrize(
    ("method", "path", "status", "line"),
    [
        ("GET", "/x%1b%7f%c2%9b%e2%80%ae", 404, "there is no GET /x\\x1b\\x7f\\x9b\\u202e; see"),
        ("GET", "/health/", 404, "there is no GET /health/; see /docs"),
        ("DELETE", "/tasks", 405, "DELETE /tasks is not allowed"),
        ("GET", "/tasks?limit=1001", 422, "limit: Input should be less than or equal to 1000"),
        ("GET", "/tasks?page=1", 422, "page: Extra inputs are not permitted"),
        ("GET", "/task", 422, "name: Field required"),
        ("GET", "/task?name=new", 404, "no task named 'new' among 6; close: 'new 0', 'new 1'"),
        ("GET", "/task?name=%00%ff%0A", 404, "no task named"),
    ],
)
def test_paths_and_queries(client, method, path, status, line):
    answer = client.request(method, path)
    assert line in problem(answer, status)
    assert ("allow" in answer.headers) == (status == 405)


ZIPPED = {**JSON, "Content-Encoding": "gzip"}


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "line"),
    [
        ("/predict", b"", {}, 415, "Content-Type must be one of application/json, application/x-"),
        ("/predict", b"", {"Content-Type": "text/html"}, 415, "got text/html"),
        ("/predict", b"", ZIPPED, 415, "compressed bodies are not read"),
        ("/predict?task=a", json.dumps(asked()), JSON, 422, "task in the query belongs to .npy"),
        ("/predict", npy(ROWS), NPY, 422, "needs the task in the query"),
        ("/infer?among=all&among=x", npy(ROWS), NPY, 404, "named 'all' "),
    ],
    ids=lambda value: str(value)[:20],
)
def test_other_contents_and_options_in_the_wrong_place(
    client, path, content, headers, status, line
):
    assert line in problem(client.post(path, content=content, headers=headers), status)


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (StoreError("the store\nis gone"), 503, "the store is gone"),
        (InputError("x" * 1000), 422, "x" * 499 + "…"),
        (TrainingError("odd"), 500, FAILED),
        (ZeroDivisionError("secret"), 500, FAILED),
    ],
)
def test_errors_from_below(direct, monkeypatch, raised, status, line):
    def fail(self):
        raise raised

    monkeypatch.setattr("impresslearn.serve.service.Service.health", fail)
    with TestClient(create_app(direct), raise_server_exceptions=False) as client:
        answer = client.get("/health")
    assert problem(answer, status) == line


def test_no_answer_has_a_number_that_is_none(client, direct, monkeypatch):
    nan = float("nan")
    guess = TaskGuess("new 0", {"new 0": nan}, nan, nan, nan, "halving")
    with monkeypatch.context() as patch, TestClient(create_app(direct)) as other:
        patch.setattr(direct, "infer_task", lambda *_, **__: guess)
        assert "finite" in problem(other.post("/infer", json={"inputs": ROWS}), 422)
    outputs = "impresslearn.networks.prediction.TaskView.outputs"
    monkeypatch.setattr(outputs, lambda *_, **__: torch.full((2, 3), nan))
    for path, body in (("/predict", asked()), ("/infer", {"inputs": ROWS})):
        assert "finite" in problem(client.post(path, json=body), 422)


def test_a_store_that_is_none(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        create_app(tmp_path / "none")
