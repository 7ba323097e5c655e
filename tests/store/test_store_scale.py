"""A hundred thousand tasks: small, opened at once, and the last one costs what the first did."""

import statistics
import subprocess
import sys
import time

import pytest
import torch
from storekit import commit_one, many_tasks

import impresslearn as il
from toys import blobs, quick_learner

MASKS = 10
OPENING = """
import time, sys
import torch
start = time.perf_counter()
import impresslearn as il
learner = il.open_store(sys.argv[1], progress=False)
print(time.perf_counter() - start)
"""


def made(path, count):
    quick_learner().add_random_masks(MASKS).save(path)
    empty = path.stat().st_size
    with il.open_store(path, progress=False) as learner:
        for start in range(0, count, 5000):
            many_tasks(learner, min(5000, count - start), start)
    return (path.stat().st_size - empty) / count


def times(action, items):
    """The median seconds of an action, over items."""
    measured = []
    for item in items:
        start = time.perf_counter()
        action(item)
        measured.append(time.perf_counter() - start)
    return statistics.median(measured)


def measure(path, count):
    """Medians in milliseconds: fetch, predict, append, learn, and what is wrong."""
    generator = torch.Generator().manual_seed(1)
    step = max(1, count // 200)
    names = [f"number-{number:06d}" for number in range(0, count, step)]
    with il.open_store(path, progress=False) as learner:
        learner.logits(torch.zeros(1, 16), names[0])
        found = {
            "fetch": times(learner.tasks_.learned, names),
            "info": times(learner.tasks_.__getitem__, names),
            "append": times(
                lambda number: commit_one(learner, f"more-{number}-{count}", generator), range(60)
            ),
            "learn": times(
                lambda number: learner.learn_task(f"new-{number}", blobs(number)), range(8)
            ),
            "unknown": times(lambda name: missing(learner, name), ["nothing", "number-0"]),
            "count": times(lambda _: len(learner.tasks_), range(5)),
        }
    return {name: round(1000 * seconds, 3) for name, seconds in found.items()}


def missing(learner, name):
    with pytest.raises(il.UnknownTaskError, match="no task named"):
        learner.tasks_.learned(name)


def opening(path):
    """Milliseconds that a fresh process takes, beyond importing torch, until the store is open."""
    script = [sys.executable, "-c", OPENING, str(path)]
    runs = [subprocess.run(script, capture_output=True, check=True).stdout for _ in range(5)]
    return 1000 * min(map(float, runs))


def test_five_thousand_tasks(tmp_path):
    few, many = tmp_path / "few.impress", tmp_path / "many.impress"
    made(few, 10)
    size = made(many, 5000)
    before, after = measure(few, 10), measure(many, 5000)
    print(f"{size:.0f} bytes a task; ms of the 10th {before}, of the 5000th {after}")
    assert size <= 400
    assert after["fetch"] < 10
    assert after["append"] < 50
    for verb in ("fetch", "append", "learn", "count"):
        assert after[verb] < 5 * before[verb] + 5


@pytest.mark.slow
def test_a_hundred_thousand_tasks(tmp_path):
    few, many = tmp_path / "few.impress", tmp_path / "many.impress"
    made(few, 10)
    started = time.perf_counter()
    size = made(many, 100_000)
    built = time.perf_counter() - started
    before, after = measure(few, 10), measure(many, 100_000)
    opened = opening(few), opening(many)
    print(f"built in {built:.0f} s, {size:.0f} bytes a task, {many.stat().st_size:,} bytes")
    print(f"opened in {opened[0]:.0f} ms (10), {opened[1]:.0f} ms (100,000)")
    print(f"ms of the 10th {before}, of the 100,000th {after}")
    start = time.perf_counter()
    assert len(il.load(many).tasks_) > 100_000
    print(f"loaded whole, verified, in {time.perf_counter() - start:.1f} s")
    assert size <= 400
    assert opened[1] < 2 * opened[0] + 50
    assert after["fetch"] < 5
    assert after["append"] < 50
