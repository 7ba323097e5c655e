"""Tasks removed from a store, whole or not at all, and their room given back."""

import pytest
from storekit import digests, files, hasty

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import compact_store
from impresslearn.store.rows import Rows
from toys import blobs


def test_removing_leaves_masks_and_all_other_tasks(path):
    before = digests(path)
    with hasty(path) as learner:
        learner.remove_task("basis-0")
        with pytest.raises(il.UnknownTaskError):
            learner.remove_task("basis-0")
        with pytest.raises(il.InputError, match="'basis-0'"):  # its mask is there still
            learner.learn_basis("basis-0", blobs(0))
        learner.learn_task("basis-0", blobs(0))
    after = digests(path)
    assert list(after) == ["basis-1", "first", "basis-0"]
    assert {name: after[name] for name in ("basis-1", "first")}.items() < before.items()
    assert verify_store(path) == {"tasks": 3, "masks": 4}


def test_a_removal_that_is_interrupted_changes_nothing(path, monkeypatch):
    before, remove_task = digests(path), Rows.remove_task

    def interrupted(*how):
        remove_task(*how)
        assert digests(path) == before  # for everybody else
        raise KeyboardInterrupt

    monkeypatch.setattr(Rows, "remove_task", interrupted)
    with hasty(path) as learner, pytest.raises(KeyboardInterrupt):
        learner.remove_task("first")
    assert digests(path) == before


def test_compacting(path):
    with hasty(path) as learner:
        names = [f"task {number} {'x' * 3000}" for number in range(40)]
        learner.learn_tasks({name: blobs(1) for name in names})
        before = digests(learner)
        for name in names:
            learner.remove_task(name)
        with pytest.raises(il.StoreError, match="in use by another process"):
            compact_store(path, timeout=0.1)
    large, small = compact_store(path)
    assert small == path.stat().st_size < large - 40 * 3000
    assert digests(path).items() < before.items()
    assert files(path.parent) == ["a.impress"]
    with hasty(path) as learner:
        learner.learn_task(names[0], blobs(1))
        assert learner.tasks_.learned(names[0]).row_id > 43  # an id is never given twice


def test_a_small_store_is_small(tmp_path):
    """Each table takes a page: small pages keep a store of one task under 20 kB and its weights."""
    learner = il.ImpressLearner(il.create_backbone("lenet_300_100", 3, in_features=16, seed=1))
    learner.save(tmp_path / "a.impress", weights="seed")
    assert (tmp_path / "a.impress").stat().st_size < 20_000
