"""Stores of every earlier format open with the present code; a migration is whole or absent.

The files in data/ and what they must give for ever were made once, by the code that settled each
format (make_format_1.py and make_format_2.py in the commits that added them); a later format gets
files of its own.
"""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from storekit import digests, sql

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import describe_store
from toys import FEATURES, blobs

DATA = Path(__file__).parent / "data"
INPUTS = {
    "format-1": torch.linspace(-2, 2, 3 * FEATURES).reshape(3, FEATURES),
    "format-1-norms": torch.linspace(0, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8),
    "format-2": (np.arange(48 * 16).reshape(48, 4, 4) * 37 % 256).astype(np.uint8),
}


def written(name):
    """What a store gave when it was written, with the logits apart."""
    known = json.loads((DATA / f"{name[:8]}.json").read_text(encoding="utf-8"))
    known = known.get(f"{name}.impress", known)
    logits = known.pop("logits", None) or {n: t.pop("logits") for n, t in known["tasks"].items()}
    return known, logits


def observed(learner, inputs):
    """Everything that the present code finds in a store."""
    masks = {name: learner.bank_.mask(name).values() for name in learner.bank_.names}
    kept = learner.preprocessing
    return {
        "fingerprint": learner.backbone.fingerprint(),
        "masks": {
            name: hashed(np.packbits(np.concatenate([m.numpy().ravel() for m in mask])))
            for name, mask in masks.items()
        },
        "tasks": {name: task_of(learner, name) for name in learner.tasks_},
        "preprocessing": None if kept is None else kept.settings(),
        "bytes": {name: info.bytes for name, info in learner.tasks_.items()},
        "labels": {name: learner.predict(inputs, name).tolist() for name in learner.tasks_},
    }


def task_of(learner, name):
    kept, info = learner.tasks_.learned(name), learner.tasks_[name]
    return {
        "role": info.role,
        "classes": list(info.classes),
        "num_masks": info.num_masks,
        "bytes": dict(info.breakdown),
        "recipe": info.history["recipe"],
        "metrics": info.history["metrics"],
        "coefficients": hashed(*(t.numpy() for t in learner._state.coefficients(kept).tensors())),
        "statistics": hashed(
            *(value.numpy() for value in (learner.statistics_of(name) or {}).values())
        ),
        "profile": [kept.profile.own, kept.profile.foreign],
    }


def hashed(*arrays):
    little = (array.astype(array.dtype.newbyteorder("<")) for array in arrays)
    return hashlib.sha256(b"".join(each.tobytes() for each in little)).hexdigest()[:32]


@pytest.mark.parametrize("name", INPUTS)
def test_older_stores_give_what_they_gave(name):
    learner = il.load(DATA / f"{name}.impress", progress=False)
    known, logits = written(name)
    for task, values in logits.items():
        found = learner.logits(INPUTS[name], task)[: len(values)]
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-4)
    assert list(logits) == list(learner.tasks_)
    # Entropies alone, four bytes, tell whether inputs are of no task.
    assert all(learner.tasks_.learned(task).profile.inputs is None for task in logits)
    assert 0 <= learner.infer_task(INPUTS[name]).unknown_probability <= 1
    found = observed(learner, INPUTS[name])
    assert {key: found[key] for key in known} == known


@pytest.fixture
def old(tmp_path):
    """A copy of a store of format 1."""
    return shutil.copy(DATA / "format-1.impress", tmp_path / "a.impress")


def version(path):
    with sql(path) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def test_it_can_be_learned_into(old):
    with il.open_store(old, progress=False) as learner:
        learner.learn_basis("new", blobs(3)).learn_task("newer", blobs(4))
        tasks = len(learner.tasks_)
    assert verify_store(old) == {"tasks": tasks, "masks": 5}
    assert version(old) == 5


def test_who_only_reads_takes_it_as_it_is(old):
    before, expected = old.read_bytes(), digests(old)
    with il.open_store(old, readonly=True, progress=False) as learner:
        assert digests(learner) == expected
    assert describe_store(old)["tasks"] == len(expected)
    assert (old.read_bytes(), version(old)) == (before, 1)


def test_old_and_new_stores_of_one_network_exchange_tasks(old, tmp_path):
    learner = il.load(old, progress=False)
    learner.learn_task("new", blobs(4))
    learner.save(tmp_path / "b.impress")
    assert il.store.import_tasks(old, tmp_path / "b.impress", ["new"]) == ["new"]
    shown = blobs(4)[0]
    with il.open_store(old, progress=False) as opened:
        assert torch.equal(opened.logits(shown, "new"), learner.logits(shown, "new"))
