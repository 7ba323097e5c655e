"""Former versions of tasks, and removals: kept through kills, seen by others, room given back."""

import random
import subprocess
import sys
import time
from functools import partial

import pytest
import torch
from storekit import FULL, digests, files, hasty, reports, sql, until, version_digests

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import store_files
from impresslearn.store.store_files import compact_store
from toys import blobs, lenet, quick_learner, refused

SEQUENCES = 1000 if FULL else 12


def test_random_lives_that_end_at_any_moment(pool, path, small_store, tmp_path):
    """A commit whose end was not reported is there or not; everything else is as it was."""
    draw, committed = random.Random(0), 0
    for seed in range(SEQUENCES):
        out = tmp_path / f"out-{seed}"
        if seed % 5 == 0:
            path.write_bytes(small_store)
            with il.open_store(path, progress=False) as learner:
                expected = version_digests(learner)
        process = pool.start("live", out, path=path, seed=seed, count=12)
        if seed % 4:
            until(lambda out=out: reports(out))
        time.sleep(draw.uniform(0, 0.4))
        process.kill()
        process.join()
        last = None
        for name, found in reports(out):
            assert name != "failed", found
            last = name if isinstance(found, str) else None
            if found is None:
                del expected[name]
            elif last is None:
                known = expected.get(name, [])
                assert found[: len(known)] == known
                expected[name], committed = found, committed + 1
        verify_store(path)
        with il.open_store(path, progress=False) as learner:
            now = version_digests(learner)
        if last is not None:  # it was killed in the midst of this
            before, after = expected.pop(last, []), now.pop(last, [])
            assert after in ([], before) or after[: len(before)] == before
            assert len(after) <= len(before) + 1
            assert now == expected
            expected |= {last: after} if after else {}
        assert now.items() <= expected.items()
    assert committed > SEQUENCES // 4  # fewer are killed late on a busy machine


def test_others_see_an_update_at_once_and_two_updates_do_not_mix(path):
    with hasty(path) as one, hasty(path) as other:
        inputs = blobs(1)[0]
        before = other.logits(inputs, "first")
        one.update_task("first", blobs(20))
        assert other.tasks_["first"].version == 2
        assert other.logits(inputs, "first").equal(one.logits(inputs, "first"))
        assert not other.logits(inputs, "first").equal(before)
        commit = one._store._commit
        for meanwhile in (lambda: other.update_task("first", blobs(21)),
                          lambda: other.remove_task("first")):  # fmt: skip
            one._store._commit = lambda *of, change=meanwhile, **how: [change(), commit(*of, **how)]
            refused("changed or removed meanwhile", one.update_task, "first", blobs(22))
        assert "first" not in one.tasks_


@pytest.mark.parametrize(
    "change",
    [
        "substr(coefficients, 1, 40)",
        "(SELECT coefficients FROM tasks WHERE version = 1 AND name = 'first')",
    ],
)
def test_a_version_that_is_damaged_or_another_is_one_line(path, change):
    message = "task 'first' is not what was written"
    with hasty(path) as learner:
        learner.update_task("first", blobs(1)).update_task("first", blobs(2))
    with sql(path) as connection:
        connection.execute(f"UPDATE tasks SET coefficients = {change} WHERE version = 2")
    with hasty(path) as learner:
        learner.predict(blobs(1)[0], "first")  # the present version is what it was
        refused(message, learner.versions, "first", error=il.StoreError)
        refused(message, learner.restore_task, "first", 2, error=il.StoreError)
        assert learner.tasks_["first"].version == 3
    refused(message, il.load, path, error=il.StoreError)


def test_the_projection_that_tasks_share_is_verified_too(tmp_path):
    learner = quick_learner(lenet(head="own"), granularity="readout").add_random_masks(2)
    learner.learn_features(blobs(1), dimensions=4).learn_task("a", blobs())
    learner.save(path := tmp_path / "a.impress")
    with sql(path) as connection:
        connection.execute("UPDATE projections SET checksum = randomblob(8)")
    for check in (verify_store, il.load):
        refused("is not what was written", check, path, error=il.StoreError)


def test_a_part_is_saved_with_the_masks_of_all_versions(tmp_path):
    backbone = lenet(head="own")
    learner = quick_learner(backbone, granularity="readout").add_random_masks(2)
    learner.learn_task("a", blobs()).add_random_masks(2, seed=9).update_task("a", blobs())
    learner.restore_task("a", 1).save(tmp_path / "a.impress", tasks=["a"])
    copy = il.load(tmp_path / "a.impress")
    for version in (1, 2):
        learners = (each.restore_task("a", version) for each in (copy, learner))
        assert torch.equal(*(each.logits(blobs()[0], "a") for each in learners))


def test_a_commit_that_a_kill_left_in_a_journal_is_rolled_back_by_a_reader(path):
    script = (
        "import os, sqlite3, sys\n"
        "store = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "store.execute('PRAGMA cache_size = 2')\n"  # changed pages reach the file before the commit
        "store.execute('BEGIN IMMEDIATE')\n"
        "store.execute('CREATE TABLE junk AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + "
        "1 FROM n LIMIT 500) SELECT randomblob(1000) FROM n')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)])
    assert path.with_name(f"{path.name}-journal").exists()
    assert "first" in il.load(path).tasks_
    assert not path.with_name(f"{path.name}-journal").exists()


def test_compacting(path, monkeypatch):
    with hasty(path) as learner:
        names = [f"task {number} {'x' * 3000}" for number in range(40)]
        learner.learn_tasks({name: blobs(1) for name in names})
        before = digests(learner)
        for name in names:
            learner.remove_task(name)
        with monkeypatch.context() as patch:
            patch.setattr(store_files, "Database", partial(store_files.Database, timeout=0.1))
            refused("in use by another process", compact_store, path, error=il.StoreError)
    large, small = compact_store(path)
    assert small == path.stat().st_size < large - 40 * 3000
    assert digests(path).items() < before.items()
    assert files(path.parent) == ["a.impress"]
    with hasty(path) as learner:
        learner.learn_task(names[0], blobs(1))
    with sql(path) as connection:
        (last,) = connection.execute("SELECT max(id) FROM tasks").fetchone()
        assert last > 43  # an id is never given twice
