"""A server as it really runs, and its command: bytes on a socket, signals, options."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest

from conftest import INPUTS
from impresslearn.serve import run_server
from toys import npy, refused, run

PATH = "/predict?task=new%200"
HEADERS = {"Content-Type": "application/x-npy", "Authorization": "Bearer s3cret"}


class Server:
    """`impresslearn serve` on a free port, for whoever has the token s3cret."""

    def __init__(self, store, *more, python=("-m", "impresslearn", "serve")):
        options = ["--port", "0", "--max-bytes", "100000", *more]
        self.process = subprocess.Popen(
            [sys.executable, *python, str(store), *options],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"IMPRESSLEARN_TOKEN": "s3cret"},
        )
        self.log = ""
        self.port = int(self.said(r"running on http://127.0.0.1:(\d+)")[1])

    def said(self, pattern):
        """Waits until this is in its log."""
        while not (found := re.search(pattern, self.log)):
            line = self.process.stderr.readline()
            assert line, self.log
            self.log += line
        return found

    def ask(self, method, path, body=None, headers=HEADERS):
        """Status and decoded answer, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        for _ in range(100):  # a worker listens only after it has said that it is complete
            with suppress(ConnectionRefusedError):
                connection.connect()
                break
            time.sleep(0.1)
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        content = answer.status, json.loads(answer.read())
        connection.close()
        return content


@pytest.fixture(scope="module")
def server(store):
    running = Server(store)
    yield running
    running.process.kill()
    running.process.communicate()


def test_predictions_tokens_and_limits_over_a_socket(server, direct):
    server.process.send_signal(signal.SIGHUP)  # from a terminal that closes
    status, answer = server.ask("POST", PATH, npy(INPUTS))
    assert (status, answer["labels"]) == (200, direct.predict(INPUTS, "new 0").tolist())
    assert server.ask("GET", "/tasks", None, {})[0] == 401
    assert server.ask("GET", "/health", None, {})[0] == 200
    assert server.ask("POST", PATH, npy(np.zeros((4097, 1), np.int8)))[0] == 422
    large = 413, {"error": "the body is larger than the limit of 100,000 bytes"}
    for body in (bytes(4_000_000), (bytes(10_000) for _ in range(200))):
        assert server.ask("POST", PATH, body) == large
    get, endless = b"GET /health HTTP/1.1\r\nHost: a\r\n", 5 * [b"x: " + b"a" * 4000 + b"\r\n"]
    trailed = b"POST /infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    for parts in ([get, *endless], [trailed, *endless], [30 * (get + b"\r\n")]):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
            for part in parts:
                link.sendall(part)
                time.sleep(0.02)
            assert b"Invalid HTTP request received." in link.makefile("rb").read()


@pytest.mark.parametrize("workers", [1, 2])
def test_where_it_cannot_listen_the_application_is_not_started(server, store, workers):
    how = {"workers": workers, "app": "no:app", "port": server.port}
    refused(f"^port {server.port} is in use; choose another with --port$", run_server, store, **how)
    refused("^cannot listen: .*203.0.113.9", run_server, store, host="203.0.113.9", **how)


ENDLESS = """
import signal, sys
from impresslearn import load
from impresslearn.serve import run_server, server
signal.signal(signal.SIGTERM, lambda *_: None)  # as in a container's first process
def infer(self, request, infer=server.Service.infer):
    print("begun", file=sys.stderr, flush=True)
    while True:
        infer(self, request)
server.Service.infer, server.GRACE_SECONDS = infer, 1
run_server(load(sys.argv[1]), port=0)
"""


@pytest.mark.parametrize("leaves", [True, False])
def test_a_second_process_answers_alike_and_ends_whatever_it_is_computing(server, store, leaves):
    other = Server(store, python=("-c", ENDLESS))
    asking = http.client.HTTPConnection("127.0.0.1", other.port)
    try:
        assert other.ask("POST", PATH, npy(INPUTS)) == server.ask("POST", PATH, npy(INPUTS))
        asking.request("POST", "/infer", npy(INPUTS), HEADERS)
        other.said("begun")
        if leaves:
            asking.close()
        other.process.send_signal(signal.SIGTERM)
        assert "Application shutdown complete" in other.process.communicate(timeout=20)[1]
    finally:
        asking.close()
        other.process.kill()


@pytest.mark.slow
def test_workers_answer_alike_and_one_that_dies_is_replaced(store, direct):
    server = Server(store, "--workers", "2")
    wanted = direct.predict(INPUTS, "new 0").tolist()
    try:
        started = server.said(
            r"(?s)Started server process \[(\d+)\].*startup complete.*startup complete"
        )
        assert server.ask("GET", "/tasks", None, {})[0] == 401
        os.kill(int(started[1]), signal.SIGKILL)
        for _ in range(20):
            status, answer = server.ask("POST", PATH, npy(INPUTS))
            assert (status, answer["labels"]) == (200, wanted)
    finally:
        server.process.kill()  # which no process can forward to its workers
        log = server.log + server.process.communicate(timeout=30)[1]  # until workers end, too
        assert not re.search("Traceback|s3cret", log)


def test_every_option_arrives_and_defaults_are_the_librarys(store, monkeypatch):
    calls = []

    def served(_, **settings):
        calls.append({**settings, "app": None})

    monkeypatch.setattr("impresslearn.serve.run_server", served)
    monkeypatch.setenv("IMPRESSLEARN_TOKEN", "x")
    run("serve", store)
    changes = "--host 127.0.0.2 --port 9 --token abc --max-bytes 5 --workers 3"
    run("serve", store, *changes.split())
    usual = {**run_server.__kwdefaults__, "token": "x"}
    given = {"host": "127.0.0.2", "port": 9, "token": "abc", "max_bytes": 5, "workers": 3}
    assert calls == [usual, {**given, "app": None}]
