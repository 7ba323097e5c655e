"""A server as a process of its own on 127.0.0.1, and requests for it; everything ends by itself."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toys import blobs

JSON = {"Content-Type": "application/json"}
ROWS = blobs(50)[0][:2].tolist()
NPY = {"Content-Type": "application/x-npy"}


def npy(values: Any) -> bytes:
    """An array as an .npy file."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(values))
    return stream.getvalue()


def problem(answer, status):
    """The line of an error, after checking its form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    line = answer.json()["error"]
    assert line.isprintable()
    assert "Traceback" not in line
    return line


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen
    port: int
    log: list[str]

    @contextmanager
    def connect(self, timeout: float = 30) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            yield connection
        finally:
            connection.close()

    def ask(self, *request: Any) -> tuple[int, Any]:
        """Status and decoded answer, over a connection of its own: method, path, body, headers."""
        with self.connect() as connection:
            return exchange(connection, *request)

    def ends_well(self, number: int) -> None:
        """Ends it by a signal while a connection is open."""
        with self.connect() as connection:
            assert exchange(connection, "GET", "/health")[0] == 200
            self.process.send_signal(number)
            assert self.process.wait(30) == 0
        assert "Traceback" not in "\n".join(self.log)

    def memory(self) -> int:
        """Bytes of the process in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


def exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body=None, headers=None
) -> tuple[int, Any]:
    """Status and decoded answer of one request over an open connection."""
    connection.request(method, path, body, dict(headers or {}))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@contextmanager
def serving(
    store: Path, *options: str, code: str | None = None, **environment: str
) -> Iterator[Server]:
    """`impresslearn serve` on a free port; killed at the end if still there.

    code: run this with the store as its argument instead.
    """
    command = ["-m", "impresslearn", "serve", str(store), "--port", "0", *options]
    process = subprocess.Popen(
        [sys.executable, *(["-c", code, str(store)] if code else command)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    server = Server(process, 0, [])
    started = threading.Event()

    def read_log() -> None:
        for line in process.stderr or ():
            server.log.append(line.rstrip())
            if found := re.search(r"serving on \S+:(\d+),", line):
                server.port = int(found[1])
                started.set()
        started.set()

    reader = threading.Thread(target=read_log, daemon=True)
    reader.start()
    try:
        started.wait(60)
        assert server.port, server.log
        yield server
    finally:
        process.kill()
        process.wait()
        reader.join(timeout=10)
