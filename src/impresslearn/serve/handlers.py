"""Where requests are worked on: which thread, and with how many at a time.

Bodies are read on the event loop; parsing and computing run in a pool of `threads` workers, so that
no more than so many views of the network exist. Looking things up has a thread of its own and never
waits for predictions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from fastapi import Request, Response
from pydantic import BaseModel

from impresslearn.learner import ImpressLearner
from impresslearn.serve.bodies import JSON, media_type
from impresslearn.serve.limits import HeldAnswer, Room, read_body
from impresslearn.serve.service import Service
from impresslearn.serve.settings import ServeSettings


class Desk:
    """A learner's `service`, and the threads that it is asked in."""

    def __init__(self, learner: ImpressLearner, settings: ServeSettings) -> None:
        self.service = Service(learner, settings)
        self.settings = settings
        self._room = Room(settings.waiting_bytes)
        self._predicting = ThreadPoolExecutor(settings.threads, "predict")
        self._looking_up = ThreadPoolExecutor(1, "look-up")

    async def look_up(self, work: Callable[[], BaseModel]) -> Response:
        """The answer of `work`."""
        return Response(await _run(self._looking_up, work), media_type=JSON)

    async def with_body(
        self, request: Request, work: Callable[[bytearray, str], BaseModel]
    ) -> Response:
        """The answer of work(body, media type); the body is read first."""
        headers = request.headers
        kind = media_type(headers.get("content-type", ""), headers.get("content-encoding", ""))
        with self._room.hold() as share:
            limit, seconds = self.settings.max_bytes, self.settings.body_seconds
            body = await read_body(request, share, limit, seconds)
            content = await _run(self._predicting, partial(work, body, kind))
        with ExitStack() as held:
            held.enter_context(self._room.hold()).take(len(content))
            return HeldAnswer(content, held.pop_all())

    def close(self) -> None:
        """Waits for what is being computed; what is still waiting is dropped."""
        for pool in (self._predicting, self._looking_up):
            pool.shutdown(cancel_futures=True)


async def _run(pool: ThreadPoolExecutor, work: Callable[[], BaseModel]) -> bytes:
    """The answer of `work`, as JSON that was written in the same thread."""

    def answer() -> bytes:
        try:
            return work().model_dump_json().encode()
        except StopIteration as error:  # which no future can hold: the request would never end
            raise RuntimeError("an iterator ended early") from error

    return await asyncio.get_running_loop().run_in_executor(pool, answer)
