"""A server as it really runs, and its command: bytes on a socket, signals, load, options.

IMPRESSLEARN_LOAD_SECONDS: how long the load lasts (5).
"""

from __future__ import annotations

import http.client
import importlib
import json
import logging
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from serving import JSON, NPY, exchange, npy, serving
from typer.testing import CliRunner

from impresslearn.cli.app import app
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.serve import ServeSettings, run_server
from impresslearn.serve.server import JsonLines, _peer, announce, with_loopback_hosts
from toys import FEATURES, blobs

LOAD_SECONDS = float(os.environ.get("IMPRESSLEARN_LOAD_SECONDS", "5"))
GROWTH = 24 * 2**20
"""Bytes by which a server may grow under load: what allocators keep."""
PATH = "/predict?task=new%200"
HEAD = f"POST {PATH}&logits=true HTTP/1.1\r\nHost: localhost\r\n".encode()
BINARY = b"Content-Type: application/x-npy\r\n"
MANY = npy(np.random.default_rng(0).integers(-128, 128, (4096, FEATURES), dtype=np.int8))
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


def test_bytes_that_are_no_request(server):
    for content in (b"nonsense\r\n\r\n", b"GET /health HTTP/1.1\r\nX: " + 200_000 * b"x"):
        with suppress(ConnectionError):  # closed while we were still sending
            assert raw(server, content)[0].startswith("HTTP/1.1 400")


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


ADDRESSES = [
    ("127.0.0.2", "127.0.0.2", None, "a.b localhost 127.0.0.1 [::1] 127.0.0.2", False),
    ("me", "127.0.1.1", None, "a.b localhost 127.0.0.1 [::1] me 127.0.1.1", False),
    ("::1", "::1", None, "a.b localhost 127.0.0.1 [::1]", False),
    ("me", "10.0.0.1", "s3cret", "a.b", False),
    ("::", "::", None, "a.b", True),
]


@pytest.mark.parametrize(("host", "address", "token", "served", "warned"), ADDRESSES)
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


def test_an_address_that_cannot_be_used_is_one_line(server, store):
    taken = ("127.0.0.1", server.port, "Address already in use")
    for host, port, line in (taken, ("no such host", 0, ""), ("127.0.0.1", 99999, "")):
        with pytest.raises(InputError, match=f"cannot listen on {host}:{port}: .*{line}"):
            run_server(store, host=host, port=port)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_load_brings_no_error_and_no_growth(server, direct):
    """Requests of every kind, malformed ones too, by four clients at once."""
    mixed = ["new 0", "basis 1", "pets/at home?", "new 1"] * 2
    body = json.dumps({"inputs": INPUTS.tolist(), "task": mixed})
    requests = [
        ("/predict", body, JSON, 200, {"labels": direct.predict(INPUTS, mixed).tolist()}),
        (
            f"{PATH}&logits=true",
            npy(INPUTS),
            NPY,
            200,
            {"logits": direct.logits(INPUTS, "new 0").tolist()},
        ),
        ("/infer", npy(INPUTS), NPY, 200, {"entropy": direct.infer_task(INPUTS).entropy}),
        (PATH, MANY, NPY, 200, {"logits": None}),
        ("/tasks?limit=5", None, {}, 200, {"next": 5}),
        ("/predict", b"{", JSON, 400, {}),
        ("/predict?task=none", npy(INPUTS), NPY, 404, {}),
        (PATH, npy(np.zeros((4097, 1))), NPY, 413, {}),
    ]

    def ask(seconds):
        """Asks until then; returns what went wrong."""
        until, wrong = time.monotonic() + seconds, []
        with server.connect() as connection:
            while time.monotonic() < until:
                for path, body, kind, status, right in requests:
                    method = "POST" if body else "GET"
                    found, answer = exchange(connection, method, path, body, kind | ALLOWED)
                    if found != status or not right.items() <= answer.items():
                        wrong.append((path, found, str(answer)[:200]))
        return wrong

    for seconds in (1, LOAD_SECONDS):  # allocators keep what they took first
        start = server.memory()
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, 4 * [seconds])) == [[]] * 4
    assert server.memory() - start < GROWTH
    assert not [line for line in server.log if "ERROR" in line or "Traceback" in line]


# The command


def run(*arguments, **environment):
    return CliRunner().invoke(app, ["serve", *arguments], env=environment)


def test_every_option_arrives_and_defaults_are_the_librarys(monkeypatch):
    made = []
    monkeypatch.setattr(
        "impresslearn.serve.run_server", lambda *given, **how: made.append((*given, how))
    )
    numbers = "max_bytes max_rows max_inference_tasks max_tasks max_memory max_peer_connections"
    given = {name: 5 + place for place, name in enumerate([*numbers.split(), "threads"])}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    rest = "--host 127.0.0.2 --port 9 --token abc --log-level error --json"
    rest += " --allow-host a --allow-host b"
    for more in ((), (*options, *rest.split())):
        assert run("tasks.store", *more, IMPRESSLEARN_TOKEN="x").exit_code == 0
    path, settings = Path("tasks.store"), ServeSettings(token="abc", hosts=("a", "b"), **given)
    place = {"host": "127.0.0.2", "port": 9, "log_level": "error", "json_log": True}
    usual = {"host": "127.0.0.1", "port": 8000, "log_level": "info", "json_log": False}
    assert made == [(path, ServeSettings(token="x"), usual), (path, settings, place)]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("", "Missing argument"),
        ("a --port 65536", "'--port'"),
        ("a --threads 0", "'--threads'"),
        ("no-store --port 0", "there is no store"),
        ("no-store --log-level loud", "log_level must be one of critical, error"),
    ],
)
def test_unusable_arguments_are_refused(arguments, line):
    result = run(*arguments.split())
    assert result.exit_code in (1, 2)
    assert line in result.output + str(result.exception)


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_missing_package_is_named(monkeypatch, missing):
    for module in [name for name in sys.modules if name.startswith("impresslearn.serve")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingDependencyError, match="pip install 'impresslearn"):
        importlib.import_module("impresslearn.serve")


def test_a_log_for_machines_has_an_object_a_line(capsys):
    class Listener:
        def getsockname(self):
            return "127.0.0.1", 8000

    announce(Listener(), ServeSettings(), json_log=True)
    assert json.loads(capsys.readouterr().err) == {"url": "http://127.0.0.1:8000"}
    line = logging.LogRecord("impresslearn.serve", logging.INFO, "", 0, 'a "b"\n%s', ("c",), None)
    told = json.loads(JsonLines().format(line))
    assert (told["level"], told["message"]) == ("INFO", 'a "b"\nc')
    assert datetime.fromisoformat(told["time"]).tzinfo is not None
