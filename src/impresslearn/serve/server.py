"""Runs an app with uvicorn until SIGTERM or SIGINT, and ends well.

uvicorn bounds neither the time that a request's headers take nor, with its default parser, their
length. `PatientProtocol` adds the first to its h11 protocol, which limits the second to 64 KiB.
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
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _leave)  # uvicorn raises the signal again at its end
        app = create_app(source, settings)
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
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


class PatientProtocol(H11Protocol):
    """Closes a connection that takes more than `HEADER_SECONDS` to bring a request's headers."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # asyncio does so only for sockets that it has made itself; else every answer takes 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

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


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise InputError(f"cannot listen on {host}:{port}: {reason}") from None


def announce(listener: socket.socket, settings: ServeSettings) -> None:
    """Says where the server is, and warns where anybody may ask it."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
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
