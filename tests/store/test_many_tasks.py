"""Many tasks: a batch runs the network once; a name or commit costs the same beside others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import impresslearn as il
from impresslearn.errors import UnknownTaskError
from impresslearn.networks import Backbone
from impresslearn.store.mixed_batch import mixed_logits
from toys import blobs, lenet, quick_learner

INPUTS = blobs(9)[0][:12]


class Scaled(nn.Sequential):
    """Changes logits after the head."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).log_softmax(dim=1)


@pytest.mark.parametrize("kind", [nn.Sequential, Scaled])
def test_a_mixed_batch_runs_the_network_once(kind, monkeypatch):
    torch.manual_seed(0)
    body = kind(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))
    backbone = il.adapt(body, head="own", input_shape=(16,))
    learner = il.ImpressLearner.from_preset(backbone, "few_labels", progress=False)
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


TASKS = 300


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One task under many names."""
    learner = quick_learner(lenet(), progress=False).add_random_masks(2)
    learner.learn_task("site 000", blobs(0))
    (row,) = learner._store.rows.task_rows("site 000")
    learner._store.commit_many(replace(row, name=f"site {number:03}") for number in range(1, TASKS))
    path = tmp_path_factory.mktemp("many") / "many.impress"
    learner.save(path)
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("site 1234", "no task named 'site 1234' among more than 100; close: 'site 12[34]'"),
        ("elsewhere", "no task named 'elsewhere' among more than 100, such as 'site 000'"),
    ],
)
def test_an_unknown_name_reads_a_few_names(stored, name, expected):
    asked = []
    with il.open_store(stored, readonly=True) as learner:
        rows = learner._store.database.rows
        learner._store.database.rows = lambda query, *values: (
            asked.append(found := rows(query, *values)) or found
        )
        with pytest.raises(UnknownTaskError, match=expected):
            learner.predict(blobs(0)[0], name)
    assert sum(map(len, asked)) < 150


def test_tasks_stay_decoded_when_others_commit(stored, monkeypatch):
    with il.open_store(stored) as learner, il.open_store(stored) as other:
        learner.predict(blobs(0)[0], "site 007")
        decoded = []
        decode = learner._store.rows.decode
        monkeypatch.setattr(
            learner._store.rows, "decode", lambda row: decoded.append(row.name) or decode(row)
        )
        other.learn_task("another", blobs(1))
        before = learner.logits(blobs(0)[0], "site 007")
        assert decoded == []
        other.update_task("site 007", blobs(2))
        assert not learner.logits(blobs(0)[0], "site 007").equal(before)
        assert decoded == ["site 007"]
