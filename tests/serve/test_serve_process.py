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
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np
import pytest
from serving import JSON, NPY, Load, Request, exchange, npy, serving

from impresslearn import open_store
from impresslearn.errors import InputError
from impresslearn.serve import ServeSettings, run_server
from impresslearn.serve.server import _peer, announce, with_own_names
from toys import FEATURES, blobs

LOAD_SECONDS = float(os.environ.get("IMPRESSLEARN_LOAD_SECONDS", "5"))
GROWTH = 24 * 2**20
"""Bytes by which a server may grow under load: what allocators keep."""
HEAD = b"POST /predict?task=new%200&logits=true HTTP/1.1\r\nHost: localhost\r\n"
MANY = npy(np.random.default_rng(0).integers(0, 256, (4096, FEATURES), dtype=np.uint8))
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


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_a_huge_body_is_refused_and_the_answer_arrives(server, connection):
    request = predict(bytes(4_000_000))
    headers = {**request.headers, "Connection": connection}
    status, answer = server.ask(replace(request, headers=headers))
    assert (status, answer["error"]) == (413, "the body is larger than the limit of 100,000 bytes")


def test_a_huge_chunked_body_is_refused_too(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    pieces = (bytes(10_000) for _ in range(200))
    connection.request("POST", "/predict?task=a", pieces, NPY | ALLOWED, encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, "100,000 bytes" in json.loads(answer.read())["error"]) == (413, True)
    connection.close()


def test_an_endless_body_ends_the_connection(server):
    head = b"POST /predict?task=a HTTP/1.1\r\nHost: localhost\r\n"
    answer, seconds = raw(server, head + b"Content-Length: 99999\r\n\r\nabc")
    assert answer.startswith("HTTP/1.1 401")
    assert "connection: close" in answer.lower()
    assert seconds < 10


def test_a_client_that_asks_first_need_not_send_a_huge_body(server):
    head = (
        b"POST /predict?task=a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-npy\r\n"
    )
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
    content = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + 200_000 * b"x"
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
    head = HEAD + b"Content-Type: application/x-npy\r\n"
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


def test_a_client_that_does_not_read_is_cut_off(store):
    """Two clients hold all connections that their address may have, and lose them in time."""
    code = (
        "import impresslearn.serve.server as server, impresslearn.serve as serve, sys, socket\n"
        "listening = server._listening\n"
        "def narrow(*where):\n"
        "    listener = listening(*where)\n"
        "    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)\n"
        "    return listener\n"
        "server._listening = narrow\n"
        "settings = serve.ServeSettings(max_peer_connections=2, answer_seconds=1.5)\n"
        "serve.run_server(sys.argv[1], settings, port=0)"
    )
    length = f"Content-Type: application/x-npy\r\nContent-Length: {len(MANY)}\r\n\r\n"
    health = Request("health", "GET", "/health")
    with serving(store, code=code) as server, ExitStack() as stack:
        whole = server.ask(Request("predict", "POST", HEAD.split()[1].decode(), 200, MANY, NPY))
        assert len(json.dumps(whole[1])) > 100_000
        streams = [stack.enter_context(socket.socket()) for _ in range(2)]
        for stream in streams:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stream.settimeout(10)
            stream.connect(("127.0.0.1", server.port))
            stream.sendall(HEAD + length.encode() + MANY)
        assert streams[0].recv(9) == streams[1].recv(9) == b"HTTP/1.1 "
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            server.ask(health)
        until = time.monotonic() + 8
        while time.monotonic() < until and str(server.log).count("did not read its answer") < 2:
            with suppress(OSError):
                streams[0].recv(1)  # one reads a byte at a time, the other nothing
            time.sleep(0.05)
        assert server.ask(health)[0] == 200
        for stream in streams:
            with suppress(ConnectionError):
                assert sum(map(len, iter(lambda s=stream: s.recv(65536), b""))) < 100_000
        log = "\n".join(server.log)
        assert log.count("127.0.0.1 did not read its answer in 1.5 seconds") == 2
        assert "127.0.0.1 holds too many connections; refused one" in log
        assert "Traceback" not in log


def test_a_client_that_reads_slowly_but_in_time_gets_all(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    connection.request("POST", HEAD.split()[1].decode(), MANY, NPY | ALLOWED)
    answer, parts = connection.getresponse(), []
    while part := answer.read(20_000):
        parts.append(part)
        time.sleep(0.01)
    assert len(json.loads(b"".join(parts))["logits"]) == 4096
    connection.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_a_peer_is_an_address_or_a_network(one, other, same):
    assert (_peer((one, 1)) == _peer((other, 2))) == same


@pytest.mark.parametrize(
    ("host", "address", "given", "hosts"),
    [
        ("127.0.0.2", "127.0.0.2", (), {"localhost", "127.0.0.1", "[::1]", "127.0.0.2"}),
        (
            "me",
            "127.0.1.1",
            ("a.b",),
            {"localhost", "127.0.0.1", "[::1]", "me", "127.0.1.1", "a.b"},
        ),
        ("::1", "::1", (), {"localhost", "127.0.0.1", "[::1]"}),
        ("0.0.0.0", "0.0.0.0", (), set()),
        ("me", "10.0.0.1", ("a.b",), {"a.b"}),
    ],
)
def test_loopback_serves_this_machines_names_only(host, address, given, hosts):
    settings = with_own_names(ServeSettings(hosts=given), host, address)
    assert set(settings.hosts) == hosts


def test_a_page_whose_name_leads_to_this_machine_is_not_served(server):
    headers = {**ALLOWED, "Host": f"evil.org:{server.port}"}
    status, answer = server.ask(Request("health", "GET", "/health", headers=headers))
    assert (status, "'evil.org:" in answer["error"]) == (421, True)


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
        assert server.ask(Request("tasks", "GET", "/tasks", headers=headers))[0] == status
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
