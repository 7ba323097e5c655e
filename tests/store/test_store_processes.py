"""Several processes on one store: readers see whole commits only, writers take turns."""

import time

import pytest
import torch
from storekit import FULL, HASTY, digest, reports, small_learner, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import remove_tasks
from toys import blobs, pictures, quick_learner, resnet

TASKS = 100 if FULL else 25


@pytest.fixture
def path(tmp_path):
    small_learner().save(tmp_path / "a.impress")
    return tmp_path / "a.impress"


def finished(pool, pid, out):
    """What a process reported that must have ended well."""
    assert pool.wait(pid) == 0, reports(out)[-1]
    return reports(out)


def test_readers_while_one_learns(pool, path, tmp_path):
    stop, outs = tmp_path / "stop", [tmp_path / f"reader-{number}" for number in range(4)]
    pids = [
        pool.start("read", out, path=str(path), readonly=number % 2 == 0, stop=str(stop))
        for number, out in enumerate(outs)
    ]
    churn = pool.start("open_and_close", tmp_path / "churn", path=str(path), stop=str(stop))
    until(lambda: all(map(reports, outs)))
    how = {"path": str(path), "prefix": "new", "count": TASKS, "basis": 4}
    written = finished(pool, pool.start("learn", tmp_path / "writer", **how), tmp_path / "writer")
    published = dict(written[1:])
    time.sleep(0.5)
    stop.touch()
    finished(pool, churn, tmp_path / "churn")
    for pid, out in zip(pids, outs, strict=True):
        ((_, answers),) = finished(pool, pid, out)[1:]
        assert {name: answers[name] for name in published} == published
    assert len(published) == TASKS
    assert verify_store(path)["tasks"] == TASKS + 3
    il.open_store(path).close()  # those that were opened for reading only leave the log
    assert not list(tmp_path.glob("a.impress-*"))


def test_a_task_learned_anew_is_never_answered_from_before(pool, path, tmp_path):
    with il.open_store(path, progress=False) as learner:
        learner.learn_task("again", blobs(7))
        seen = {digest(learner, "again")}
        for number in range(4):
            remove_tasks(path, ["again"])
            with pytest.raises(il.UnknownTaskError):
                digest(learner, "again")
            with il.open_store(path, progress=False) as other:
                other.learn_task("again", blobs(10 + number))
                now = digest(other, "again")
            assert now not in seen
            assert digest(learner, "again") == now
            seen.add(now)
        remove_tasks(path, ["again"])
        out = tmp_path / "out"
        pid = pool.start("learn_named", out, path=str(path), names=["again"])
        _, (name, now) = finished(pool, pid, out)
        assert digest(learner, name) == now


def test_two_writers_take_turns(pool, path, tmp_path):
    outs = [tmp_path / "one", tmp_path / "two"]
    pids = [
        pool.start("learn", out, path=str(path), prefix=out.name, count=12, basis=2) for out in outs
    ]
    published = dict(sum((finished(pool, *pair)[1:] for pair in zip(pids, outs)), []))  # noqa: B905, RUF017
    learner = il.load(path)
    assert len(published) == 24
    assert all(digest(learner, name) == expected for name, expected in published.items())
    assert len(learner.bank_) == 4 + 12
    for name in published:
        task = learner.tasks_.learned(name)
        if task.mask is not None:
            assert learner.bank_.index(name) == task.num_masks - 1


@pytest.mark.parametrize("basis", [False, True])
def test_one_name_in_two_writers(pool, path, tmp_path, basis):
    names, outs = [f"same-{number}" for number in range(10)], [tmp_path / "one", tmp_path / "two"]
    pids = [
        pool.start("learn_named", out, path=str(path), names=names, basis=basis) for out in outs
    ]
    found = [finished(pool, *pair)[1:] for pair in zip(pids, outs, strict=True)]
    learner = il.load(path)
    for one, other in zip(*found, strict=True):
        won, lost = (one, other) if len(one) == 2 else (other, one)
        assert digest(learner, won[0]) == won[1]
        assert lost[1] == "InputError"
        assert "choose another name" in lost[2]
    assert len(learner.tasks_) == 13
    assert len(learner.bank_) == 4 + 10 * basis


def test_shared_statistics_belong_to_the_first(tmp_path):
    path = tmp_path / "a.impress"
    settings = {"basis_recipe": HASTY, "task_recipe": HASTY}
    quick_learner(resnet("shared"), **settings).add_random_masks(2).save(path)
    with il.open_store(path, progress=False) as one, il.open_store(path, progress=False) as other:
        assert one.shared_statistics_ is None
        begun, state = other.shared_statistics_, other._state
        assert begun is None
        one.learn_task("first", pictures(0))
        journal_shared, state.backend.shared = state.backend.shared, lambda: None
        commit = state._commit

        def late(*arguments):  # as if the first task was learned while this one was optimised
            state.backend.shared = journal_shared
            commit(*arguments)

        state._commit = late
        with pytest.raises(il.InputError, match="learn this one again"):
            other.learn_task("second", pictures(1))
        assert list(other.tasks_) == ["first"]
        other.learn_task("second", pictures(1))
        assert other.statistics_of("second").keys() == one.statistics_of("first").keys()
    assert verify_store(path) == {"tasks": 2, "masks": 2}


def test_a_busy_store(path):
    with il.open_store(path, progress=False) as one:
        other = il.open_store(path, progress=False, timeout=0.2)
        with one._state.backend.transaction():
            started = time.perf_counter()
            with pytest.raises(
                il.StoreError, match=r"in use by another process; gave up after 0.2"
            ):
                other.learn_task("late", blobs(1))
            assert time.perf_counter() - started < 10
            assert digest(other, "first") == digest(one, "first")
        other.learn_task("late", blobs(1))
        other.close()
        assert "late" in one.tasks_


def test_masks_that_were_never_committed(path):
    with il.open_store(path, progress=False) as one, il.open_store(path, progress=False) as other:
        layers = one.backbone.layers
        own = {layer.name: torch.ones(layer.shape, dtype=bool) for layer in layers}
        one.bank_.append("own", own)
        other.learn_basis("theirs", blobs(3))
        with pytest.raises(il.StoreError, match=r"'theirs' where this bank has 'own'"):
            digest(one, "theirs")
        with pytest.raises(il.StoreError, match="open the store again"):
            one.learn_task("new", blobs(1))
        assert list(other.tasks_)[3:] == ["theirs"]
    with il.open_store(path, progress=False) as one:
        one.bank_.append("own", own)
        one.learn_task("new", blobs(1))
        expected = digest(one, "new")
    assert il.load(path).bank_.names[-2:] == ("theirs", "own")
    assert digest(il.load(path), "new") == expected
