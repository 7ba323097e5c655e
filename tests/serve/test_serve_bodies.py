"""Bytes become the array that was sent, or an error with a status; never anything else."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from serving import npy

from impresslearn.errors import InputError
from impresslearn.serve.asking import infer_asked, predict_asked
from impresslearn.serve.bodies import JSON, NPY, array_of, parse_npy
from impresslearn.serve.limits import Room
from impresslearn.serve.refusals import RequestError
from impresslearn.serve.schemas import InferQuery, PredictQuery

KINDS = st.one_of(
    numbers.integer_dtypes(endianness="?"),
    numbers.unsigned_integer_dtypes(endianness="?"),
    numbers.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
ARRAYS = KINDS.flatmap(
    lambda kind: numbers.arrays(kind, numbers.array_shapes(min_dims=1, max_dims=4, min_side=0))
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
        assert found.dtype == np.float64
        assert found.size == 0 or np.array_equal(found, np.array(nested, float), equal_nan=True)


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
