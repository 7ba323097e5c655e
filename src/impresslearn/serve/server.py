"""Runs an app with uvicorn until SIGTERM or SIGINT, and ends well.

uvicorn bounds the length of a request's headers (with its h11 protocol, 64 KiB), but not how long
they take, nor how long a client takes to read an answer, nor how many connections one client holds.
`BoundedProtocol` adds these three.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.serve.app import create_app
from impresslearn.serve.settings import ServeSettings

logger = logging.getLogger("impresslearn.serve")

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
HEADER_SECONDS = 10.0
MOST_CONNECTIONS = 256
GRACE_SECONDS = 10


def run_server(
    source: str | os.PathLike | ImpressLearner,
    settings: ServeSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "info",
) -> None:
    """Serves a store or a learner (see `create_app`) and returns when it was told to stop.

    port: 0 takes a free one; the log names it. Requests under way are finished first, for up to
    ten seconds. Raises InputError for an address or level that cannot be used, StoreError for a
    store that cannot be opened.
    """
    if log_level not in LOG_LEVELS:
        raise InputError(f"log_level must be one of {', '.join(LOG_LEVELS)}, got {log_level!r}")
    settings = settings or ServeSettings()
    with _listening(host, port) as listener:
        settings = with_own_names(settings, host, listener.getsockname()[0])
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _leave)  # uvicorn raises the signal again at its end
        app = create_app(source, settings)
        config = uvicorn.Config(
            app,
            http=_protocol(settings),
            ws="none",
            lifespan="on",
            log_config=_logging(log_level),
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        announce(listener, settings)
        with suppress(KeyboardInterrupt):  # so uvicorn ends after SIGINT, when all is done
            uvicorn.Server(config).run(sockets=[listener])


class BoundedProtocol(H11Protocol):
    """Ends connections whose clients take too long, or hold too many.

    A request's headers have `HEADER_SECONDS`, and an answer, once part of it does not fit into the
    kernel's buffers, has `answer_seconds` until all of it does.
    """

    settings: ServeSettings
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # asyncio does so only for sockets that it has made itself; else every answer takes 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(0)  # writing pauses while anything is left to be sent
        self._watch()
        peer = _peer(self.client)
        all_peers = [_peer(e.client) for e in self.connections if isinstance(e, BoundedProtocol)]
        if all_peers.count(peer) > self.settings.max_peer_connections:
            logger.warning("%s holds too many connections; refused one", peer)
            transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.settings.answer_seconds, self._drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self._all_read()

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._all_read()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()
        self._all_read()

    def _watch(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _all_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _drop(self) -> None:
        seconds = self.settings.answer_seconds
        logger.warning("%s did not read its answer in %g seconds", _peer(self.client), seconds)
        self.transport.abort()  # close() would wait until all is read


def _protocol(settings: ServeSettings) -> type[BoundedProtocol]:
    return type("Protocol", (BoundedProtocol,), {"settings": settings})


def _peer(client: tuple[str, int] | None) -> str:
    """Who is at the other end: an IPv4 address, or an IPv6 network, which has 2**64 of them."""
    host = (client or ("",))[0].partition("%")[0]
    return str(ipaddress.ip_network(f"{host}/64", strict=False)) if ":" in host else host


def with_own_names(settings: ServeSettings, host: str, address: str) -> ServeSettings:
    """The settings of a server on this address; on loopback, hosts name this machine too.

    A page on the web can have its own name resolved to 127.0.0.1, and would then be let in.
    """
    if not ipaddress.ip_address(address).is_loopback:
        return settings
    own = ("localhost", "127.0.0.1", "[::1]", _shown(address), *([] if ":" in host else [host]))
    return replace(settings, hosts=tuple(dict.fromkeys((*settings.hosts, *own))))


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise InputError(f"cannot listen on {host}:{port}: {reason}") from None


def _shown(address: str) -> str:
    """An address as it stands in a URL and in a Host header."""
    return f"[{address}]" if ":" in address else address


def announce(listener: socket.socket, settings: ServeSettings) -> None:
    """Says where the server is, and warns where anybody may ask it."""
    host, port = listener.getsockname()[:2]
    shown = _shown(host)
    address = f"http://{shown}:{port}"
    print(f"serving on {address}, documented at {address}/docs", file=sys.stderr, flush=True)
    if settings.token is None and not ipaddress.ip_address(host).is_loopback:
        logger.warning(
            "anybody who can reach %s:%d may ask; set a token in IMPRESSLEARN_TOKEN", shown, port
        )


def _logging(level: str) -> dict[str, Any]:
    """One line an event on stderr."""
    own = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {"uvicorn": own, "uvicorn.access": own, "impresslearn.serve": own},
    }


def _leave(*_: object) -> None:
    raise SystemExit(0)
