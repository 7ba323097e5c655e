"""A hundred thousand tasks: small, opened at once, and the last one costs what the first did."""

import statistics
import time
from dataclasses import replace

import pytest
from storekit import QUICKLY, hasty

import impresslearn as il
from impresslearn.store.tasks import encode_task
from toys import blobs, quick_learner


def add_tasks(learner, count, start=0):
    """Commits copies number-start, … of the task "first" in one transaction, untried."""
    task = learner.tasks_.learned("first")
    names = [f"number-{number:06d}" for number in range(start, start + count)]
    learner._store.commit_many([encode_task(replace(task, name=name)) for name in names])


def median(action, items):
    """Median milliseconds of an action on one item."""
    seconds = []
    for item in items:
        start = time.perf_counter()
        action(item)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def measured(path, count):
    """Bytes per task of a store of `count` tasks, and median milliseconds per verb."""
    quick_learner(**QUICKLY).add_random_masks(10).learn_task("first", blobs(0)).save(path)
    empty = path.stat().st_size
    with hasty(path) as learner:
        for start in range(0, count, 5000):
            add_tasks(learner, min(5000, count - start), start)
    size = (path.stat().st_size - empty) / count
    names = [f"number-{number:06d}" for number in range(0, count, max(1, count // 200))]
    opening = median(lambda _: il.open_store(path, progress=False).close(), range(5))
    with hasty(path) as learner:
        return size, {
            "open": opening,
            "fetch": median(learner.tasks_.learned, names),
            "append": median(lambda number: add_tasks(learner, 1, count + number), range(60)),
            "count": median(lambda _: len(learner.tasks_), range(5)),
        }


@pytest.mark.nightly
@pytest.mark.parametrize("count", [5000, 100_000])
def test_many_tasks(tmp_path, count):
    _, few = measured(tmp_path / "few.impress", 10)
    size, many = measured(tmp_path / "many.impress", count)
    print(f"ms of the 10th {few}, of number {count:,} {many}")
    assert size <= 410
    for verb, milliseconds in many.items():
        assert milliseconds < 5 * few[verb] + 5
    assert len(il.load(tmp_path / "many.impress").tasks_) > count
