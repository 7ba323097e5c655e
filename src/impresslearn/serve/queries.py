"""From a request's body and query to inputs and options, in either of the two forms.

A JSON body carries its options itself; an .npy body holds nothing but inputs, and its options stand
in the query. Anything else is refused, so that no option is silently without effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from impresslearn.errors import InputError
from impresslearn.serve.bodies import JSON, array_of, parse_json, parse_npy
from impresslearn.serve.errors import RequestError, first_problem
from impresslearn.serve.schemas import InferQuery, InferRequest, PredictQuery, PredictRequest
from impresslearn.state.tasks import ROLES

Model = TypeVar("Model", bound=BaseModel)
WORDS = ("all", *ROLES)


@dataclass(frozen=True)
class PredictAsked:
    """Inputs (n, ...), one task or one a row, whether to answer logits, and whether the inputs are
    prepared already."""

    inputs: np.ndarray
    task: str | list[str]
    logits: bool
    prepared: bool


@dataclass(frozen=True)
class InferAsked:
    """Inputs (n, ...), the tasks to choose among, how, and the rest as in `PredictAsked`."""

    inputs: np.ndarray
    among: str | list[str]
    method: str
    logits: bool
    prepared: bool


def predict_asked(body: bytearray, kind: str, query: PredictQuery, rows: int) -> PredictAsked:
    """A prediction; kind: what `media_type` says of the body; rows: that it may have at most."""
    if kind == JSON:
        asked = _validated(PredictRequest, body, query)
        return PredictAsked(_array(asked.inputs, rows), asked.task, asked.logits, asked.prepared)
    if not query.task:
        raise InputError("an .npy body needs the task in the query: ?task=NAME, or one a row")
    task = query.task[0] if len(query.task) == 1 else query.task
    return PredictAsked(_npy(body, rows), task, query.logits, query.prepared)


def infer_asked(body: bytearray, kind: str, query: InferQuery, rows: int) -> InferAsked:
    """An inference; arguments as `predict_asked`."""
    if kind == JSON:
        asked = _validated(InferRequest, body, query)
        inputs = _array(asked.inputs, rows)
        return InferAsked(inputs, asked.among, asked.method, asked.logits, asked.prepared)
    word = query.among[0] if query.among else "all"
    among = word if len(query.among) < 2 and word in WORDS else query.among
    return InferAsked(_npy(body, rows), among, query.method, query.logits, query.prepared)


def _validated(model: type[Model], body: bytearray, query: BaseModel) -> Model:
    defaults = type(query)()
    for name, value in query:
        if value != getattr(defaults, name):
            raise InputError(f"{name} in the query belongs to .npy bodies; put it into the JSON")
    try:
        return model.model_validate(parse_json(body), strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        raise InputError(first_problem(problems)) from None


def _array(inputs: list[Any], rows: int) -> np.ndarray:
    _check_rows(len(inputs), rows)
    return array_of(inputs)


def _npy(body: bytearray, rows: int) -> np.ndarray:
    array = parse_npy(body)
    _check_rows(len(array), rows)
    return array


def _check_rows(count: int, rows: int) -> None:
    if count == 0:
        raise InputError("inputs must be at least one row, got none")
    if count > rows:
        raise RequestError(413, f"{count:,} rows are more than the limit of {rows:,} a request")
