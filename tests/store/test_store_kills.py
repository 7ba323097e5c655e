"""A process is killed while it learns into a store: nothing that it reported is lost."""

import os
import random
import shutil
import signal
import time

from storekit import FULL, digest, reports, small_learner, until

import impresslearn as il
from impresslearn.learner.loading import verify_store
from toys import blobs

KILLS = 200 if FULL else 8


def test_killed_at_any_moment(pool, tmp_path):
    path, out = tmp_path / "a.impress", tmp_path / "out"
    small_learner().save(path)
    draw = random.Random(0)
    committed = {}
    for kill in range(KILLS):
        begun = len(reports(out))
        pid = pool.start("learn", out, path=str(path), prefix=f"k{kill}", basis=5)
        if kill % 4:  # else it may die while it opens
            until(lambda begun=begun: len(reports(out)) > begun + 1)
        time.sleep(draw.uniform(0, 0.15))
        os.kill(pid, signal.SIGKILL)
        assert pool.wait(pid) == -signal.SIGKILL, reports(out)[-1]
        verify_store(path)
        learner = il.load(path, progress=False)
        committed = dict(report for report in reports(out) if report != "open")
        for name, expected in committed.items():
            assert digest(learner, name) == expected
    assert len(committed) >= KILLS
    with il.open_store(path, progress=False) as learner:
        learner.learn_task("after", blobs(1))
        assert all(digest(learner, name) == committed[name] for name in committed)
        print(f"{KILLS} kills, {len(committed)} commits reported, {len(learner.tasks_)} tasks kept")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.impress", "out"]


def test_a_power_cut_keeps_a_prefix_of_the_commits(tmp_path):
    path, cut = tmp_path / "a.impress", tmp_path / "cut.impress"
    small_learner().save(path)
    draw = random.Random(0)
    order = []
    with il.open_store(path, progress=False) as learner:
        for number in range(12):
            (learner.learn_basis if number % 5 == 2 else learner.learn_task)(
                f"task-{number}", blobs(number)
            )
            order.append(f"task-{number}")
        expected = {name: digest(learner, name) for name in learner.tasks_}
        shutil.copy(path, tmp_path / "main")
        shutil.copy(f"{path}-wal", tmp_path / "log")
    log = (tmp_path / "log").read_bytes()
    kept = set()
    for place in [0, len(log), *(draw.randrange(len(log)) for _ in range(300 if FULL else 25))]:
        shutil.copy(tmp_path / "main", cut)
        (tmp_path / "cut.impress-wal").write_bytes(log[:place])
        with il.open_store(cut, progress=False) as learner:
            names = list(learner.tasks_)
            assert names == [*list(expected)[:3], *order][: len(names)]
            assert all(digest(learner, name) == expected[name] for name in names)
        verify_store(cut)
        kept.add(len(names))
    assert {3, 15} <= kept
    assert len(kept) > 5
