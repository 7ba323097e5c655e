"""Bytes become the array that was sent, or an error with a status; never anything else."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from serving import npy
from starlette.exceptions import HTTPException

from impresslearn.errors import InputError
from impresslearn.serve.bodies import JSON, NPY, as_array, parse_json, parse_npy
from impresslearn.serve.schemas import InferQuery, InferRequest, PredictQuery, PredictRequest

KINDS = st.one_of(
    numbers.integer_dtypes(endianness="?"),
    numbers.unsigned_integer_dtypes(endianness="?"),
    numbers.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
ARRAYS = KINDS.flatmap(
    lambda kind: numbers.arrays(kind, numbers.array_shapes(min_dims=1, max_dims=4))
)
DESCRIPTIONS = (
    st.sampled_from(["<f8", ">f2", "|b1", "|O", "<U3", "<M8[s]", "V0", "V9", "<f16", "f4,f4"])
    | st.text(max_size=9)
    | st.lists(st.tuples(st.text(max_size=3), st.just("<f4")), max_size=3)
)
SIZES = st.sampled_from([0, 1, -1, 2, 16, True, 2**31, 2**62, 2**70])
HEADERS = st.fixed_dictionaries(
    {
        "descr": DESCRIPTIONS,
        "fortran_order": st.booleans() | st.integers(0, 1),
        "shape": st.lists(SIZES, max_size=40).map(tuple) | st.integers(),
    }
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
)
DAMAGE = st.lists(st.tuples(st.integers(0, 223), st.integers(0, 255)), min_size=1, max_size=4)
few = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
)


@given(ARRAYS, st.booleans())
def test_npy_bodies_are_the_arrays_that_were_saved(array, fortran):
    found = parse_npy(npy(np.asfortranarray(array) if fortran else array))
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


@given(DAMAGE)
def test_damaged_npy_bodies_are_refused_or_arrays(damage):
    body = bytearray(npy(np.arange(12.0).reshape(3, 4)))
    for place, value in damage:
        body[place] = value
    with suppress(HTTPException):
        assert parse_npy(bytes(body)).nbytes <= len(body)


@settings(deadline=None)
@given(numbers.arrays(np.float64, numbers.array_shapes(max_dims=5)), st.lists(JSON_VALUES))
def test_nested_lists_are_the_arrays_that_were_written(array, anything):
    assert np.array_equal(as_array(array.tolist()), array, equal_nan=True)
    with suppress(InputError):
        found = as_array(anything)
        assert found.size
        assert np.array_equal(found, np.array(anything, float), equal_nan=True)


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        *((np.int64, row) for row in ([0, 255], [2**53, -(2**53)])),
        *((np.float64, row) for row in ([2**53 + 1, 0], [2**70, 0], [0, 255.0])),
    ],
)
def test_whole_numbers_stay_whole(kind, row):
    found = as_array([row])
    assert found.dtype == kind
    assert found.tolist() == np.array([row], float).tolist()


@pytest.mark.parametrize("text", ['{"task": "a", "task": "b"}', '[{"x": {"y": 1, "y": 1}}]'])
def test_a_name_stands_once_in_an_object(text):
    with pytest.raises(HTTPException) as caught:
        parse_json(text.encode())
    assert caught.value.detail == "the body is no JSON: an object has a name twice"


@few
@given(HEADERS, st.binary(max_size=16))
@pytest.mark.filterwarnings("ignore")
def test_any_declared_array_is_answered_or_refused(client, header, content):
    written = repr(header).encode("utf-8", "replace")
    start = b"\x93NUMPY\x01\x00" + len(written).to_bytes(2, "little")
    answered_or_refused(client, start + written + content, NPY[0])


@few
@given(JSON_VALUES, JSON_VALUES | st.just("new 0"), JSON_VALUES)
def test_any_json_is_answered_or_refused(client, inputs, task, extra):
    asked = {"inputs": inputs, "task": task, "logits": extra}
    answered_or_refused(client, json.dumps(asked).encode(), JSON)


@few
@given(st.binary(max_size=60), st.sampled_from([JSON, NPY[0]]))
def test_any_bytes_are_refused(client, content, kind):
    answered_or_refused(client, content, kind, (400, 413, 422))
    answered_or_refused(client, b"\x93NUMPY\x01\x00" + content, kind, (400, 413, 422))


def answered_or_refused(client, body, kind, statuses=(200, 400, 404, 413, 422)):
    """Every answer to a body is the one that was asked for, or one line about the request."""
    for path in ("/predict", "/predict?task=new%200", "/infer"):
        answer = client.post(path, content=body, headers={"Content-Type": kind})
        assert answer.status_code in statuses, (body, answer.text)
        if answer.status_code != 200:
            assert answer.json()["error"].isprintable()


@pytest.mark.parametrize("word", ["all", "basis", "learned"])
def test_a_single_word_in_the_query_is_a_role(word):
    body = npy(np.zeros((1, 2)))
    assert InferRequest.read(NPY[0], body, InferQuery(among=[word])).among == word
    assert InferRequest.read(NPY[0], body, InferQuery(among=["x"])).among == ["x"]
    assert InferRequest.read(NPY[0], body, InferQuery()).among == "all"
    assert PredictRequest.read(NPY[0], body, PredictQuery(task=[word])).task == word
