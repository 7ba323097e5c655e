"""Runs an app with uvicorn until SIGTERM or SIGINT, and ends well.

uvicorn bounds the length of a request's headers (with its h11 protocol, 64 KiB), but not how long
they take, nor how long a client takes to read an answer, nor how many connections one client holds.
`BoundedProtocol` adds these three.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone
from math import inf
from typing import Any, Literal, get_args

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from impresslearn.checks import check_choice
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.serve.app import create_app
from impresslearn.serve.limits import ServeSettings

logger = logging.getLogger("impresslearn.serve")

LogLevel = Literal["critical", "error", "warning", "info", "debug"]
HEADER_SECONDS = 10.0
CHECK_SECONDS = 0.25
MOST_CONNECTIONS = 256
GRACE_SECONDS = 10


def run_server(
    source: str | os.PathLike | ImpressLearner,
    settings: ServeSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: LogLevel = "info",
    json_log: bool = False,
) -> None:
    """Serves a store or a learner (see `create_app`) and returns when it was told to stop.

    port: 0 takes a free one; the log names it. json_log: whether each line of the log is a JSON
    object. Requests under way are finished first, for up to ten seconds. Raises InputError for an
    address or level that cannot be used, StoreError for a store that cannot be opened.
    """
    check_choice("log_level", log_level, get_args(LogLevel))
    with _listening(host, port) as listener:
        settings = with_loopback_hosts(settings or ServeSettings(), host, listener.getsockname()[0])
        if threading.current_thread() is threading.main_thread():
            # uvicorn raises the signal again at its end
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        handler = logging.StreamHandler()
        plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
        handler.setFormatter(JsonLines() if json_log else plain)
        logging.basicConfig(handlers=[handler])
        logger.setLevel(log_level.upper())
        config = uvicorn.Config(
            create_app(source, settings),
            http=type("Protocol", (BoundedProtocol,), {"settings": settings}),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level=log_level,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        announce(listener, settings, json_log)
        with suppress(KeyboardInterrupt):  # so uvicorn ends after SIGINT, when all is done
            uvicorn.Server(config).run(sockets=[listener])


class JsonLines(logging.Formatter):
    """Writes each line of the log as a JSON object: time (UTC), level, message."""

    def format(self, record: logging.LogRecord) -> str:
        message = super().format(record)
        moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat()
        return json.dumps({"time": moment, "level": record.levelname, "message": message})


class BoundedProtocol(H11Protocol):
    """Ends connections whose clients take too long, or hold too many.

    A request's headers have `HEADER_SECONDS`, and an answer has `answer_seconds` until all of it
    was read, but for what fits into the kernel's buffers.
    """

    settings: ServeSettings
    _waits_for: tuple[str, Any] = ("", None)
    _since: float
    _check_again: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peers = [_peer(getattr(each, "client", None)) for each in self.connections]
        if peers.count(peer := _peer(self.client)) > self.settings.max_peer_connections:
            logger.warning("%s holds too many connections; refused one", peer)
            transport.abort()
        else:
            self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._check_again is not None:
            self._check_again.cancel()

    def _check(self) -> None:
        """Looks four times a second what the connection waits for, and since when."""
        self._check_again = self.loop.call_later(CHECK_SECONDS, self._check)
        cycle = self.cycle
        complete = cycle is None or cycle.response_complete
        if complete and not self.transport.get_write_buffer_size():
            state, seconds = "request", HEADER_SECONDS
        elif complete or cycle.response_started:
            state, seconds = "reader", self.settings.answer_seconds
        else:
            state, seconds = "answer", inf
        now = time.monotonic()
        if self._waits_for != (state, cycle):
            self._waits_for, self._since = (state, cycle), now
        elif now - self._since > seconds and state == "request":
            self.transport.close()
        elif now - self._since > seconds:
            logger.warning("%s did not read its answer in %g seconds", _peer(self.client), seconds)
            self.transport.abort()  # close() would wait until all is read


def _peer(client: tuple[str, int] | None) -> str:
    """Who is at the other end: an IPv4 address, or an IPv6 network, which has 2**64 of them."""
    host = (client or ("",))[0].partition("%")[0]
    return str(ipaddress.ip_network(f"{host}/64", strict=False)) if ":" in host else host


def with_loopback_hosts(settings: ServeSettings, host: str, address: str) -> ServeSettings:
    """The settings of a server on this address; on loopback, hosts name this machine too.

    A page on the web can have its own name resolved to 127.0.0.1, and would then be let in.
    """
    if not ipaddress.ip_address(address).is_loopback:
        return settings
    names = ("localhost", "127.0.0.1", "[::1]", _in_url(address), *([] if ":" in host else [host]))
    hosts = tuple(dict.fromkeys((*settings.hosts, *names)))
    return settings.model_copy(update={"hosts": hosts})


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise InputError(f"cannot listen on {host}:{port}: {reason}") from None
    # asyncio does so only for sockets that it has made itself; else every answer takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def announce(listener: socket.socket, settings: ServeSettings, json_log: bool = False) -> None:
    """Says where the server is, and warns where anybody may ask it."""
    host, port = listener.getsockname()[:2]
    address = f"http://{_in_url(host)}:{port}"
    line = f"serving on {address}, documented at {address}/docs"
    print(json.dumps({"url": address}) if json_log else line, file=sys.stderr, flush=True)
    if settings.token is None and not ipaddress.ip_address(host).is_loopback:
        line = "anybody who can reach %s may ask; set a token in IMPRESSLEARN_TOKEN"
        logger.warning(line, address)


def _in_url(address: str) -> str:
    """An address as it stands in a URL and in a Host header."""
    return f"[{address}]" if ":" in address else address
