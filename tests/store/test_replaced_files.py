"""A store whose file something else than the library changes while it is open."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

import impresslearn as il
from impresslearn.errors import StoreReplacedError
from toys import blobs, quick_learner

INPUTS = blobs(50)[0][:7]


def updated(base: Path, path: Path, number: int) -> Path:
    """A copy of a store in which task a is learned on."""
    shutil.copy(base, path)
    with il.open_store(path, progress=False) as learner:
        learner.update_task("a", blobs(number))
    return path


@pytest.fixture
def base(tmp_path):
    path = tmp_path / "base.impress"
    quick_learner().add_random_masks(2).learn_task("a", blobs(0)).save(path)
    return path


def test_a_file_that_was_copied_over_an_open_store_is_read(base, tmp_path):
    path = updated(base, tmp_path / "s.impress", 7)
    other = updated(base, tmp_path / "other.impress", 8)
    # SQLite's own counters are equal in both, and so are name, number and version of the task.
    assert other.read_bytes()[24:28] == path.read_bytes()[24:28]
    with il.open_store(other, readonly=True) as learner:
        expected = learner.logits(INPUTS, "a")
    with il.open_store(path, readonly=True) as learner:
        assert not torch.equal(learner.logits(INPUTS, "a"), expected)
        shutil.copy(other, path)
        assert torch.equal(learner.logits(INPUTS, "a"), expected)


@pytest.mark.parametrize("change", ["masks", "network"])
def test_another_store_that_was_copied_over_an_open_one_is_refused(base, tmp_path, change):
    path, other = tmp_path / "s.impress", tmp_path / "other.impress"
    empty = quick_learner()
    empty.save(path)
    shutil.copy(path, other)
    for place, seed in ((path, 1), (other, 2)):
        with il.open_store(place, progress=False) as learner:
            learner.add_random_masks(2, seed=seed).learn_task("a", blobs(0))
    if change == "network":
        shutil.copy(base, other)
    with il.open_store(path, readonly=True) as learner:
        learner.logits(INPUTS, "a")
        shutil.copy(other, path)
        with pytest.raises(StoreReplacedError, match="was overwritten by another store"):
            learner.logits(INPUTS, "a")


def test_a_link_that_was_moved_on_to_another_file_is_noticed(base, tmp_path):
    link = tmp_path / "present.impress"
    link.symlink_to(base)
    updated(base, tmp_path / "next.impress", 7)
    with il.open_store(link, readonly=True) as learner:
        learner.logits(INPUTS, "a")
        (tmp_path / "new").symlink_to(tmp_path / "next.impress")
        os.replace(tmp_path / "new", link)
        with pytest.raises(StoreReplacedError, match="was replaced by another file"):
            learner.logits(INPUTS, "a")
