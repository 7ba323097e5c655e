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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from serving import JSON, NPY, exchange, npy, serving

from impresslearn import open_store
from impresslearn.errors import InputError
from impresslearn.serve import ServeSettings, run_server
from impresslearn.serve.server import _peer, announce, with_loopback_hosts
from toys import FEATURES, blobs

LOAD_SECONDS = float(os.environ.get("IMPRESSLEARN_LOAD_SECONDS", "5"))
GROWTH = 24 * 2**20
"""Bytes by which a server may grow under load: what allocators keep."""
PATH = "/predict?task=new%200"
HEAD = f"POST {PATH}&logits=true HTTP/1.1\r\nHost: localhost\r\n".encode()
BINARY = b"Content-Type: application/x-npy\r\n"
MANY = npy(np.random.default_rng(0).integers(0, 256, (4096, FEATURES), dtype=np.uint8))
ALLOWED = {"Authorization": "Bearer s3cret"}
TOO_LARGE = "the body is larger than the limit of 100,000 bytes"
INPUTS = blobs(50)[0][:8]
RUN = """
import impresslearn.serve.server as server, impresslearn.serve as serve, sys, socket
{}
serve.run_server(sys.argv[1], serve.ServeSettings({}), port=0)
"""


def raw(server, content, seconds=15):
    """What comes back for some bytes, and after how long the server closed the connection."""
    start, answer = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as stream:
        stream.sendall(content)
        while piece := stream.recv(65536):
            answer += piece
            assert time.monotonic() - start < seconds
    return answer.decode(), time.monotonic() - start


@pytest.mark.parametrize("more", [{}, {"Connection": "close"}], ids=["keep-alive", "close"])
def test_a_huge_body_is_refused_and_the_answer_arrives(server, more):
    bodies = bytes(4_000_000), (bytes(10_000) for _ in range(200)), bytes(200_000)
    for body in bodies:  # the second in chunks, the third short enough to be read to its end
        with server.connect() as connection:
            status, answer = exchange(connection, "POST", PATH, body, NPY | ALLOWED | more)
            assert (status, answer["error"]) == (413, TOO_LARGE)
            if body is bodies[2]:
                assert exchange(connection, "POST", PATH, npy(INPUTS), NPY | ALLOWED)[0] == 200


@pytest.mark.parametrize(
    ("more", "status", "least"),
    [(b"", 401, 0.5), (b"Authorization: Bearer s3cret\r\nExpect: 100-continue\r\n", 413, 0.0)],
    ids=["an endless body", "a body that waits to be asked for"],
)
def test_a_refused_body_that_does_not_come_ends_the_connection(server, more, status, least):
    answer, seconds = raw(server, HEAD + BINARY + more + b"Content-Length: 999999\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status}")
    assert "connection: close" in answer.lower()
    assert least <= seconds < least + 5


@pytest.mark.parametrize(
    "content", [b"nonsense\r\n\r\n", b"GET /health HTTP/1.1\r\nX: " + 200_000 * b"x"]
)
def test_bytes_that_are_no_request(server, content):
    with suppress(ConnectionError):  # closed while we were still sending
        answer, _ = raw(server, content)
        assert answer.startswith("HTTP/1.1 400")
        assert "Traceback" not in answer


@pytest.mark.slow
def test_a_request_that_trickles_is_cut_off(store):
    code = RUN.format("server.HEADER_SECONDS = 1.0", "body_seconds=1.0")
    with serving(store, code=code) as server:
        answer, seconds = raw(server, HEAD + BINARY + b"Content-Length: 500\r\n\r\n\x93NUMPY")
        assert answer.startswith("HTTP/1.1 408")
        assert "the body did not arrive within 1 seconds" in answer
        assert seconds < 10
        for part in (b"", HEAD):  # a connection with no request, and one with half of it
            answer, seconds = raw(server, part)
            assert (answer, seconds < 10) == ("", True)
        assert server.ask("POST", PATH, npy(INPUTS), NPY)[0] == 200
        server.ends_well(signal.SIGINT)


@pytest.mark.slow
def test_a_client_that_does_not_read_is_cut_off(store):
    """Two clients hold all connections that their address may have, and lose them in time."""
    narrow = """
listening = server._listening
def narrow(*where):
    listener = listening(*where)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return listener
server._listening = narrow"""
    code = RUN.format(narrow, "max_peer_connections=2, answer_seconds=1.5")
    with serving(store, code=code) as server, ExitStack() as stack:
        assert len(json.dumps(server.ask("POST", f"{PATH}&logits=true", MANY, NPY)[1])) > 100_000
        streams = [stack.enter_context(socket.socket()) for _ in range(2)]
        for stream in streams:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stream.settimeout(10)
            stream.connect(("127.0.0.1", server.port))
            stream.sendall(HEAD + BINARY + f"Content-Length: {len(MANY)}\r\n\r\n".encode() + MANY)
        assert streams[0].recv(9) == streams[1].recv(9) == b"HTTP/1.1 "
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            server.ask("GET", "/health")
        until = time.monotonic() + 8
        while time.monotonic() < until and str(server.log).count("did not read its answer") < 2:
            with suppress(OSError):
                streams[0].recv(1)  # one reads a byte at a time, the other nothing
            time.sleep(0.05)
        assert server.ask("GET", "/health")[0] == 200
        for stream in streams:
            with suppress(ConnectionError):
                assert sum(map(len, iter(lambda s=stream: s.recv(65536), b""))) < 100_000
        log = "\n".join(server.log)
        assert log.count("127.0.0.1 did not read its answer in 1.5 seconds") == 2
        assert "127.0.0.1 holds too many connections; refused one" in log
        assert "Traceback" not in log


def test_a_client_that_reads_slowly_but_in_time_gets_all(server):
    with server.connect() as connection:
        connection.request("POST", f"{PATH}&logits=true", MANY, NPY | ALLOWED)
        answer, parts = connection.getresponse(), []
        while part := answer.read(20_000):
            parts.append(part)
            time.sleep(0.01)
        assert len(json.loads(b"".join(parts))["logits"]) == 4096


def test_a_peer_is_an_address_or_a_network():
    addresses = "10.0.0.1 10.0.0.2 2001:db8::1 2001:db8::ffff:1 2001:db8:0:1::1 fe80::1%a fe80::2%a"
    peers = [_peer((each, 1)) for each in addresses.split()]
    assert [peers.index(each) for each in peers] == [0, 1, 2, 2, 4, 5, 5]


@pytest.mark.parametrize(
    ("host", "address", "token", "served", "warned"),
    [
        ("127.0.0.2", "127.0.0.2", None, "a.b localhost 127.0.0.1 [::1] 127.0.0.2", False),
        ("me", "127.0.1.1", None, "a.b localhost 127.0.0.1 [::1] me 127.0.1.1", False),
        ("::1", "::1", None, "a.b localhost 127.0.0.1 [::1]", False),
        ("me", "10.0.0.1", "s3cret", "a.b", False),
        ("0.0.0.0", "0.0.0.0", None, "a.b", True),
        ("::", "::", None, "a.b", True),
    ],
)
def test_loopback_serves_this_machine_only_and_open_addresses_are_warned_of(
    capsys, caplog, host, address, token, served, warned
):
    class Listener:
        def getsockname(self):
            return address, 8000

    settings = ServeSettings(token=token, hosts=("a.b",))
    assert set(with_loopback_hosts(settings, host, address).hosts) == set(served.split())
    announce(Listener(), settings)
    shown = f"[{address}]" if ":" in address else address
    assert f"serving on http://{shown}:8000, documented at" in capsys.readouterr().err
    assert ("IMPRESSLEARN_TOKEN" in caplog.text) == warned


def test_tokens_and_hosts_are_those_of_the_command(server):
    for given, status in (("", 401), ("Bearer wrong", 401), ("Bearer s3cret", 200)):
        assert server.ask("GET", "/tasks", None, {"Authorization": given})[0] == status
    assert "s3cret" not in "\n".join(server.log)
    # A page on the web whose name leads to this machine.
    status, answer = server.ask("GET", "/health", None, ALLOWED | {"Host": "evil.org:80"})
    assert (status, "'evil.org:" in answer["error"]) == (421, True)


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", None), ("no such host", 0), ("127.0.0.1", 99999)]
)
def test_an_address_that_cannot_be_used_is_one_line(server, store, host, port):
    line = "Address already in use" if port is None else ""
    port = server.port if port is None else port
    with pytest.raises(InputError, match=f"cannot listen on {host}:{port}: .*{line}"):
        run_server(store, host=host, port=port)


def requests_of(learner):
    """Requests of every kind, malformed ones too: path, body, headers, status, and what must be in
    the answer."""
    mixed = ["new 0", "basis 1", "pets/at home?", "new 1"] * 2
    body = {"inputs": INPUTS.tolist(), "task": mixed}
    labels = {"labels": learner.predict(INPUTS, mixed).tolist()}
    logits = {"logits": learner.logits(INPUTS, "new 0").tolist()}
    among = "/infer?among=new%200&among=new%201"
    guess = learner.infer_task(INPUTS, among=["new 0", "new 1"])
    return [
        *4 * [("/predict", json.dumps(body), JSON, 200, labels)],
        *4 * [(f"{PATH}&logits=true", npy(INPUTS), NPY, 200, logits)],
        (among, npy(INPUTS), NPY, 200, {"best": guess.best, "entropy": guess.entropy}),
        (PATH, npy(np.zeros((4096, FEATURES), np.float32)), NPY, 200, {"logits": None}),
        ("/tasks?limit=5", None, {}, 200, {"next": 5}),
        ("/predict", b"{", JSON, 400, {}),
        (PATH, npy(np.full((2, FEATURES), np.nan)), NPY, 422, {}),
        ("/predict?task=none", npy(INPUTS), NPY, 404, {}),
        (PATH, npy(np.zeros((4097, 1))), NPY, 413, {}),
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_load_brings_no_error_and_no_growth_and_new_tasks_are_served(direct, tmp_path):
    path = tmp_path / "tasks.store"
    direct.save(path)
    requests = requests_of(direct)

    def client(seed, seconds):
        """Some requests until then; how many were answered, and what was wrong."""
        draw, wrong, count = np.random.default_rng(seed), [], 0
        until = time.monotonic() + seconds
        with server.connect() as connection:
            while count < 4 * len(requests) or time.monotonic() < until:
                *asked, status, right = requests[draw.integers(len(requests))]
                found, answer = exchange(connection, "POST" if asked[1] else "GET", *asked)
                if found != status or not right.items() <= answer.items():
                    wrong.append((asked[0], found, str(answer)[:200]))
                count += 1
        return count, wrong

    with serving(path, "--log-level", "warning") as server, ThreadPoolExecutor(4) as pool:
        list(pool.map(client, range(4), 4 * [0]))
        start = server.memory()
        running = [pool.submit(client, seed, LOAD_SECONDS) for seed in range(4)]
        with open_store(path, progress=False) as other:
            for number in range(3):
                other.learn_task(f"late {number}", blobs(80 + number))
                asked = f"/predict?task=late%20{number}&logits=true"
                status, answer = server.ask("POST", asked, npy(INPUTS), NPY)
                assert status == 200
                assert answer["logits"] == other.logits(INPUTS, f"late {number}").tolist()
        counts, wrong = zip(*(each.result() for each in running), strict=True)
        assert server.memory() - start < GROWTH
        log = list(server.log)
        server.ends_well(signal.SIGTERM)
    assert not any(wrong), wrong
    assert sum(counts) > 10 * LOAD_SECONDS
    assert not [line for line in log if "ERROR" in line or "Traceback" in line]
