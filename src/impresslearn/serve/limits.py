"""How much a request may take: bytes, all requests' bytes together, and seconds.

Bodies are counted while they arrive, so a wrong or missing Content-Length changes nothing, and
answers until they are read. What a refused request still sends is read and dropped for a moment, so
that the client gets to see the refusal, and then the connection is closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from fastapi import Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from impresslearn.serve.errors import RequestError

LINGER_SECONDS = 1.0
PIECE = 64 * 1024


class Room:
    """The bytes of bodies and answers that all requests may hold; used by one event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @contextmanager
    def hold(self) -> Iterator[Share]:
        """A share for one request, given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            self.used -= share.used


class Share:
    """One request's part of a `Room`."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.used = 0

    def take(self, count: int) -> None:
        """Counts so many bytes more. Raises RequestError (503) where there is no room left."""
        if self._room.used + count > self._room.limit:
            raise RequestError(503, "busy: too many large requests at once", {"Retry-After": "1"})
        self._room.used += count
        self.used += count


class HeldAnswer(Response):
    """A JSON answer sent piece by piece; `held` is closed once the client has taken all of it."""

    media_type = "application/json"

    def __init__(self, content: bytes, held: ExitStack) -> None:
        super().__init__(content)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            for at in range(0, len(self.body), PIECE):
                piece = bytes(self.body[at : at + PIECE])
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})  # waits for the last piece


async def read_body(request: Request, share: Share, limit: int, seconds: float) -> bytearray:
    """A request's body. RequestError: 413 above `limit` bytes, 408 after `seconds`, 503 if full."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit)
    try:
        return await asyncio.wait_for(_read(request, share, limit), seconds)
    except asyncio.TimeoutError:
        raise RequestError(408, f"the body did not arrive within {seconds:g} seconds") from None


async def _read(request: Request, share: Share, limit: int) -> bytearray:
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise _too_large(limit)
        share.take(len(chunk))
        body += chunk
    return body


def _too_large(limit: int) -> RequestError:
    return RequestError(413, f"the body is larger than the limit of {limit:,} bytes")


class Lingering:
    """ASGI middleware: an answer that comes before the end of the body is still delivered.

    Closing a connection on which data are unread resets it, and the client may lose the answer. So
    the rest of the body is dropped for up to `LINGER_SECONDS`; a longer one ends the connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self.app(scope, receive, send)
            return
        ended = asked = False

        async def receive_and_note() -> Message:
            nonlocal ended, asked
            asked = True
            message = await receive()
            ended = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        async def drop_rest() -> None:
            until = time.monotonic() + LINGER_SECONDS
            while not ended and (left := until - time.monotonic()) > 0:
                try:
                    await asyncio.wait_for(receive_and_note(), left)
                except asyncio.TimeoutError:
                    return

        async def send_after_body(message: Message) -> None:
            if message["type"] == "http.response.start" and not ended:
                if asked or not _waits(scope):
                    await drop_rest()
                if not ended:
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self.app(scope, receive_and_note, send_after_body)


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip() != b"0"


def _waits(scope: Scope) -> bool:
    """Whether the client sends its body only after the server has asked for it."""
    return b"expect" in dict(scope["headers"])
