"""Batches whose rows belong to several tasks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import impresslearn as il
from impresslearn.networks import Backbone
from impresslearn.store.mixed_batch import mixed_logits
from toys import blobs

INPUTS = blobs(9)[0][:12]


class Scaled(nn.Sequential):
    """Changes logits after the head."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).log_softmax(dim=1)


def learner_over(kind: type[nn.Sequential] = nn.Sequential) -> il.ImpressLearner:
    torch.manual_seed(0)
    body = kind(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))
    backbone = il.adapt(body, head="own", input_shape=(16,))
    learner = il.ImpressLearner.from_preset(backbone, "few_labels", progress=False)
    for number in range(4):
        learner.learn_task(f"t{number}", blobs(number))
    inputs, labels = blobs(4)
    kept = torch.as_tensor(labels) < 2
    learner.learn_task("two", (inputs[kept], np.array(["no", "yes"])[np.asarray(labels)[kept]]))
    return learner


@pytest.mark.parametrize("kind", [nn.Sequential, Scaled])
def test_a_mixed_batch_runs_the_network_once(kind, monkeypatch):
    learner = learner_over(kind)
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


def test_labels_of_a_mixed_batch_are_those_of_each_task():
    learner = learner_over()
    names = ["t0", "two", "t1", "t0", "two", "t3"] * 2
    labels = learner.predict(INPUTS, names)
    assert labels.dtype == object
    for row, name in enumerate(names):
        assert labels[row] == learner.predict(INPUTS[row : row + 1], name)[0]
    assert learner.predict(INPUTS, ["t0", "t1"] * 6).dtype.kind == "i"
    assert learner.predict(INPUTS[:0], []).shape == (0,)
    with pytest.raises(il.UnknownTaskError):
        learner.predict(INPUTS, ["t0", "t9"] * 6)
