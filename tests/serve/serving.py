"""A server as a process of its own, and clients for it that end by themselves.

Everything stays on 127.0.0.1; every loop is bounded in number and in time.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

START_SECONDS = 60
JSON = {"Content-Type": "application/json"}
NPY = {"Content-Type": "application/x-npy"}


def npy(values: Any) -> bytes:
    """An array as an .npy file."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(values))
    return stream.getvalue()


@dataclass(frozen=True)
class Request:
    """A request and the status that it must get; `check` sees the decoded answer."""

    kind: str
    method: str
    path: str
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Any], bool] = lambda _: True


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen
    port: int
    log: list[str]

    def ask(self, request: Request, timeout: float = 30) -> tuple[int, Any]:
        """Status and decoded answer, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            return exchange(connection, request)
        finally:
            connection.close()

    def stop(self, number: int) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def memory(self) -> int:
        """Bytes of the process in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return 1024 * int(found[1])


def exchange(connection: http.client.HTTPConnection, request: Request) -> tuple[int, Any]:
    """One request over an open connection."""
    connection.request(request.method, request.path, request.body or None, dict(request.headers))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@contextmanager
def serving(
    store: Path, *options: str, code: str | None = None, **environment: str
) -> Iterator[Server]:
    """`impresslearn serve` on a free port of 127.0.0.1; killed at the end if still there.

    code: run this with the store as its argument instead.
    """
    command = ["-m", "impresslearn", "serve", str(store), "--port", "0", *options]
    process = subprocess.Popen(
        [sys.executable, *(command if code is None else ("-c", code, str(store)))],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    log: list[str] = []
    started = threading.Event()

    def read_log() -> None:
        for line in process.stderr or ():
            log.append(line.rstrip())
            if "serving on" in line:
                started.set()
        started.set()

    reader = threading.Thread(target=read_log, daemon=True)
    reader.start()
    try:
        assert started.wait(START_SECONDS), log
        ports = [found[1] for line in log if (found := re.search(r"serving on \S+:(\d+),", line))]
        assert ports, log
        yield Server(process, int(ports[0]), log)
    finally:
        process.kill()
        process.wait()
        reader.join(timeout=10)


@dataclass
class Figures:
    """What a load showed."""

    requests: int
    wrong: list[str]
    by_kind: dict[str, int]
    seconds: float
    p50: float
    p99: float
    memory_start: int
    memory_end: int

    def line(self) -> str:
        """For a person."""
        return (
            f"{self.requests} requests in {self.seconds:.0f} s ({self.by_kind}), "
            f"{len(self.wrong)} wrong, p50 {1000 * self.p50:.1f} ms, p99 {1000 * self.p99:.1f} ms, "
            f"RSS {self.memory_start / 2**20:.1f} -> {self.memory_end / 2**20:.1f} MiB"
        )


class Load:
    """Clients that repeat requests, in an order of their own, until time or count is over."""

    def __init__(self, server: Server, requests: Sequence[Request], seconds: float) -> None:
        self.server = server
        self.requests = requests
        self.seconds = seconds
        self.most = 200_000
        self.wrong: list[str] = []
        self.taken: list[tuple[str, float]] = []

    def run(self, clients: int = 4, meanwhile: Callable[[], None] = lambda: None) -> Figures:
        """Memory counts from when every client has sent every request; `meanwhile` runs then."""
        warm = threading.Barrier(clients + 1)
        threads = [
            threading.Thread(target=self._client, args=(number, warm), daemon=True)
            for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        warm.wait(120)
        self.taken.clear()
        memory, start = self.server.memory(), time.monotonic()
        warm.wait(120)
        meanwhile()
        for thread in threads:
            thread.join(self.seconds + 60)
            assert not thread.is_alive()
        times = [seconds for _, seconds in self.taken]
        cuts = statistics.quantiles(times, n=100)
        return Figures(
            len(times), self.wrong, dict(Counter(kind for kind, _ in self.taken)),
            time.monotonic() - start, cuts[49], cuts[98], memory, self.server.memory(),
        )  # fmt: skip

    def _client(self, seed: int, warm: threading.Barrier) -> None:
        draw = np.random.default_rng(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            for request in self.requests:
                self._one(connection, request)
            warm.wait(120)
            warm.wait(120)
            until = time.monotonic() + self.seconds
            for _ in range(self.most):
                if time.monotonic() > until or len(self.wrong) > 20:
                    return
                self._one(connection, self.requests[draw.integers(len(self.requests))])
        finally:
            connection.close()

    def _one(self, connection: http.client.HTTPConnection, request: Request) -> None:
        start = time.perf_counter()
        try:
            status, answer = exchange(connection, request)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.wrong.append(f"{request.kind}: {error!r}")
            connection.close()
            return
        self.taken.append((request.kind, time.perf_counter() - start))
        if status != request.status or not request.check(answer):
            self.wrong.append(f"{request.kind}: {status} {str(answer)[:200]}")
