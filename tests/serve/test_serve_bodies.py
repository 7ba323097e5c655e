"""Bytes become the array that was sent, or an error with a status; never anything else."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from serving import npy

from impresslearn.errors import InputError
from impresslearn.serve.bodies import JSON, NPY, array_of, parse_json, parse_npy
from impresslearn.serve.errors import RequestError
from impresslearn.serve.limits import HeldAnswer, Room
from impresslearn.serve.queries import infer_asked, predict_asked
from impresslearn.serve.schemas import InferQuery, PredictQuery

KINDS = st.one_of(
    numbers.integer_dtypes(endianness="?"),
    numbers.unsigned_integer_dtypes(endianness="?"),
    numbers.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
ARRAYS = KINDS.flatmap(
    lambda kind: numbers.arrays(kind, numbers.array_shapes(min_dims=1, max_dims=4))
)
ODD_ARRAYS = (
    numbers.scalar_dtypes() | numbers.array_dtypes() | numbers.nested_dtypes(max_leaves=3)
).flatmap(
    lambda kind: numbers.arrays(kind, numbers.array_shapes(min_dims=0, min_side=0, max_side=17))
)
DESCRIPTIONS = (
    st.sampled_from(["<f8", ">f2", "|b1", "|O", "<U3", "<M8[s]", "V9", "<f16", "f4,f4"])
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


@given(ARRAYS, st.booleans())
def test_npy_bodies_are_the_arrays_that_were_saved(array, fortran):
    saved = np.asfortranarray(array) if fortran else array
    found = parse_npy(bytearray(npy(saved)))
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


@given(st.data())
def test_damaged_npy_bodies_are_refused_or_arrays(data):
    body = bytearray(npy(np.arange(12.0).reshape(3, 4)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    found = None
    with suppress(RequestError):
        found = parse_npy(body)
    assert found is None or found.nbytes <= len(body)


@given(st.binary(max_size=200))
def test_any_header_is_refused_or_read(content):
    body = bytearray(b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content)
    with pytest.raises(RequestError):
        parse_npy(body)


@given(numbers.arrays(np.float64, numbers.array_shapes(max_dims=5)))
def test_nested_lists_are_the_arrays_that_were_written(array):
    assert np.array_equal(array_of(array.tolist()), array, equal_nan=True)


@settings(deadline=None)
@given(st.lists(JSON_VALUES, max_size=4))
def test_any_json_list_is_refused_or_all_numbers(nested):
    found = None
    with suppress(InputError):
        found = array_of(nested)
    if found is not None:
        assert found.size
        assert np.array_equal(found, np.array(nested, float), equal_nan=True)


@pytest.mark.parametrize(
    ("nested", "kind"),
    [
        ([[0, 255]], np.int64),
        ([[2**53, -(2**53)]], np.int64),
        ([[2**53 + 1, 0]], np.float64),
        ([[2**70, 0]], np.float64),
        ([[0, 255.0]], np.float64),
    ],
)
def test_whole_numbers_stay_whole(nested, kind):
    found = array_of(nested)
    assert found.dtype == kind
    assert found.tolist() == np.array(nested, float).tolist()


@pytest.mark.parametrize("text", ['{"task": "a", "task": "b"}', '[{"x": {"y": 1, "y": 1}}]'])
def test_a_name_stands_once_in_an_object(text):
    with pytest.raises(RequestError, match="the body is no JSON: an object has a name twice"):
        parse_json(text.encode())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(ODD_ARRAYS)
@pytest.mark.filterwarnings("ignore")
def test_any_array_is_answered_or_refused(client, array):
    refused_or_answered(client, npy(array), NPY[0])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(HEADERS, st.binary(max_size=16))
def test_any_declared_array_is_answered_or_refused(client, header, content):
    written = repr(header).encode("utf-8", "replace")
    start = b"\x93NUMPY\x01\x00" + len(written).to_bytes(2, "little")
    refused_or_answered(client, start + written + content, NPY[0])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(JSON_VALUES, JSON_VALUES | st.just("new 0"), JSON_VALUES)
def test_any_json_is_answered_or_refused(client, inputs, task, extra):
    asked = {"inputs": inputs, "task": task, "logits": extra}
    refused_or_answered(client, json.dumps(asked).encode(), JSON)


def refused_or_answered(client, body, kind):
    """Every answer to a body is the one that was asked for, or one line about the request."""
    for path in ("/predict", "/predict?task=new%200", "/infer"):
        answer = client.post(path, content=body, headers={"Content-Type": kind})
        assert answer.status_code in (200, 400, 404, 413, 422), (body, answer.text)
        if answer.status_code != 200:
            assert answer.json()["error"].isprintable()


def test_answers_count_until_they_are_read():
    room, sent = Room(300_000), []

    async def send(message):
        assert room.used == 200_000
        sent.append(message.get("body", b""))
        if message.get("body") == b"":
            raise ConnectionError

    async def answer():
        with ExitStack() as held:
            held.enter_context(room.hold()).take(200_000)
            response = HeldAnswer(200_000 * b"x", held.pop_all())
        await response({}, lambda: None, send)

    asyncio.run(answer())
    assert (b"".join(sent), room.used) == (200_000 * b"x", 0)
    assert max(map(len, sent)) < 100_000


@settings(max_examples=200)
@given(st.binary(max_size=60), st.sampled_from([JSON, NPY[0]]))
def test_any_body_is_refused_with_a_status_of_its_own(content, kind):
    for ask in (
        lambda: predict_asked(bytearray(content), kind, PredictQuery(), 10),
        lambda: infer_asked(bytearray(content), kind, InferQuery(), 10),
    ):
        with pytest.raises((RequestError, InputError)):
            ask()


@pytest.mark.parametrize("word", ["all", "basis", "learned"])
def test_a_single_word_in_the_query_is_a_role(word):
    body = bytearray(npy(np.zeros((1, 2))))
    assert infer_asked(body, NPY[0], InferQuery(among=[word]), 9).among == word
    assert infer_asked(body, NPY[0], InferQuery(among=["x"]), 9).among == ["x"]
    assert infer_asked(body, NPY[0], InferQuery(), 9).among == "all"


def test_all_bodies_together_have_a_limit_too():
    room = Room(10)
    with room.hold() as first, room.hold() as second:
        first.take(6)
        second.take(4)
        with pytest.raises(RequestError) as caught:
            second.take(1)
        assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    assert room.used == 0
