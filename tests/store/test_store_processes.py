"""Several processes on one store: readers see whole commits only, writers take turns, and what a
process reported is not lost when it is killed."""

import random
import shutil
import signal
import time
from contextlib import contextmanager

import pytest
import torch
from storekit import FULL, QUICKLY, digest, digests, hasty, reports, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from impresslearn.store import database
from toys import blobs, pictures, quick_learner, refused, resnet

PAGE = 4096
TASKS, CUTS = (100, 300) if FULL else (8, 15)


@pytest.mark.slow
def test_readers_while_one_learns_and_removes(pool, path, tmp_path):
    """Tasks that stay are answered as ever; each of many openings finds all masks of its tasks."""
    with hasty(path) as learner:
        learner.learn_basis("late", blobs(5))
    stop, outs = tmp_path / "stop", [tmp_path / f"reader-{number}" for number in range(3)]
    processes = [
        pool.start("read", outs[0], path=path, readonly=True, stop=stop),
        pool.start("read", outs[1], path=path, stop=stop),
        pool.start("verify_again_and_again", outs[2], path=path, stop=stop),
    ]
    until(lambda: all(map(reports, outs)))
    (learned,) = pool.learned(path, tmp_path / "new", count=TASKS)
    time.sleep(0.5)
    stop.touch()
    answers = [pool.reported(*pair)[-1] for pair in zip(processes, outs, strict=True)]
    assert len(learned) == TASKS
    assert all(dict(learned).items() < each.items() for each in answers[:2])
    stop.unlink()
    process = pool.start("verify_again_and_again", tmp_path / "churn", path=path, stop=stop)
    for number in range(4):
        with hasty(path) as learner:
            for name, _ in learned[number::4]:
                learner.remove_task(name)
            learner.learn_basis(f"late-{number}", blobs(number))
    stop.touch()
    pool.reported(process, tmp_path / "churn")
    il.open_store(path).close()  # those that were opened for reading only leave the log
    assert not list(tmp_path.glob("a.impress-*"))


def test_two_writers_take_turns(pool, path, tmp_path):
    found = pool.learned(path, tmp_path / "one", tmp_path / "two", count=6, basis=2)
    published, learner = dict([*found[0], *found[1]]), il.load(path)
    assert len(published) == 12
    assert published.items() < digests(learner).items()
    assert len(learner.bank_) == 4 + 6
    own = {name: learner.tasks_.stored(name) for name in published}
    masks = {name: task.num_masks for name, task in own.items() if task.mask is not None}
    assert masks == {name: learner.bank_.index(name) + 1 for name in masks}


def test_one_name_in_two_writers(pool, path, tmp_path):
    outs = tmp_path / "one", tmp_path / "two"
    found = pool.learned(path, *outs, prefix="same", count=6, basis=2)
    learner = il.load(path)
    for pair in zip(*found, strict=True):
        won, lost = sorted(pair, key=len)
        assert digest(learner, won[0]) == won[1]
        assert lost[1] == "refused"
        assert "choose another name" in lost[2]
    assert (len(learner.tasks_), len(learner.bank_)) == (9, 4 + 3)


def test_shared_statistics_belong_to_the_first(tmp_path):
    path = tmp_path / "a.impress"
    quick_learner(resnet("shared"), **QUICKLY).add_random_masks(2).save(path)
    with hasty(path) as one, hasty(path) as other:
        one.learn_task("first", pictures(0))
        state = other._store
        meta, commit, state.rows.meta = state.rows.meta, state._commit, lambda name: None

        def late(*arguments, **more):
            """As if the first task was learned while this one was optimised."""
            state.rows.meta = meta
            return commit(*arguments, **more)

        state._commit = late
        refused("learn this one again", other.learn_task, "second", pictures(1))
        other.learn_task("second", pictures(1))
        assert other.statistics_of("second").keys() == one.statistics_of("first").keys()
    assert verify_store(path) == {"tasks": 2, "masks": 2}


def test_masks_that_were_never_committed(path):
    with hasty(path) as one, hasty(path) as other:
        own = {layer.name: torch.ones(layer.shape, dtype=bool) for layer in one.backbone.layers}
        one.bank_.append("own", own)
        other.learn_basis("theirs", blobs(3))
        refused(r"'theirs' in place of 'own'", digest, one, "theirs", error=il.StoreError)
        refused("open the store again", one.learn_task, "new", blobs(1), error=il.StoreError)
        assert list(other.tasks_)[3:] == ["theirs"]
    with hasty(path) as one:
        one.bank_.append("own", own)
        one.learn_task("new", blobs(1))
        assert digests(path) == digests(one)
    assert il.load(path).bank_.names[-2:] == ("theirs", "own")


def test_an_interrupt_while_another_process_commits(path, monkeypatch):
    @contextmanager
    def interrupted(store):
        yield
        if store.writing.connection.in_transaction:  # the wait is over, and it has just begun
            raise KeyboardInterrupt

    with hasty(path) as learner:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(database.Database, "clear_errors", interrupted)
            learner.add_random_masks(1)
        learner.learn_task("after", blobs(1))
        assert "after" in digests(path)


VERBS = ("learn_task", "learn_basis", "update_task", "restore_task", "remove_task")


@pytest.mark.parametrize("verb", VERBS)
def test_killed_at_every_statement_of_a_change(verb, pool, path, tmp_path):
    """Before the statement that commits nothing has happened, after it everything has."""
    with hasty(path) as learner:
        learner.learn_task("known", blobs(1))
        learner.update_task("known", blobs(2))
    before, found = digests(path), []
    for statement in range(1, 60):
        copy, out = tmp_path / f"{statement}.impress", tmp_path / f"out-{statement}"
        shutil.copy(path, copy)
        process = pool.start("change_once", out, path=copy, verb=verb, statement=statement)
        process.join()
        verify_store(copy)
        found.append(digests(copy))
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert process.exitcode == 0
    assert statement > 4
    after = found[-1]
    assert after != before
    assert all(each in (before, after) for each in found)
    assert found[0] == before
    first = found.index(after)
    assert all(each == after for each in found[first:])


def test_a_power_cut_keeps_a_prefix_of_the_commits(path, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_empty_log", lambda *_: None)
    cut, draw = tmp_path / "cut.impress", random.Random(0)
    with hasty(path) as learner:
        connection = learner._store.database.writing.connection
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # all stay in the log
        for number in range(12):
            verb = learner.learn_basis if number % 5 == 2 else learner.learn_task
            verb(f"task-{number}", blobs(number))
        expected = list(digests(learner).items())
        shutil.copy(path, tmp_path / "main")
        log = (tmp_path / "a.impress-wal").read_bytes()
    kept = set()
    for place in [0, len(log), *(draw.randrange(len(log)) for _ in range(CUTS))]:
        shutil.copy(tmp_path / "main", cut)
        (tmp_path / "cut.impress-wal").write_bytes(log[:place])
        with il.open_store(cut, progress=False) as learner:
            found = list(digests(learner).items())
        assert found == expected[: len(found)]
        verify_store(cut)
        kept.add(len(found))
    assert {3, 15} <= kept
    assert len(kept) > 5
    before, after = (file.read_bytes() for file in (tmp_path / "main", path))
    pages = [slice(start, start + PAGE) for start in range(0, len(after), PAGE)]
    for _ in range(CUTS // 3):  # while the log is written into the file, page by page
        drawn = [draw.choice((before, after))[page] or after[page] for page in pages]
        cut.write_bytes(b"".join(drawn))
        (tmp_path / "cut.impress-wal").write_bytes(log)
        assert list(digests(cut).items()) == expected
        verify_store(cut)
