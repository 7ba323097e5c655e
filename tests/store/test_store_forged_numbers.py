"""Forged numbers with right checksums: what would fail later, or answer nonsense, is not loaded."""

import json
import sqlite3
import time

import numpy as np
import pytest
from forgery import forge_head, forge_state, forge_task, refused
from storekit import HASTY, small_learner

import impresslearn as il
from impresslearn.coefficients.quantisation import PRECISIONS
from impresslearn.learner.loading import verify_store
from impresslearn.store.encoding import encode_statistics
from impresslearn.store.network import tensor_records
from toys import pictures, quick_learner, resnet


@pytest.fixture
def path(tmp_path):
    small_learner().save(tmp_path / "a.impress")
    return tmp_path / "a.impress"


def list_all(path):
    with il.open_store(path, readonly=True, progress=False) as learner:
        return [task.info() for task in learner.tasks_.all()]


def test_many_masks_in_few_bytes(path):
    """Coefficients of sixty million masks, coded in 88 kB, over a bank of four."""
    form = {"precision": "coded", "granularity": "layer"}
    form |= {"output_scale": False, "input_scale": False}
    content = bytes([255, 0, 0, 60, 0, 0]) * 3 + bytes(88_000)
    forge_task(path, "first", num_masks=60_000_000, form=json.dumps(form), coefficients=content)
    for verb in (il.load, verify_store, list_all):
        start = time.perf_counter()
        assert "combines 60000000 masks of 4" in refused(path, verb)
        assert time.perf_counter() - start < 3


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_forged_numbers(tmp_path, precision, value):
    """In place of any number, step or offset; a step of 0 rounds to nothing."""
    path = tmp_path / "a.impress"
    how = {"granularity": "unit", "output_scale": True, "precision": precision}
    small_learner(**how).save(path)
    with sqlite3.connect(path) as connection:
        (content,) = connection.execute(
            "SELECT coefficients FROM tasks WHERE mask IS NULL"
        ).fetchone()
    connection.close()
    first = il.load(path).tasks_.learned("first").coefficients
    bad = np.array([value], np.float32 if precision == "float32" else np.float16).tobytes()
    part = first.alpha[0]
    place = 0 if precision in ("float32", "float16") else len(part.payload)
    if value == 0.0 and place == 0:
        return
    forge_task(path, "first", coefficients=content[:place] + bad + content[place + len(bad) :])
    for verb in (il.load, verify_store, list_all):
        assert "task 'first'" in refused(path, verb)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"statistics": lambda kept: b"\0\0\xc0\x7f" + kept[4:]}, "impossible values"),
        ({"statistics": lambda kept: kept[:-4] + b"\0\0\x80\xbf"}, "impossible values"),
        ({"statistics": lambda kept: None}, "norm policy"),
        ({"statistics": lambda kept: kept[:-1]}, "another network"),
    ],
)  # fmt: skip
def test_forged_norm_statistics(tmp_path, columns, words):
    path = tmp_path / "a.impress"
    learner = quick_learner(resnet("per_task"), basis_recipe=HASTY).learn_basis("a", pictures(0))
    kept = encode_statistics(learner.statistics_of("a"))
    learner.save(path)
    forge_task(path, "a", **{name: change(kept) for name, change in columns.items()})
    for verb in (il.load, verify_store, list_all):
        assert words in refused(path, verb)


def test_shared_statistics_that_are_missing(tmp_path):
    path = tmp_path / "a.impress"
    learner = quick_learner(resnet("shared"), basis_recipe=HASTY).learn_basis("a", pictures(0))
    learner.save(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM shared")
        forge_state(connection, shared=None)
    connection.close()
    for verb in (il.load, verify_store):
        assert "norm statistics that all its tasks share are missing" in refused(path, verb)


def test_weights_that_are_no_numbers(path):
    network = small_learner().backbone
    network.module.get_parameter("0.weight").data[0, 0] = float("nan")
    with sqlite3.connect(path) as connection:
        for name, content in tensor_records(network):
            connection.execute("UPDATE tensors SET data = ? WHERE name = ?", (content, name))
    connection.close()
    forge_head(path, lambda b, s: (b | {"fingerprint": network.fingerprint()}, s))
    for verb in (il.load, il.open_store, verify_store):
        assert "NaN or infinite" in refused(path, verb)
