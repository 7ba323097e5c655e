"""Many tasks: a batch runs the network once; a name, a commit and an opening cost what they did."""

import sqlite3
from collections.abc import Iterable
from dataclasses import replace
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
    outputs = Backbone._outputs
    monkeypatch.setattr(Backbone, "_outputs", lambda *of: passes.append(1) or outputs(*of))
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


def test_nothing_costs_more_with_more_tasks(path, monkeypatch):
    """Opening, a commit, the next request and an unknown name, in instructions of SQLite."""
    connect, steps, costs, empty = sqlite3.connect, list[int](), [], path.stat().st_size

    def counting(*given: Any, **how: Any) -> sqlite3.Connection:
        connection = connect(*given, **how)
        connection.set_progress_handler(lambda: steps.append(1), 100)
        return connection

    def cost() -> int:
        count = len(steps)
        steps.clear()
        return count

    monkeypatch.setattr(sqlite3, "connect", counting)
    monkeypatch.setattr("impresslearn.store.database.SETTLED", 0)
    for count in (200, 3000):
        with hasty(path) as learner:
            add_tasks(learner, range(10 * count, 11 * count))
        steps.clear()
        with hasty(path) as learner, il.open_store(path, readonly=True) as reader:
            costs.append([cost()])
            add_tasks(learner, [9 * count])
            costs[-1].append(cost())
            reader.predict(INPUTS, "first")
            costs[-1].append(cost())
            total = len(reader.tasks_)  # this looks at all of them, once per commit
            steps.clear()
            line = "no task named 'elsewhere' among .*, such as 'bas"
            refused(line, reader.predict, INPUTS, "elsewhere", error=il.UnknownTaskError)
            assert len(reader.tasks_) == total
            costs[-1].append(cost())
    for few, many in zip(*costs, strict=True):
        assert many <= few + 2
    assert (path.stat().st_size - empty) / total < 410
