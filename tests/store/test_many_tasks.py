"""Many tasks: a batch runs the network once; a name, a commit and an opening cost what they did."""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from storekit import hasty
from torch import Tensor, nn

import impresslearn as il
from impresslearn.networks import Backbone
from impresslearn.store.mixed_batch import mixed_logits
from toys import blobs, few_labels, refused

INPUTS = blobs(9)[0][:12]


class Scaled(nn.Sequential):
    """Changes logits after the head."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).log_softmax(dim=1)


@pytest.mark.parametrize("kind", [nn.Sequential, Scaled])
def test_a_mixed_batch_runs_the_network_once(kind, monkeypatch):
    torch.manual_seed(0)
    learner = few_labels(kind(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3)))
    learner.learn_tasks({f"t{number}": blobs(number) for number in range(4)})
    names = [f"t{number % 4}" for number in range(len(INPUTS))]
    alone = [learner.logits(row[None], name)[0] for row, name in zip(INPUTS, names, strict=True)]
    passes = []
    forward = Backbone.forward
    monkeypatch.setattr(Backbone, "forward", lambda *of: passes.append(1) or forward(*of))
    list(mixed_logits(learner._store, learner.prepare(INPUTS), names))  # looks at the head
    passes.clear()
    parts = list(mixed_logits(learner._store, learner.prepare(INPUTS), names))
    assert len(passes) == (4 if kind is Scaled else 1)
    for part in parts:
        for row, task, logits in zip(part.rows, part.tasks, part.logits, strict=True):
            assert task.name == names[row]
            torch.testing.assert_close(logits, alone[row], rtol=1e-5, atol=1e-5)


def add_tasks(learner: il.ImpressLearner, numbers: Iterable[int]) -> None:
    """Commits the task "first" under many names in one transaction."""
    (row,) = learner._store.rows.task_rows("first")
    learner._store.commit_many(replace(row, name=f"site {number:06d}") for number in numbers)


def unknown(learner: il.ImpressLearner) -> None:
    line = "no task named 'elsewhere' among .*, such as 'bas"
    refused(line, learner.predict, INPUTS, "elsewhere", error=il.UnknownTaskError)


def median(action: Callable[[Any], object], items: Iterable[Any]) -> float:
    """Median milliseconds of an action on one item."""
    seconds = []
    for item in items:
        start = time.perf_counter()
        action(item)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def measured(path: Path, count: int) -> dict[str, float]:
    """Median milliseconds of each verb on a store of `count` tasks."""
    with hasty(path) as learner:
        for start in range(0, count, 5000):
            add_tasks(learner, range(start, min(start + 5000, count)))
    names = [f"site {number:06d}" for number in range(0, count, max(1, count // 200))]
    opening = median(lambda _: hasty(path).close(), range(5))
    with hasty(path) as learner:
        return {
            "open": opening,
            "fetch": median(learner.tasks_.stored, names),
            "append": median(lambda number: add_tasks(learner, [count + number]), range(60)),
            "count": median(lambda _: len(learner.tasks_), range(5)),
            "refuse": median(lambda _: unknown(learner), range(20)),
        }


def test_tasks_are_counted_once_per_commit_and_not_for_each_unknown_name(path, monkeypatch):
    with hasty(path) as learner:
        database, asked = learner._store.database, []
        # A file that has just been written may change again within a tick of its clock.
        monkeypatch.setattr("impresslearn.store.database.SETTLED", 0)
        rows, before = database.rows, len(learner.tasks_)
        monkeypatch.setattr(database, "rows", lambda *query: asked.append(query[0]) or rows(*query))
        add_tasks(learner, range(3))
        for _ in range(3):
            unknown(learner)
        assert len(learner.tasks_) == before + 3
    assert sum("count(*)" in query for query in asked) == 1


@pytest.mark.nightly
def test_a_hundred_thousand_tasks(path, tmp_path):
    """They are small, opened at once, and the last one costs what the first did."""
    few = tmp_path / "few.impress"
    few.write_bytes(path.read_bytes())
    empty, count = path.stat().st_size, 100_000
    expected, found = measured(few, 10), measured(path, count)
    print(f"ms of the 10th {expected}, of number {count:,} {found}")
    assert (path.stat().st_size - empty) / count <= 410
    for verb, milliseconds in found.items():
        assert milliseconds < 5 * expected[verb] + 5
    assert len(il.load(path).tasks_) > count
