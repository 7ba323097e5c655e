"""Every error as a status and one line: {"error": "..."}.

`RequestError` is what this package raises itself. The library's errors keep their line and get the
status of their kind; anything unforeseen is logged and answered with 500 and no detail.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from impresslearn.errors import ImpressLearnError, InputError, StoreError, UnknownTaskError, visible

logger = logging.getLogger("impresslearn.serve")

LONGEST_LINE = 500
STATUSES: tuple[tuple[type[ImpressLearnError], int], ...] = (
    (UnknownTaskError, 404),
    (StoreError, 503),
    (InputError, 422),
)
"""Kinds of the library's errors -> status, most special first; any other kind is a 500."""


class RequestError(Exception):
    """A request that is not answered: a status, one line, and headers that go with them."""

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(line)
        self.status = status
        self.headers = headers


def add_refusals(app: FastAPI) -> None:
    """Makes an app answer every error with {"error": one line}."""
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(ImpressLearnError, _library_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unforeseen)


def first_problem(problems: Sequence[Mapping[str, Any]]) -> str:
    """One line about the most exact of pydantic's complaints."""
    problem = max(problems, key=lambda each: len(each["loc"]))
    parts = [str(part) for part in problem["loc"] if part not in ("query", "body")]
    # What is no name and no position says which of several types was tried.
    where = ".".join(part for part in parts if part.isidentifier() or part.isdecimal())
    return f"{where or 'request'}: {problem['msg']}"


def one_line(text: str) -> str:
    """A text as one short line of visible characters; others are written as Python writes them."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _answer(status: int, line: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": one_line(line)}, status, headers=dict(headers or {}))


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    return _answer(error.status, str(error), error.headers)


async def _library_error(request: Request, error: Exception) -> JSONResponse:
    for kind, status in STATUSES:
        if isinstance(error, kind):
            if status >= 500:
                logger.error("%s: %s", request.url.path, one_line(str(error)))
            return _answer(status, str(error))
    logger.error("%s failed", request.url.path, exc_info=error)
    return await _unforeseen(request, error)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return _answer(422, first_problem(error.errors()))


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}"
    line = {404: f"there is no {what}; see /docs", 405: f"{what} is not allowed; see /docs"}
    return _answer(error.status_code, line.get(error.status_code, error.detail), error.headers)


async def _gone(_: Request, error: Exception) -> JSONResponse:
    return _answer(400, "the connection ended before the body did")  # nobody reads it


async def _unforeseen(_: Request, error: Exception) -> JSONResponse:
    # The server below the app logs the traceback: the error reaches it after this answer.
    return _answer(500, "the server failed on this request; its log says why")
