"""A server as it really runs: bytes on a socket, signals, another process that learns, load.

IMPRESSLEARN_LOAD_SECONDS: how long the load lasts (5).
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import time

import numpy as np
import pytest
from serving import JSON, NPY, Load, Request, exchange, npy, serving

from impresslearn import open_store
from impresslearn.errors import InputError
from impresslearn.serve import ServeSettings, run_server
from impresslearn.serve.server import announce
from toys import FEATURES, blobs

LOAD_SECONDS = float(os.environ.get("IMPRESSLEARN_LOAD_SECONDS", "5"))
GROWTH = 24 * 2**20
"""Bytes by which a server may grow under load: what allocators keep."""
ALLOWED = {"Authorization": "Bearer s3cret"}
INPUTS = blobs(50)[0][:8]

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def raw(server, content, seconds=15):
    """What comes back for some bytes, and after how long the server closed the connection."""
    start, answer = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as stream:
        stream.sendall(content)
        while piece := stream.recv(65536):
            answer += piece
            assert time.monotonic() - start < seconds
    return answer.decode(), time.monotonic() - start


def predict(body):
    return Request("predict", "POST", "/predict?task=new%200", 200, body, NPY | ALLOWED)


def test_a_huge_body_is_refused_and_the_answer_arrives(server):
    status, answer = server.ask(predict(bytes(4_000_000)))
    assert (status, answer["error"]) == (413, "the body is larger than the limit of 100,000 bytes")


def test_a_huge_chunked_body_is_refused_too(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    pieces = (bytes(10_000) for _ in range(200))
    connection.request("POST", "/predict?task=a", pieces, NPY | ALLOWED, encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, "100,000 bytes" in json.loads(answer.read())["error"]) == (413, True)
    connection.close()


def test_an_endless_body_ends_the_connection(server):
    head = b"POST /predict?task=a HTTP/1.1\r\nHost: x\r\n"
    answer, seconds = raw(server, head + b"Content-Length: 99999\r\n\r\nabc")
    assert answer.startswith("HTTP/1.1 401")
    assert "connection: close" in answer.lower()
    assert seconds < 10


def test_a_client_that_asks_first_need_not_send_a_huge_body(server):
    head = b"POST /predict?task=a HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-npy\r\n"
    rest = b"Authorization: Bearer s3cret\r\nContent-Length: 999999\r\nExpect: 100-continue\r\n\r\n"
    answer, seconds = raw(server, head + rest)
    assert answer.startswith("HTTP/1.1 413")
    assert seconds < 1


def test_a_refused_request_leaves_its_connection_usable(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    assert exchange(connection, predict(bytes(200_000)))[0] == 413
    assert exchange(connection, predict(npy(INPUTS)))[0] == 200
    connection.close()


@pytest.mark.parametrize("content", [b"nonsense\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n"])
def test_bytes_that_are_no_http(server, content):
    answer, _ = raw(server, content)
    assert answer.startswith("HTTP/1.1 400")
    assert "Traceback" not in answer


def test_very_long_headers_are_refused(server):
    content = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + 200_000 * b"x"
    try:
        answer, _ = raw(server, content)
    except ConnectionError:  # closed while we were still sending
        return
    assert answer.startswith("HTTP/1.1 400")


def test_a_request_that_trickles_is_cut_off(store):
    code = (
        "import impresslearn.serve.server as server, impresslearn.serve as serve, sys\n"
        "server.HEADER_SECONDS = 1.0\n"
        "settings = serve.ServeSettings(body_seconds=1.0)\n"
        "serve.run_server(sys.argv[1], settings, port=0)"
    )
    head = b"POST /predict?task=new%200 HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-npy\r\n"
    with serving(store, code=code) as server:
        answer, seconds = raw(server, head + b"Content-Length: 500\r\n\r\n\x93NUMPY")
        assert answer.startswith("HTTP/1.1 408")
        assert "the body did not arrive within 1 seconds" in answer
        assert seconds < 10
        for part in (b"", head):  # a connection with no request, and one with half of it
            answer, seconds = raw(server, part)
            assert (answer, seconds < 10) == ("", True)
        assert server.ask(predict(npy(INPUTS)))[0] == 200
        ends_well(server, signal.SIGINT)


def ends_well(server, number):
    """Ends a server by a signal while a connection is open."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    assert exchange(connection, Request("health", "GET", "/health"))[0] == 200
    assert server.stop(number) == 0
    connection.close()
    assert "Traceback" not in "\n".join(server.log)


def test_the_token_from_the_environment_is_asked_for(server):
    for given, status in (("", 401), ("Bearer wrong", 401), ("Bearer s3cret", 200)):
        headers = {"Authorization": given} if given else {}
        assert server.ask(Request("health", "GET", "/health", headers=headers))[0] == status
    assert "s3cret" not in "\n".join(server.log)


@pytest.mark.parametrize(
    ("host", "port", "line"),
    [
        ("127.0.0.1", None, "Address already in use"),
        ("no such host", 0, ""),
        ("127.0.0.1", 99999, ""),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line(server, store, host, port, line):
    port = server.port if port is None else port
    with pytest.raises(InputError, match=f"cannot listen on {host}:{port}: .*{line}"):
        run_server(store, host=host, port=port)


@pytest.mark.parametrize(
    ("host", "token", "warned"),
    [
        ("127.0.0.1", None, False),
        ("::1", None, False),
        ("0.0.0.0", "s3cret", False),
        ("0.0.0.0", None, True),
        ("::", None, True),
    ],
)
def test_an_open_address_without_a_token_is_warned_of(capsys, caplog, host, token, warned):
    class Listener:
        def getsockname(self):
            return host, 8000

    announce(Listener(), ServeSettings(token=token))
    shown = f"[{host}]" if ":" in host else host
    assert f"serving on http://{shown}:8000, documented at" in capsys.readouterr().err
    assert ("IMPRESSLEARN_TOKEN" in caplog.text) == warned


def requests_of(learner):
    """Requests of every kind, with what must come back; malformed ones among them."""
    found = []
    for name in learner.tasks_:
        logits = learner.logits(INPUTS, name).tolist()
        asked = {"inputs": INPUTS.tolist(), "task": name, "logits": True}
        body = json.dumps(asked).encode()

        def right(answer, logits=logits):
            return answer["logits"] == logits

        found.append(Request("predict json", "POST", "/predict", 200, body, JSON, right))
    body, expected = npy(INPUTS), learner.predict(INPUTS, "new 1").tolist()
    path = "/predict?task=new%201"
    found += 4 * [
        Request("predict npy", "POST", path, 200, body, NPY, lambda a: a["labels"] == expected)
    ]
    names = ["new 0", "basis 1", "pets/at home?", "new 1"] * 2
    mixed = learner.predict(INPUTS, names).tolist()
    body = json.dumps({"inputs": INPUTS.tolist(), "task": names}).encode()
    found += 4 * [
        Request("mixed", "POST", "/predict", 200, body, JSON, lambda a: a["labels"] == mixed)
    ]
    guess = learner.infer_task(INPUTS, among=["new 0", "new 1", "basis 2"])
    found.append(
        Request(
            "infer", "POST", "/infer?among=new%200&among=new%201&among=basis%202", 200, npy(INPUTS),
            NPY,
            lambda a: (a["best"], a["entropy"]) == (guess.best, guess.entropy),
        )
    )  # fmt: skip
    large = npy(np.zeros((4096, FEATURES), np.float32))
    return [
        *found,
        Request("large", "POST", path, 200, large, NPY, lambda a: len(a["labels"]) == 4096),
        Request("health", "GET", "/health"),
        Request("tasks", "GET", "/tasks?limit=5", check=lambda a: len(a["tasks"]) == 5),
        Request("task", "GET", "/task?name=new%201", check=lambda a: a["name"] == "new 1"),
        Request("refused", "POST", "/predict", 400, b"{", JSON),
        Request("refused", "POST", path, 422, npy(np.full((2, FEATURES), np.nan)), NPY),
        Request("refused", "POST", "/predict?task=none", 404, npy(INPUTS), NPY),
        Request("refused", "POST", path, 413, npy(np.zeros((4097, 1))), NPY),
        Request("refused", "GET", "/tasks?limit=x", 422),
    ]


@linux
def test_load_brings_no_error_and_no_growth_and_new_tasks_are_served(direct, tmp_path, capsys):
    path = tmp_path / "tasks.store"
    direct.save(path)
    fresh = []

    def learn_more():
        with open_store(path, progress=False) as other:
            for number in range(3):
                other.learn_task(f"late {number}", blobs(80 + number))
                body = npy(INPUTS)
                asked = f"/predict?task=late%20{number}&logits=true"
                status, answer = server.ask(Request("late", "POST", asked, 200, body, NPY))
                expected = other.logits(INPUTS, f"late {number}").tolist()
                fresh.append((status, answer.get("logits") == expected))

    with serving(path, "--log-level", "warning") as server:
        figures = Load(server, requests_of(direct), LOAD_SECONDS).run(meanwhile=learn_more)
        log = list(server.log)
        ends_well(server, signal.SIGTERM)
    with capsys.disabled():
        print(f"\n{figures.line()}")
    assert figures.wrong == []
    assert figures.requests > 10 * LOAD_SECONDS
    assert fresh == 3 * [(200, True)]
    assert figures.memory_end - figures.memory_start < GROWTH
    assert not [line for line in log if "ERROR" in line or "Traceback" in line]
