"""The settings of a server, and the middleware that bounds the bytes and seconds of requests.

Bodies are counted while they arrive, so a wrong or missing Content-Length changes nothing, and
answers until they are read. What a refused request still sends is read and dropped for a moment, so
that the client gets to see the refusal, and then the connection is closed.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from impresslearn.errors import InputError
from impresslearn.serve.errors import first_problem

LINGER_SECONDS = 1.0
PIECE = 64 * 1024

Count = Annotated[int, Field(ge=1, strict=True)]
Seconds = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Host = Annotated[str, Field(pattern=r"^([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])$")]
Token = Annotated[str, Field(pattern=r"^[!-~]+$")]  # what may stand in a header, without spaces


class ServeSettings(BaseModel):
    """Limits of a server; InputError for one that cannot be kept.

    token: what requests must bring as `Authorization: Bearer TOKEN`, except for /health; None lets
    everybody ask. hosts: what a request's Host header may name, ports aside; `run_server` adds the
    names of this machine where it listens on loopback, and none at all means any elsewhere.
    allow_changes: whether requests may restore versions of tasks and remove tasks, which needs a
    token.
    max_bytes: of a request's body. max_rows: inputs in one request. max_tasks: that one mixed batch
    may name. max_inference_tasks: that one inference may choose among. max_memory: bytes that a
    request's activations, its logits, or the tasks of an inference (these at most 200 MB) may each
    take, as estimated beforehand. max_peer_connections: that one address (of IPv6: one /64 network)
    may hold at a time, of 256 in all; a reverse proxy is one address, so give it as many as it may
    open. threads: predictions that are computed at a time; each has its own view of the network.
    body_seconds, answer_seconds: in which a request's body must have arrived, and an answer must
    have been read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: Token | None = Field(default=None, repr=False)
    hosts: tuple[Host, ...] = ()
    allow_changes: bool = False
    max_bytes: Count = 16 * 1024**2
    max_rows: Count = 4096
    max_tasks: Count = 256
    max_inference_tasks: Count = 10_000
    max_memory: Count = 4 * 1024**3
    max_peer_connections: Count = 64
    threads: Count = 2
    body_seconds: Seconds = 30.0
    answer_seconds: Seconds = 30.0

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(first_problem(error.errors())) from None
        if self.allow_changes and self.token is None:
            raise InputError("a server that allows changes needs a token, which its clients bring")

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all bodies and unread answers that are held at one moment: of eight requests of
        the largest size beside those that are computed."""
        return (8 + self.threads) * self.max_bytes


class RequestLimits:
    """ASGI middleware that bounds requests; `held` are the bytes of all bodies and answers now.

    A route may call `request.state.hold(count)`: from then on the request holds so many bytes.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.app = app
        self.settings = settings
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, receive, send)
        scope.setdefault("state", {})["hold"] = exchange.hold
        try:
            await self.app(scope, exchange.receive, exchange.send)
        finally:
            exchange.hold(0)


class _Exchange:
    """A request and its answer."""

    def __init__(self, limits: RequestLimits, scope: Scope, receive: Receive, send: Send) -> None:
        self._limits, self._receive, self._send = limits, receive, send
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0").strip()
        self._declared = int(length[:20]) if length.isdigit() else 0
        # Whether the client sends its body only after the server has asked for it.
        self._waits = b"expect" in headers
        self._ended = b"transfer-encoding" not in headers and length == b"0"
        self._deadline = time.monotonic() + limits.settings.body_seconds
        self._size = self._held = 0

    def hold(self, count: int) -> None:
        """Counts so many bytes for this request. HTTPException (503) where there is no room."""
        others = self._limits.held - self._held
        if count and others + count > self._limits.settings.waiting_bytes:
            raise HTTPException(503, "busy: too many large requests at once", {"Retry-After": "1"})
        self._limits.held, self._held = others + count, count

    async def receive(self) -> Message:
        """A part of the body. HTTPException: 413 if it is too large, 408 if late, 503 if full."""
        if self._ended:
            return await self._receive()
        limit, seconds = self._limits.settings.max_bytes, self._limits.settings.body_seconds
        too_large = HTTPException(413, f"the body is larger than the limit of {limit:,} bytes")
        if self._declared > limit:
            raise too_large
        try:
            message = await asyncio.wait_for(self._next(), self._deadline - time.monotonic())
        except asyncio.TimeoutError:
            line = f"the body did not arrive within {seconds:g} seconds"
            raise HTTPException(408, line) from None
        self._size += len(message.get("body", b""))
        if self._size > limit:
            raise too_large
        self.hold(self._size)
        return message

    async def send(self, message: Message) -> None:
        """Sends large bodies piece by piece: each waits until the client has read what was sent.

        Closing a connection on which data are unread resets it, and the client may lose the answer.
        So the rest of a body is dropped first; a longer one ends the connection.
        """
        if message["type"] == "http.response.start" and not self._ended:
            if not self._waits:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._drop_rest(), LINGER_SECONDS)
            if not self._ended:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        body = message.get("body", b"")
        if len(body) > PIECE:
            for start in range(0, len(body), PIECE):
                piece = bytes(body[start : start + PIECE])
                await self._send({**message, "body": piece, "more_body": True})
            message = {**message, "body": b""}
        await self._send(message)

    async def _next(self) -> Message:
        self._waits = False
        message = await self._receive()
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def _drop_rest(self) -> None:
        while not self._ended:
            await self._next()
